// Messages in pieces over the connection: a frame, then the bytes. Internal to net.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "penstock/net/path.h"

namespace penstock::net {

/// Takes every message.
class PiecesPath : public Path, public Connection::Payload {
 public:
  explicit PiecesPath(PathContext& context) : context_(context) {}

  bool takes(const Outgoing&) const override { return true; }
  void send(Outgoing outgoing) override;
  bool on_frame(const FrameHeader& header, Bytes behind) override;
  void close_run(uint32_t run) override;

  bool has_output() const override { return !ready_.empty(); }
  std::shared_ptr<const void> next_output(std::vector<std::byte>& frames,
                                          std::vector<asio::const_buffer>& buffers) override;
  void output_written() override;
  uint64_t expected() const override { return piece_left_; }
  Connection::Payload::Room room() override;
  void filled(size_t bytes) override;

 private:
  PathContext& context_;
  Orders orders_;
  std::map<Order, Outgoing> ready_;
  Order current_ = {};  ///< the message of which a piece is being written
  Tag piece_tag_ = {};
  uint64_t piece_left_ = 0;           ///< bytes of a piece that are still to come
  std::vector<std::byte> discarded_;  ///< where bytes of closed runs go
};

}  // namespace penstock::net
