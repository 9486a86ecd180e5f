// The workers that share the work of one replica of a stage, each with a part of its weights
// (tensor parallelism, Shoeybi et al. 2019), as a layer sees them: through its context.
//
//   at::Tensor y = team.sum(team_part_of_y);       // every member gets the same numbers
//   at::Tensor all = team.gather(mine, 2, {32, 32, 16});
//
// Every member makes the same calls in the same order. Sums are made in the order of the members,
// so that all get the same bits, again in every run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace penstock::model {

/// Of one worker, for one replica of a stage. Not thread-safe: the worker's thread calls it.
class Team {
 public:
  virtual ~Team() = default;
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  virtual int size() const = 0;
  /// This worker's place among the members, from 0.
  virtual int member() const = 0;

  /// Gives member m the tensor parts[m], and returns what each member gave this one, in their
  /// order; its own is parts[member()]. `sizes[m]`: of what member m gives; all have the type and
  /// the device of the worker's own. Blocks until all are there. Neither may be written to
  /// afterwards: members may share memory. Throws what the run throws where it fails.
  virtual std::vector<at::Tensor> exchange(std::vector<at::Tensor> parts,
                                           const std::vector<std::vector<int64_t>>& sizes) = 0;

  // Made of exchange(). Results are new tensors, contiguous, that nobody shares. No gradients: see
  // team_functions.h.

  /// The sum of all members' tensors of one shape: 2 (t - 1) / t of its bytes sent and received by
  /// each of t members.
  at::Tensor sum(const at::Tensor& mine);
  /// The largest of each number.
  at::Tensor largest(const at::Tensor& mine);
  /// The members' tensors side by side along the dimension, in which member m has lengths[m].
  at::Tensor gather(const at::Tensor& mine, int64_t dimension, const std::vector<int64_t>& lengths);
  /// This member's part, along the dimension, of sum(): (t - 1) / t of its bytes. Member m gets
  /// lengths[m].
  at::Tensor sum_part(const at::Tensor& mine, int64_t dimension,
                      const std::vector<int64_t>& lengths);

 private:
  at::Tensor reduced(const at::Tensor& mine, bool adds);
};

}  // namespace penstock::model
