// What a replica keeps for PowerSGD (Vogels, Karimireddy and Jaggi, 2019, algorithms 1 and 2), and
// a step of it. For each weight whose gradient is summed as factors (plan/low_rank.h), with the
// replica's gradient G as a matrix of n rows and m columns:
//
//   q        [m, R], orthonormal columns: of the last step; the same on all replicas
//   error    n m numbers: what the replica's part of the sums has left out so far
//
//   D = G + error,  P = sum of D q over the replicas,  P' = orthonormal columns of P
//   Q_k = D^T P',   Q = sum of Q_k,   the sum of gradients is P' Q^T
//   error = D - P' Q_k^T,   q = orthonormal columns of Q
//
// The factors are sums where the paper has means, as all gradients here: the step is the same.
// Errors are those of the paper, of the replica's own factors. torch.distributed's hook keeps D
// less the mean: their mean is the same, and so are all steps but for rounding.
//
// With 16 bits on the way, a factor is rounded before it leaves, and the error has what that lost
// of Q_k. A column of P that depends on those before it adds nothing, and its q is drawn anew.
//
//   Tensors first = state.begin(std::move(gradients));   // to be summed
//   Tensors second = state.project(first_sums);          // to be summed
//   Tensors sums = state.finish(first_sums, second_sums, step);
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/util/ids.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::runtime {

struct StageWeights;

/// A weight of a stage under PowerSGD.
struct LowRankWeight {
  model::Shape shape;
  uint64_t seed = 0;  ///< of its first q; of its place in the model
  /// It is an earlier weight of the stage, too, whose gradient has all of it: nothing is summed.
  bool is_copy = false;
  /// It is shared with other stages, which would have other factors of it: summed whole.
  bool is_shared = false;
};

/// LowRankWeight::seed of a layer's parameter.
inline uint64_t low_rank_seed(uint64_t run_seed, LayerId layer, size_t parameter) {
  return derive_seed(run_seed, hash_name("powersgd"), layer.value, parameter);
}

/// What the replicas add up: of weight w, number w is P or the gradient itself, and number
/// weights + w is Q. Those are two buckets.
StageWeights low_rank_sums(const std::vector<LowRankWeight>& weights, int64_t rank);

/// In the host's memory. Not thread-safe: the replica's worker owns it during a run.
class LowRankState {
 public:
  LowRankState(std::vector<LowRankWeight> weights, int64_t rank, FloatType precision);

  size_t num_weights() const { return weights_.size(); }

  /// Takes the replica's gradients, by weight, which must be exclusive, and undefined where it has
  /// none. Returns its parts of P and of gradients that are summed whole, undefined where it has
  /// nothing to add.
  model::Tensors begin(model::Tensors gradients);
  /// After the sum of those: the replica's parts of Q.
  model::Tensors project(const model::Tensors& first_sums);
  /// After the sum of those: the sums of the gradients. `step`: of the whole training.
  model::Tensors finish(const model::Tensors& first_sums, const model::Tensors& second_sums,
                        int64_t step);

  /// By weight, without numbers where the gradient is summed whole; an error is 0 where the replica
  /// has given nothing yet. For checkpoints.
  model::Tensors factors() const;
  model::Tensors errors() const;
  void load(model::TensorSpan factors, model::TensorSpan errors);
  /// As WeightStore::claim_memory().
  void claim_memory() const;

 private:
  at::Tensor as_matrix(const at::Tensor& tensor, size_t weight) const;

  std::vector<LowRankWeight> weights_;
  int64_t rank_;
  FloatType precision_;
  model::Tensors q_;        ///< undefined where there are no factors
  model::Tensors errors_;   ///< undefined: 0. Between begin() and finish(): D
  model::Tensors columns_;  ///< P', between project() and finish()
};

}  // namespace penstock::runtime
