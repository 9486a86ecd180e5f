// Short messages between two ranks of one host: a frame in shared memory, with all bytes behind it.
// The sender's memory is free at once. Internal to net.
#pragma once

#include "penstock/net/path.h"

namespace penstock::net {

/// Takes messages below MeshState::same_host_bytes while the shared memory has room for them.
class ShortPath : public Path {
 public:
  explicit ShortPath(PathContext& context) : context_(context) {}

  bool takes(const Outgoing& outgoing) const override;
  void send(Outgoing outgoing) override;
  bool on_frame(const FrameHeader& header, Bytes behind) override;
  void close_run(uint32_t) override {}  // nothing is ever under way

 private:
  PathContext& context_;
};

}  // namespace penstock::net
