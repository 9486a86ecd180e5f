#include "penstock/shard/type.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock::shard {

std::string to_string(const Type& type) {
  switch (type.kind) {
    case Kind::Equal:
      return "equal";
    case Kind::Pending:
      return "pending";
    case Kind::Partial:
      return "partial";
    case Kind::Part:
      return fmt::format("part along dimension {}", type.dimension);
  }
  return "";
}

Region Regions::make() {
  parents_.push_back(parents_.size());
  units_.push_back(0);
  sequences_.emplace_back();
  groups_.push_back(0);
  served_.emplace_back();
  is_apart_.push_back(false);
  return parents_.size() - 1;
}

Region Regions::make_sequence(int64_t length, Lengths lengths) {
  const Region region = make();
  units_.back() = length;
  sequences_.back() = lengths;
  return region;
}

Region Regions::find(Region region) const {
  while (parents_[region] != region) region = parents_[region];
  return region;
}

void Regions::join(Region a, Region b) {
  const Region first = std::min(find(a), find(b));
  const Region second = std::max(find(a), find(b));
  if (first == second) return;
  parents_[second] = first;
  units_[first] = std::gcd(units_[first], units_[second]);
  groups_[first] = std::max(groups_[first], groups_[second]);
  if (!served_[first]) served_[first] = served_[second];
  if (is_apart_[second]) is_apart_[first] = true;
}

bool Regions::share(Region few, Region many, int team) {
  const Region one = find(few);
  const Region other = find(many);
  const int64_t groups = units_[one];
  if (groups == 0 || groups >= team || is_apart_[one] || units_[other] % groups != 0) return false;
  // Of the group with most members each has a unit.
  if (units_[other] / groups < (team + groups - 1) / groups) return false;
  if (groups_[other] != 0 && groups_[other] != groups) return false;
  if (served_[one] && find(*served_[one]) != other) return false;
  groups_[other] = groups;
  served_[one] = other;
  return true;
}

bool Regions::are_shared(Region few, Region many) const {
  const std::optional<Region> served = served_[find(few)];
  return served && find(*served) == find(many);
}

bool Regions::is_copied(Region region, int team) const {
  const int64_t all = units(region);
  return all > 0 && all < team && !is_sequence(region);
}

bool Regions::can_divide(Region region, int team) const {
  const Region root = find(region);
  const int64_t all = units_[root];
  if (all >= team) {
    const int64_t groups = groups_[root];
    return groups == 0 || groups >= team ||
           (all % groups == 0 && all / groups >= (team + groups - 1) / groups);
  }
  return all > 0 && served_[root] && groups_[find(*served_[root])] == all &&
         can_divide(*served_[root], team);
}

bool Regions::keep_apart(Region region) {
  const Region root = find(region);
  if (served_[root]) return false;
  is_apart_[root] = true;
  return true;
}

Region Regions::leader(Region region) const {
  const std::optional<Region> served = served_[find(region)];
  return find(served ? *served : region);
}

void Regions::divide(Region region, int64_t length) {
  int64_t& units = units_[find(region)];
  units = std::gcd(units, length);
}

namespace {

/// Of `all`, shared out to `members`: how many are before this one's.
int64_t before(int64_t all, int64_t members, int64_t member) {
  return all / members * member + std::min(all % members, member);
}

}  // namespace

int64_t Regions::units_before(Region region, int team, int member) const {
  const int64_t all = units(region);
  if (is_copied(region, team)) return member * all / team;
  const int64_t groups = groups_[find(region)];
  if (groups == 0 || groups >= team) return before(all, team, member);
  if (member == team) return all;
  // The group's members are those whose copies are the same.
  const int64_t group = member * groups / team;
  const auto first_of = [&](int64_t g) { return (g * team + groups - 1) / groups; };
  const int64_t own = all / groups;
  return group * own + before(own, first_of(group + 1) - first_of(group), member - first_of(group));
}

int64_t Regions::units_of(Region region, int team, int member) const {
  if (is_copied(region, team)) return 1;
  return units_before(region, team, member + 1) - units_before(region, team, member);
}

int64_t Regions::length(const Type& type, int team, int member) const {
  const int64_t whole = std::accumulate(type.blocks.begin(), type.blocks.end(), int64_t{0});
  return whole / units(type.region) * units_of(type.region, team, member);
}

}  // namespace penstock::shard
