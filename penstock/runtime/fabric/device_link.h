// One way between the GPUs of two workers on two ranks: tensors go from GPU to GPU, past the memory
// of the hosts. A library such as NCCL is behind it (nccl/nccl_links.h).
//
//   auto end = world.link({.from = 0, .to = 1, .stream = stream}, wait);
//   const auto scope = stream->enter();
//   end->send(tensors);     // rank 0's end: queued on that stream
//   end->receive(places);   // rank 1's end, for the same tensors
//
// Such libraries match by order alone: both ends name the same tensors in the same order. A send
// occupies its GPU until the other one receives, and a GPU that has to load a program waits for all
// that runs on it. So nothing is sent before the other end has said, over the connections, that it
// receives (LinkPlace::on_receive): a GPU waits for a transfer, never for what the other rank's
// workers may do later.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "penstock/model/device/device_stream.h"
#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

/// One thread gives it work; give_up() and check() may come from others.
class LinkEnd {
 public:
  virtual ~LinkEnd() = default;
  LinkEnd() = default;
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;

  /// Queues the tensors on the stream that the thread has entered, that of its LinkPlace:
  /// contiguous, of at least one byte, in that device's memory. The caller keeps them until an
  /// event that is recorded behind the call is done. Does not wait for the peer. Throws
  /// TransportError.
  virtual void send(const model::Tensors& tensors) = 0;
  /// Queues the receive of the same tensors into these places, and tells the sender's end.
  virtual void receive(const model::Tensors& places) = 0;
  /// Throws TransportError when the library has met an error since.
  virtual void check() = 0;
  /// Ends what is queued, whatever the peer does; what arrives is then undefined, and send() and
  /// receive() throw. May block until the device has come to what was queued, which may need other
  /// links to be given up: all at once, each in a thread.
  virtual void give_up() noexcept = 0;
};

/// Between which ranks.
struct LinkPlace {
  int from = 0;
  int to = 0;
  /// Of this rank's end, which queues its work there; null on ranks that are neither.
  std::shared_ptr<model::DeviceStream> stream = nullptr;
  /// At the sender's end: called for each receive that the other end has queued, in their order,
  /// by a thread that must not be blocked; not after the end is destroyed.
  std::function<void()> on_receive = {};
};

/// What makes this rank's end of a link. `name`: the same at both ends, and that of no other link
/// of the job. Blocks until the other end is there. Throws TransportError, TimeoutError.
using LinkMaker =
    std::function<std::unique_ptr<LinkEnd>(const std::string& name, const LinkPlace&, Wait&)>;

}  // namespace penstock::runtime
