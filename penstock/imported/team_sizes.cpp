#include "penstock/imported/team_sizes.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "penstock/util/error.h"

namespace penstock::imported {
namespace {

constexpr std::array<int64_t, 8> kPrimes = {10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079};
/// More blocks than any model has.
constexpr int64_t kMaxBlocks = 4096;

int64_t numbers_between(const std::vector<int64_t>& numbers, size_t begin, size_t end) {
  int64_t result = 1;
  for (size_t i = begin; i < end; ++i) {
    if (__builtin_mul_overflow(result, numbers[i], &result)) return -1;
  }
  return result;
}

/// The dimension before which the sizes have that product, and which is longer than 1.
std::optional<size_t> behind(const std::vector<int64_t>& numbers, int64_t outer) {
  int64_t before = 1;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (before == outer && numbers[i] != 1) return i;
    if (__builtin_mul_overflow(before, numbers[i], &before)) return std::nullopt;
  }
  return std::nullopt;
}

/// How many dimensions of length 1 lie right before that one.
size_t ones_before(const std::vector<int64_t>& numbers, size_t dimension) {
  size_t count = 0;
  while (count < dimension && numbers[dimension - count - 1] == 1) ++count;
  return count;
}

/// Blocks along a dimension whose places are `inner` numbers each, of blocks with `numbers` each.
std::optional<std::vector<int64_t>> in_places(const std::vector<int64_t>& numbers, int64_t inner) {
  std::vector<int64_t> blocks;
  for (const int64_t block : numbers) {
    if (inner <= 0 || block % inner != 0) return std::nullopt;
    blocks.push_back(block / inner);
  }
  return blocks;
}

}  // namespace

const ValueSizes& TeamSizes::of(const std::string& name) {
  const auto [place, is_new] = known_.try_emplace(name);
  const auto found = program_.tensors.find(name);
  if (!is_new || found == program_.tensors.end()) return place->second;
  for (const exported::SymbolicInt& size : found->second.sizes) {
    int64_t number = size.value;
    try {
      const SizeExpression expression(size);
      for (const std::string& symbol : expression.symbols())
        primes_.emplace(symbol, kPrimes[primes_.size() % kPrimes.size()]);
      number = expression.evaluate(primes_);
    } catch (const Error&) {  // an expression that is not read here: the example's
    }
    place->second.numbers.push_back(number);
    place->second.fixed.push_back(size.is_number());
  }
  return place->second;
}

std::optional<ReshapedPart> reshaped(const shard::Type& part, const ValueSizes& from,
                                     const ValueSizes& to) {
  const int64_t outer = numbers_between(from.numbers, 0, part.dimension);
  const int64_t inner = numbers_between(from.numbers, part.dimension + 1, from.rank());
  if (outer <= 0 || inner <= 0 || numbers_between(to.numbers, 0, to.rank()) <= 0)
    return std::nullopt;
  std::vector<int64_t> numbers;  // of each block
  for (const int64_t block : part.blocks) numbers.push_back(block * inner);
  const auto count = static_cast<int64_t>(part.blocks.size());
  const bool alike = std::all_of(numbers.begin(), numbers.end(),
                                 [&](int64_t one) { return one == numbers.front(); });
  const auto inner_of = [&](size_t d) { return numbers_between(to.numbers, d + 1, to.rank()); };

  // One block, or blocks that become places of a dimension of their own.
  if (alike) {
    const auto found = behind(to.numbers, outer * count);
    // One head: what is behind it is no part of heads.
    if (found && ones_before(to.numbers, *found) > ones_before(from.numbers, part.dimension))
      return std::nullopt;
    if (found && to.fixed[*found]) {
      const int64_t length = to.numbers[*found];
      if (length * inner_of(*found) == numbers.front())
        return ReshapedPart{*found, {length}, {length}};
    }
  }
  // Blocks stay side by side.
  if (const auto found = behind(to.numbers, outer); found && to.fixed[*found]) {
    const auto blocks = in_places(numbers, inner_of(*found));
    if (blocks && std::accumulate(blocks->begin(), blocks->end(), int64_t{0}) == to.numbers[*found])
      return ReshapedPart{*found, *blocks, *blocks};
  }
  // Dimensions before the part are joined with it: as many times its blocks.
  int64_t before = 1;
  for (size_t d = 0; d < to.rank() && before < outer; ++d) {
    const int64_t times = outer / before;
    const auto blocks = in_places(numbers, inner_of(d));
    if (outer % before == 0 && times * count <= kMaxBlocks && to.fixed[d] && blocks &&
        times * std::accumulate(blocks->begin(), blocks->end(), int64_t{0}) == to.numbers[d]) {
      ReshapedPart result{d, {}, *blocks};
      for (int64_t i = 0; i < times; ++i)
        result.blocks.insert(result.blocks.end(), blocks->begin(), blocks->end());
      return result;
    }
    if (__builtin_mul_overflow(before, to.numbers[d], &before)) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace penstock::imported
