// Seeds and random numbers that are the same on every machine and in every C++ library, so that
// runs can be repeated.
//
//   // independent of how the model is cut
//   uint64_t seed = derive_seed(run_seed, layer, micro_batch);
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace penstock {

/// One step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijective 64-bit mix.
constexpr uint64_t mix_seed(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// A seed that depends on every part and on their order.
template <class... Parts>
constexpr uint64_t derive_seed(uint64_t seed, Parts... parts) {
  ((seed = mix_seed(seed ^ mix_seed(static_cast<uint64_t>(parts)))), ...);
  return seed;
}

/// A 64-bit hash of a name (FNV-1a), to derive seeds from names instead of positions.
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

/// A small generator for shuffles and synthetic data: SplitMix64 in counter form. Not thread-safe.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    const uint64_t value = mix_seed(state_);
    state_ += 0x9E3779B97F4A7C15ULL;
    return value;
  }
  /// Uniform in [0, bound), bound > 0, without modulo bias.
  uint64_t below(uint64_t bound) {
    const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    uint64_t value = next();
    while (value >= limit) value = next();
    return value % bound;
  }
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  /// Fisher-Yates shuffle in place.
  template <class T>
  void shuffle(std::span<T> items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace penstock
