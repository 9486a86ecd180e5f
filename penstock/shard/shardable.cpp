#include "penstock/shard/shardable.h"

#include <utility>

namespace penstock::shard {

model::TensorPart Member::part(const Type& type, std::vector<int64_t> whole, size_t number) const {
  model::TensorPart result{.whole = std::move(whole), .number = number};
  if (!type.is_part()) return result;
  result.dimension = static_cast<int64_t>(type.dimension);
  const int64_t units = regions.units(type.region);
  const int64_t before = regions.units_before(type.region, team, this->number);
  const int64_t own = regions.units_of(type.region, team, this->number);
  result.is_copy = regions.is_copied(type.region, team) && this->number > 0 &&
                   regions.units_before(type.region, team, this->number - 1) == before;
  int64_t begin = 0;
  for (const int64_t block : type.blocks) {
    const int64_t unit = block / units;
    result.runs.push_back({begin + before * unit, own * unit});
    begin += block;
  }
  return result;
}

model::TensorPart::Run Member::copies(const Type& type) const {
  const auto unit = [&](int m) { return regions.units_before(type.region, team, m); };
  model::TensorPart::Run members{number, 1};
  if (!regions.is_copied(type.region, team)) return members;
  while (members.begin > 0 && unit(static_cast<int>(members.begin) - 1) == unit(number))
    --members.begin;
  int end = number + 1;
  while (end < team && unit(end) == unit(number)) ++end;
  members.length = end - members.begin;
  return members;
}

std::vector<int64_t> Member::lengths(const Type& type) const {
  std::vector<int64_t> all;
  for (int m = 0; m < team; ++m) all.push_back(regions.length(type, team, m));
  return all;
}

}  // namespace penstock::shard
