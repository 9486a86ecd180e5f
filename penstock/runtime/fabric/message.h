// What travels between two stages for one micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <vector>

#include "penstock/schedule/action.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

/// The name of a message: a message is found by its name, never by its place in a queue. The stages
/// and the micro-batch say which workers send and receive it (schedule::WorkerTable).
struct Message {
  bool backward = false;  ///< gradients, towards the input; otherwise activations
  StageId from;
  StageId to;
  MicroBatchId micro_batch;
  auto operator<=>(const Message&) const = default;
};

/// That of a SEND or RECV.
inline Message message_of(const schedule::Action& action) {
  const bool sends = schedule::is_send(action.op);
  const bool backward =
      action.op == schedule::Op::SendBackward || action.op == schedule::Op::RecvBackward;
  return {backward, sends ? action.stage : action.peer, sends ? action.peer : action.stage,
          action.micro_batch};
}

/// One tensor of a message.
struct TensorLayout {
  std::vector<int64_t> sizes;
  at::ScalarType type = at::kFloat;
  bool operator==(const TensorLayout&) const = default;
};

/// What a message holds, so that a receiver can provide the memory before anything arrives. A
/// tensor may be undefined instead (a gradient that is zero). Pure; thread-safe.
using MessageLayout = std::function<std::vector<TensorLayout>(const Message&)>;

}  // namespace penstock::runtime
