// Messages between the stages of a run: a part of its fabric (fabric.h).
//
//   channels.send({.from = StageId{0}, .to = StageId{1}, ...}, tensors, wait);    // SEND
//   channels.receive(message, tensors, wait);                                     // RECV
#pragma once

#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/message.h"
#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

/// Thread-safe as the fabric.
class Channels {
 public:
  virtual ~Channels() = default;
  Channels() = default;
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  /// Hands a message over. Blocks while the channel (from worker to worker, per direction) is full.
  /// The tensors must not be written to afterwards.
  virtual WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) = 0;
  /// Blocks until the message is there. The tensors must not be written to unless they are
  /// exclusive. Order and number are those of send(); undefined tensors arrive undefined.
  virtual WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait) = 0;
};

}  // namespace penstock::runtime
