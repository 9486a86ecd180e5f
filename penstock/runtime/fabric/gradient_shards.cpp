#include "penstock/runtime/fabric/gradient_shards.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::runtime {

namespace {

/// Cuts the numbers of a bucket.
class BucketCutter {
 public:
  BucketCutter(const std::vector<int64_t>& numbers, size_t bucket, size_t first, size_t end,
               int64_t most_numbers)
      : numbers_(numbers), bucket_(bucket), first_(first), end_(end), most_numbers_(most_numbers) {}

  int64_t total() const {
    return std::accumulate(numbers_.begin() + static_cast<std::ptrdiff_t>(first_),
                           numbers_.begin() + static_cast<std::ptrdiff_t>(end_), int64_t{0});
  }

  /// [begin, end) of the bucket as shards of about the same size.
  void cut(int64_t begin, int64_t end, size_t owner, std::vector<Shard>& shards) const {
    const int64_t parts = ceil_div(end - begin, most_numbers_);
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t from = begin + (end - begin) * p / parts;
      const int64_t to = begin + (end - begin) * (p + 1) / parts;
      shards.push_back({.bucket = bucket_, .owner = owner, .ranges = ranges(from, to)});
    }
  }

 private:
  std::vector<ShardRange> ranges(int64_t begin, int64_t end) const {
    std::vector<ShardRange> ranges;
    int64_t offset = 0;
    for (size_t w = first_; w < end_; ++w) {
      const int64_t from = std::max<int64_t>(begin - offset, 0);
      const int64_t to = std::min(end - offset, numbers_[w]);
      if (from < to) ranges.push_back({.weight = w, .begin = from, .length = to - from});
      offset += numbers_[w];
    }
    return ranges;
  }

  const std::vector<int64_t>& numbers_;
  size_t bucket_;
  size_t first_;
  size_t end_;
  int64_t most_numbers_;
};

/// Adds the lists' shards to `shards`, each list in its order and at its own even pace.
void interleave(const std::vector<std::vector<Shard>>& lists, std::vector<Shard>& shards) {
  std::vector<std::pair<double, std::pair<size_t, size_t>>> order;
  for (size_t l = 0; l < lists.size(); ++l) {
    for (size_t i = 0; i < lists[l].size(); ++i) {
      const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(lists[l].size());
      order.push_back({place, {l, i}});
    }
  }
  std::sort(order.begin(), order.end());
  for (const auto& [place, at] : order) shards.push_back(lists[at.first][at.second]);
}

}  // namespace

std::vector<size_t> make_buckets(const std::vector<int64_t>& numbers,
                                 const std::vector<size_t>& layer_ends) {
  std::vector<size_t> ends;
  size_t begin = 0;
  int64_t total = 0;
  for (const size_t end : layer_ends) {
    for (size_t w = begin; w < end; ++w) total += numbers[w];
    begin = end;
    if (total < kBucketNumbers) continue;
    ends.push_back(end);
    total = 0;
  }
  if (ends.empty() || ends.back() != numbers.size()) ends.push_back(numbers.size());
  return ends;
}

std::vector<Shard> make_shards(const std::vector<int64_t>& numbers,
                               const std::vector<size_t>& bucket_ends,
                               const std::vector<double>& shares, int64_t most_numbers) {
  const double whole = std::accumulate(shares.begin(), shares.end(), 0.0);
  PENSTOCK_CHECK(whole > 0, "nobody owns a part of the gradients");
  const auto owners = std::count_if(shares.begin(), shares.end(), [](double s) { return s > 0; });
  std::vector<Shard> shards;
  std::vector<double> load(shares.size(), 0);
  size_t first = 0;
  for (size_t bucket = 0; bucket < bucket_ends.size(); ++bucket) {
    const BucketCutter cutter(numbers, bucket, first, bucket_ends[bucket], most_numbers);
    first = bucket_ends[bucket];
    const int64_t total = cutter.total();
    if (total < owners * kLeastPart) {
      size_t least = 0;
      const auto after = [&](size_t o) {
        return (load[o] + static_cast<double>(total)) / shares[o];  // infinite for a share of 0
      };
      for (size_t o = 1; o < shares.size(); ++o) {
        if (after(o) < after(least)) least = o;
      }
      load[least] += static_cast<double>(total);
      if (total > 0) cutter.cut(0, total, least, shards);
      continue;
    }
    std::vector<std::vector<Shard>> of_owner(shares.size());
    double share = 0;
    int64_t begin = 0;
    for (size_t o = 0; o < shares.size(); ++o) {
      share += shares[o];
      const int64_t end = o + 1 == shares.size()
                              ? total
                              : std::min<int64_t>(total, std::llround(static_cast<double>(total) *
                                                                      (share / whole)));
      if (begin < end) cutter.cut(begin, end, o, of_owner[o]);
      load[o] += static_cast<double>(end - begin);
      begin = end;
    }
    interleave(of_owner, shards);
  }
  return shards;
}

}  // namespace penstock::runtime
