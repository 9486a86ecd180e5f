// Messages by the mesh's carrier, past the connection. The sender says on the connection which
// piece goes next and gives it to the carrier; the receiver, which reads that, asks the carrier for
// it. Internal to net.
#pragma once

#include <array>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "penstock/net/carrier.h"
#include "penstock/net/path.h"

namespace penstock::net {

/// Takes messages with a part of at least MeshState::carrier_bytes once both sides have a carrier.
class CarrierPath : public Path {
 public:
  explicit CarrierPath(PathContext& context) : context_(context) {}

  void introduce() override;
  bool takes(const Outgoing& outgoing) const override;
  void send(Outgoing outgoing) override;
  bool on_frame(const FrameHeader& header, Bytes behind) override;
  void close_run(uint32_t run) override;
  void end() override {
    if (timer_) timer_->cancel();
  }

  /// Whether the carrier is to bring pieces that the peer has sent.
  bool is_coming() const { return coming_ > 0; }
  /// The peer has ended as it should, before those were there: it is lost once they are.
  void end_when_all_is_there();

 private:
  struct CarriedMessage {
    Outgoing message;
    int pieces = 0;  ///< that the carrier has
  };
  struct Lane {
    std::map<Order, Tag> waiting;  ///< messages of carried_ with bytes that no carrier has
    int carried = 0;               ///< pieces that the carrier has
    uint64_t sent = 0;             ///< pieces, ever
    uint64_t received = 0;
  };

  /// Gives the carrier the next pieces of the lane, the most urgent first.
  void carry_pieces(size_t lane);
  void announce(CarriedMessage& carried, size_t lane);
  void on_carried(const FrameHeader& header);
  void on_sent(const Tag& tag, size_t lane, size_t bytes, const std::string& error);
  void on_received(const Tag& tag, size_t bytes, const std::string& error);
  /// The connection says it better, if it breaks, too.
  void lose_later(const std::string& why);
  void end_if_carried(std::map<Tag, CarriedMessage>::iterator carried);
  /// A `done` that calls `then` on the mesh's thread.
  Carrier::Done on_mesh(std::function<void(const std::string& error)> then);

  PathContext& context_;
  bool carries_ = false;  ///< the peer
  Orders orders_;
  std::array<Lane, kCarrierLanes> lanes_;
  std::map<Tag, CarriedMessage> carried_;  ///< messages that go by the carrier
  int coming_ = 0;                         ///< pieces that the carrier is to bring
  bool has_ended_ = false;                 ///< the peer; lost when these are there
  std::unique_ptr<asio::steady_timer> timer_;
};

}  // namespace penstock::net
