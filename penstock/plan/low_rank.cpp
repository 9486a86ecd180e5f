#include "penstock/plan/low_rank.h"

#include <fmt/format.h>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::plan {

MatrixSizes matrix_sizes(std::span<const int64_t> shape) {
  MatrixSizes sizes;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t& size = d == 0 ? sizes.rows : sizes.columns;
    size = saturating_mul(size, shape[d]);
  }
  return sizes;
}

bool is_factored(MatrixSizes sizes, int64_t rank) {
  return rank > 0 && saturating_mul(saturating_add(sizes.rows, sizes.columns), rank) <
                         saturating_mul(sizes.rows, sizes.columns);
}

int64_t summed_numbers(MatrixSizes sizes, int64_t rank) {
  return is_factored(sizes, rank) ? saturating_mul(saturating_add(sizes.rows, sizes.columns), rank)
                                  : saturating_mul(sizes.rows, sizes.columns);
}

void check_low_rank(const Plan& plan) {
  const bool is_used = plan.sync == GradientSync::PowerSgd;
  if (is_used ? plan.sync_rank < 1 || plan.sync_rank > kMostSyncRank : plan.sync_rank != 0) {
    throw ConfigError(
        fmt::format("the synchronisation {} in rank {}: expected rank 0, or powersgd and 1 to {}",
                    to_string(plan.sync), plan.sync_rank, kMostSyncRank));
  }
  for (size_t s = 0; is_used && s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    if (stage.replicas == 1 || (!stage.shard_optimizer && stage.tensor == 1)) continue;
    throw ConfigError(fmt::format(
        "with the synchronisation {} each replica makes whole gradients out of the factors, and "
        "steps all weights of its stage: expected a plan without {}, found stage {} with it",
        to_string(plan.sync_method()), stage.shard_optimizer ? "shared-out states" : "teams", s));
  }
}

}  // namespace penstock::plan
