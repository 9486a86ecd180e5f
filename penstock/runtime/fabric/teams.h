// What the members of a team give each other inside their passes (model/team.h): a part of a run's
// fabric (fabric.h).
//
//   teams.start_exchange(exchange, std::move(parts), expected);          // never blocks
//   teams.finish_exchange(exchange, member, expected[member], part, wait);   // of each other one
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/message.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/schedule/action.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

/// One exchange of the team of one replica of a stage, as one of its members makes it.
struct TeamExchange {
  StageId first;  ///< the schedule's stage of member 0; that of member m is m stages behind it
  int replica = 0;
  int member = 0;                 ///< who makes it
  int64_t number = 0;             ///< of the team's exchanges in this run, from 0
  schedule::Op op{};              ///< in which it is made,
  MicroBatchId micro_batch = {};  ///< and of which micro-batch

  StageId stage() const { return StageId{first.value + member}; }
  StageId stage_of(int other) const { return StageId{first.value + other}; }
};

/// What is given, in 64 bits: pass, micro-batch, sizes and type. Members that do not do the same
/// have others.
uint64_t signature_of(const TeamExchange& exchange, const TensorLayout& layout);
/// Throws RuntimeError where what member `from` has given is not what the layout says.
void check_given(const TeamExchange& exchange, int from, const TensorLayout& expected,
                 uint64_t given);

/// Thread-safe as the fabric. Every member of a team makes the same exchanges in the same order,
/// and finishes each with all others before it starts the next.
class Teams {
 public:
  virtual ~Teams() = default;
  Teams() = default;
  Teams(const Teams&) = delete;
  Teams& operator=(const Teams&) = delete;

  /// Gives member m the tensor parts[m]; expected[m] is what that one gives. Those of the member
  /// itself are not looked at. Tensors of the host, which must not be written to afterwards.
  virtual void start_exchange(const TeamExchange& exchange, model::Tensors parts,
                              const std::vector<TensorLayout>& expected) = 0;
  /// What member `from` has given. Blocks until it is there. It must not be written to. Throws
  /// RuntimeError where it is something else than was expected.
  virtual WaitResult finish_exchange(const TeamExchange& exchange, int from,
                                     const TensorLayout& expected, at::Tensor& part,
                                     Wait& wait) = 0;
};

}  // namespace penstock::runtime
