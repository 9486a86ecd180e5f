// One way between the GPUs of two workers on two ranks: tensors go from GPU to GPU, past the memory
// of the hosts. A library such as NCCL is behind it (nccl/nccl_links.h).
//
//   const std::unique_ptr<LinkEnd> end = world.link({.from = 0, .to = 1, ...}, wait);  // on all
//   ranks const auto scope = stream->enter(); end->send(tensors);       // on rank 0: queued on
//   that stream end->receive(places);     // on rank 1, for the same tensors: queued there
//
// Such libraries match by order alone: both ends name the same tensors in the same order.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "penstock/model/device/device_stream.h"
#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

/// One worker's thread gives it work; abort() may come from another one.
class LinkEnd {
 public:
  virtual ~LinkEnd() = default;
  LinkEnd() = default;
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;

  /// Queues the tensors on the stream that the thread has entered, that of make(): contiguous, of
  /// at least one byte, in that device's memory. The caller keeps them until the stream has come
  /// to what it is given next. Does not block on the peer. Throws TransportError.
  virtual void send(const model::Tensors& tensors) = 0;
  /// The same for the places to which they go.
  virtual void receive(const model::Tensors& places) = 0;
  /// Ends what is queued, whatever the peer does; what arrives is then undefined, and send() and
  /// receive() throw.
  virtual void abort() noexcept = 0;
};

/// Between which ranks.
struct LinkPlace {
  int from = 0;
  int to = 0;
  /// Of this rank's end, which queues its work there; null on ranks that are neither.
  std::shared_ptr<model::DeviceStream> stream = nullptr;
};

/// What makes this rank's end of a link. `name`: the same at both ends, and that of no other link
/// of the job. Blocks until the other end is there. Throws TransportError, TimeoutError.
using LinkMaker =
    std::function<std::unique_ptr<LinkEnd>(const std::string& name, const LinkPlace&, Wait&)>;

}  // namespace penstock::runtime
