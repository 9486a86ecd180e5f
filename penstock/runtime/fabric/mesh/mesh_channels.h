// Messages from worker to worker: in memory where both are on this rank (tensor_exchange.h), over
// the mesh otherwise. Between ranks both sides know from the schedule which messages
// the sender will send to that worker, and in which order. So the receiver posts its receives early
// in that order, `credits` of them beyond those that it has taken, and a message starts to move as
// soon as it is sent.
//
// Bytes on the wire: those of the tensors (mesh.h says how few frames add). An undefined tensor is
// a part that is left out.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/fabric/local/tensor_exchange.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::runtime {

/// Thread-safe, as long as calls for one worker come from one thread.
class MeshChannels : public Channels {
 public:
  /// Numbers its channels from 0; channels() is how many numbers of the run are taken. The site
  /// must outlive it.
  MeshChannels(net::Mesh& mesh, uint32_t run, const Site& site, const RunSetup& setup);

  /// Posts the first receives.
  void start();
  uint32_t channels() const { return static_cast<uint32_t>(channels_.size()); }
  /// Wakes who waits for a worker of this rank; the mesh wakes the others (Mesh::close_run).
  void close() { exchange_.close(); }

  WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) override;
  WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait) override;

 private:
  struct Key {
    WorkerId from;
    WorkerId to;
    bool backward;
    auto operator<=>(const Key&) const = default;
  };
  /// A message that has been asked for.
  struct Posted {
    std::shared_ptr<model::Tensors> tensors;
    std::shared_ptr<net::Transfer> transfer;
  };
  struct Channel {
    uint32_t number = 0;
    int peer = 0;  ///< rank
    bool sends = false;
    bool receives = false;
    std::vector<Message> messages;                    ///< in the sender's order
    std::map<Message, uint64_t> sequence;             ///< their places in it
    std::deque<std::shared_ptr<net::Transfer>> sent;  ///< that may still be on their way
    std::map<Message, Posted> posted;
    size_t next = 0;  ///< to post
  };
  bool is_local(const Message& message) const;
  Channel& channel(const Message& message);
  void post_next(Channel& channel);
  net::Tag tag(const Channel& channel, const Message& message) const;

  net::Mesh& mesh_;
  uint32_t run_;
  const Site& site_;
  schedule::WorkerTable table_;
  TensorExchange exchange_;
  MessageLayout layout_;
  size_t credits_;
  std::map<Key, Channel> channels_;
};

}  // namespace penstock::runtime
