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
}

void Regions::divide(Region region, int64_t length) {
  int64_t& units = units_[find(region)];
  units = std::gcd(units, length);
}

int64_t Regions::units_before(Region region, int team, int member) const {
  const int64_t all = units(region);
  return all / team * member + std::min<int64_t>(all % team, member);
}

int64_t Regions::units_of(Region region, int team, int member) const {
  return units_before(region, team, member + 1) - units_before(region, team, member);
}

int64_t Regions::length(const Type& type, int team, int member) const {
  const int64_t whole = std::accumulate(type.blocks.begin(), type.blocks.end(), int64_t{0});
  return whole / units(type.region) * units_of(type.region, team, member);
}

}  // namespace penstock::shard
