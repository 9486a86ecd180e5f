// What all workers do together between the last backward and the steps of a mini-batch (action
// NORM): add up the gradients of weights that stages share, and measure the gradient of the whole
// model.
//
// Tied weights: every layer that uses one holds a copy of it. Their gradients are added in the
// order of the layers, and each copy steps with the sum, so that the copies stay equal bit for bit.
// A group of copies within one stage needs nobody else: the stage adds them up itself. Norm: the
// squares of each weight tensor's gradient are summed by one replica of its stage, in double
// precision; then everybody adds these sums up in the order of the layers. Neither depends on how
// the model is cut.
#pragma once

#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/model/layer.h"
#include "penstock/runtime/barrier.h"

namespace penstock::runtime {

/// Thread-safe. One round per mini-batch: put() all, meet(), tied_sum(), put_squares(), meet(),
/// drop() and norm(). Between two meetings everybody writes or everybody reads one of the tables.
/// The tables own what is in them, so that a worker may leave at any time.
class GlobalGradients {
 public:
  /// `groups`: number of tied groups whose copies lie in several stages, `weights` in the model's
  /// flat list.
  GlobalGradients(int workers, std::vector<size_t> copies_per_group, size_t weights);

  bool has_ties() const { return !ties_.empty(); }
  /// The gradient of copy `copy` (in layer order) of group `group`; from one replica of its stage.
  void put(size_t group, size_t copy, at::Tensor gradient) {
    ties_[group][copy] = std::move(gradient);
  }
  /// Forgets it; from whoever put it.
  void drop(size_t group, size_t copy) { ties_[group][copy].reset(); }
  /// Sum over the copies, not to be written to; undefined if all are.
  at::Tensor tied_sum(size_t group) const;

  /// Sum of the squares of weight number `weight`'s gradient; from one replica, each weight once,
  /// weights that are not put count as 0.
  void put_squares(int64_t round, size_t weight, double squares) {
    squares_[static_cast<size_t>(round % 2)][weight] = squares;
  }
  double norm(int64_t round) const;

  /// Waits for all workers; after a timeout nobody meets any more.
  WaitResult meet(CondVar::Deadline deadline, int64_t& waiting_ns) {
    return barrier_.wait(deadline, waiting_ns);
  }
  void close() { barrier_.close(); }

 private:
  Barrier barrier_;
  std::vector<model::Tensors> ties_;
  /// Two tables in turn: a fast worker may begin the next round while a slow one still reads this
  /// one's.
  std::vector<double> squares_[2];
};

/// In double precision and row by row, whatever the strides are; 0 for an undefined tensor.
double sum_of_squares(const at::Tensor& tensor);

/// What gradients with this norm are multiplied by so that it does not exceed `limit`: as
/// torch.nn.utils.clip_grad_norm_ has it, limit / (norm + 1e-6), so that no norm is divided by as
/// zero. 1 below the limit, without a limit (0) and where the norm is no number.
double clip_factor(double norm, double limit);

}  // namespace penstock::runtime
