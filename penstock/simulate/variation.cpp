#include "penstock/simulate/variation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::simulate::detail {

namespace {

constexpr double kLargestFactor = 1e6;
constexpr double kLargestSpread = 3;

/// A number from the standard normal distribution (Box and Muller, 1958).
double normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  return radius * std::cos(2 * std::numbers::pi * rng.uniform());
}

std::vector<double> straggler_factors(const Stragglers& stragglers, uint64_t seed,
                                      int32_t num_workers) {
  std::vector<double> factors(static_cast<size_t>(num_workers), 1.0);
  const auto slow = static_cast<size_t>(nearest(stragglers.share * num_workers));
  if (slow == 0) return factors;
  std::vector<int32_t> workers(factors.size());
  std::iota(workers.begin(), workers.end(), 0);
  Rng rng(derive_seed(seed, hash_name("stragglers")));
  rng.shuffle(std::span<int32_t>(workers));
  for (size_t i = 0; i < slow; ++i) factors[static_cast<size_t>(workers[i])] = stragglers.factor;
  return factors;
}

}  // namespace

Variation::Variation(const Options& options, int32_t num_workers)
    : seed_(derive_seed(options.seed, hash_name("compute"))),
      spread_(options.compute_spread),
      spread_at_ns_(static_cast<double>(options.compute_spread_at_ns)) {
  const Stragglers& stragglers = options.stragglers;
  if (!(stragglers.share >= 0 && stragglers.share <= 1)) {
    throw ConfigError(
        fmt::format("the share of stragglers must be between 0 and 1, found {}", stragglers.share));
  }
  if (!(stragglers.factor > 0 && stragglers.factor <= kLargestFactor)) {
    throw ConfigError(
        fmt::format("stragglers must be slower by a factor above 0 and up to {}, found {}",
                    kLargestFactor, stragglers.factor));
  }
  if (!(spread_ >= 0 && spread_ <= kLargestSpread)) {
    throw ConfigError(fmt::format("the spread of compute times must be between 0 and {}, found {}",
                                  kLargestSpread, spread_));
  }
  active_ = spread_ > 0 || (stragglers.share > 0 && stragglers.factor != 1);
  if (active_) factors_ = straggler_factors(stragglers, options.seed, num_workers);
}

// Of the logarithm of its time.
double Variation::sigma(double planned_ns) const {
  if (!(spread_at_ns_ > 0)) return spread_;
  return std::sqrt(std::log1p(spread_ * spread_ * spread_at_ns_ / std::max(planned_ns, 1.0)));
}

int64_t Variation::varied_ns(int32_t worker, const schedule::Action& action,
                             int64_t planned_ns) const {
  double ns = static_cast<double>(planned_ns) * factors_[static_cast<size_t>(worker)];
  if (spread_ > 0) {
    const int64_t number =
        action.op == schedule::Op::Step ? action.mini_batch.value : action.micro_batch.value;
    Rng rng(derive_seed(seed_, worker, action.stage.value, static_cast<int>(action.op), number));
    const double s = sigma(static_cast<double>(planned_ns));
    ns *= std::exp(s * normal(rng) - s * s / 2);
  }
  return nearest(ns);
}

}  // namespace penstock::simulate::detail
