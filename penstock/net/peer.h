// Another rank of a mesh: which messages are posted, which way they go, and whether it is still
// there. Internal to net; everything is called with the mesh's mutex held.
//
//   connection.h   frames and pieces over the connection
//   message.h      the messages that go and come
//   host_link.h    frames through shared memory
//   path.h         the ways that bytes go: carrier_path.h, short_path.h, memory_path.h,
//                  pieces_path.h
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "penstock/net/carrier_path.h"
#include "penstock/net/connection.h"
#include "penstock/net/host_link.h"
#include "penstock/net/memory_path.h"
#include "penstock/net/mesh.h"
#include "penstock/net/message.h"
#include "penstock/net/pieces_path.h"
#include "penstock/net/short_path.h"

namespace penstock::net {

class Peer : public std::enable_shared_from_this<Peer>, private Connection::User {
 public:
  Peer(std::unique_ptr<Stream> stream, int rank, MeshState& state);

  void start();
  void tell(const std::string& note);
  void send(Outgoing outgoing);
  void receive(Tag tag, Place place, std::shared_ptr<Transfer> transfer);
  void close_run(uint32_t run);
  /// Goes on with messages, for a thread that waits. Whether something moved.
  bool look();
  /// The mesh's thread reads what there is and goes on copying it. False: nothing had come.
  bool go_on();
  /// A thread that has waited for the peer sleeps: wakes the peer for what it has not read yet.
  void ring_for_unread() { link_.ring_for_unread(); }
  /// Of the shared memory. Any thread may call these.
  void begin_watch() { link_.begin_watch(); }
  void end_watch() { link_.end_watch(); }
  bool has_input() const { return link_.has_input(); }
  /// Whether large messages cost the sender's thread no more than small ones.
  bool is_read() const { return memory_.is_read(); }
  /// Sends a ping; loses the peer when it has been silent for longer than `silence`.
  void beat(std::chrono::milliseconds silence);
  void forgive() { connection_.forgive(); }
  /// The mesh has a carrier now: the peer is told.
  void carry() { carrier_.introduce(); }
  /// Says goodbye and closes when everything has been written.
  void leave();
  /// Closes now, without a word to the handlers.
  void drop();

  bool is_open() const { return connection_.is_open(); }
  bool is_encrypted() const { return connection_.is_encrypted(); }
  const asio::ip::address& local_address() const { return connection_.local_address(); }
  ClockOffset offset() const { return {offset_ns_.load(), offset_error_ns_.load()}; }

 private:
  void on_frame(const FrameHeader& header, Bytes behind) override;
  void on_end() override;
  void on_lost(const std::string& why) override;
  std::shared_ptr<void> hold() override { return shared_from_this(); }

  /// Uses what has come through shared memory.
  bool read_link();
  void on_posted(const Tag& tag);
  void on_pong(const FrameHeader& header);
  /// The first that takes a message has it.
  std::array<Path*, 4> paths() { return {&carrier_, &short_, &memory_, &pieces_}; }
  void choose_path(Outgoing outgoing);

  int rank_;
  MeshState& state_;
  bool bye_ = false;  ///< the peer has said so
  std::atomic<int64_t> offset_ns_{0};
  std::atomic<int64_t> offset_error_ns_{INT64_MAX};
  Inbox inbox_;
  std::map<Tag, Outgoing> held_;  ///< whose receive is not posted yet
  std::set<Tag> posted_;          ///< whose send has not come yet
  PathContext context_;
  CarrierPath carrier_;
  ShortPath short_;
  MemoryPath memory_;
  PiecesPath pieces_;
  Connection connection_;
  HostLink link_;
};

}  // namespace penstock::net
