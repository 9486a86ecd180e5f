// One connection of a mesh: what is to be written, what has been posted, what is read. Internal to
// net. All of it runs on the mesh's thread.
#pragma once

#include <array>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/net/carrier.h"
#include "penstock/net/frame.h"
#include "penstock/net/mesh.h"
#include "penstock/net/same_host.h"

namespace penstock::net {

/// What the peers of a mesh share.
struct MeshState {
  Mesh::Handlers handlers;
  size_t piece_bytes = 0;
  bool same_host_memory = true;
  size_t same_host_bytes = 0;
  uint32_t closed_run = 0;
  std::atomic<int64_t> sent{0};
  std::atomic<int64_t> received{0};
  std::atomic<int64_t> sent_by_memory{0};
  std::atomic<int64_t> received_by_memory{0};
  std::atomic<int64_t> sent_by_carrier{0};
  std::atomic<int64_t> received_by_carrier{0};
  ReadPermission permission;
  std::unique_ptr<Carrier> carrier;
  size_t carrier_bytes = 0;  ///< of the smallest part that it moves
  /// Reads and writes under way that wait for more bytes than a network brings within microseconds.
  int long_waits = 0;
  bool is_broken = false;  ///< a peer was lost that had not ended as it should
};

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  Peer(asio::ip::tcp::socket socket, int rank, MeshState& state);

  void start();
  void tell(const std::string& note);
  void send(Tag tag, std::vector<Bytes> parts, std::shared_ptr<const void> keep, int urgency,
            std::shared_ptr<Transfer> transfer);
  void receive(Tag tag, Place place, std::shared_ptr<Transfer> transfer);
  void close_run(uint32_t run);
  /// Sends a ping; loses the peer when it has been silent for longer than `silence`.
  void beat(std::chrono::milliseconds silence);
  /// This process has been stopped itself: nobody's silence counts.
  void forgive() { last_heard_ = std::chrono::steady_clock::now(); }
  /// The mesh has a carrier now: the peer is told.
  void carry();
  /// Says goodbye and closes when everything has been written.
  void leave();
  /// Closes now, without a word to the handlers.
  void drop();

  bool is_open() const { return socket_.is_open(); }
  asio::ip::address local_address() const { return local_address_; }
  ClockOffset offset() const { return {offset_ns_.load(), offset_error_ns_.load()}; }

 private:
  struct Outgoing {
    Tag tag;
    std::vector<Bytes> parts;
    std::shared_ptr<const void> keep;
    int urgency = 0;
    std::shared_ptr<Transfer> transfer;
    bool begun = false;
    size_t part = 0;                  ///< the next byte to write: of this part
    size_t offset = 0;                ///< and at this place in it
    uint64_t left = 0;                ///< bytes to write
    int carried = 0;                  ///< pieces that the carrier has
    std::unique_ptr<Seal> seal = {};  ///< of an offer; the last, so that it ends before `keep`
  };
  struct Incoming {
    std::shared_ptr<const Place> place;
    std::shared_ptr<Transfer> transfer;
    bool begun = false;
    std::vector<Memory> parts;
    size_t part = 0;
    size_t offset = 0;
    uint64_t left = 0;           ///< bytes that are not there
    uint64_t announced = 0;      ///< of these: the carrier brings them
    std::optional<Offer> offer;  ///< it is copied from there
  };
  /// Most urgent first, then in the order of send().
  using Order = std::pair<int64_t, uint64_t>;

  void lose(const std::string& why);
  void put(const FrameHeader& header, Bytes behind = {});
  void write();
  void make_ready(Outgoing outgoing);
  /// The next piece of the transfer as buffers to write.
  void add_piece(Outgoing& outgoing);

  void read();
  /// The connection is readable when that many bytes are there.
  void read_at_least(size_t bytes);
  /// Uses what lies in input_; false when a frame is not whole yet.
  bool take_frame();
  void on_frame(const FrameHeader& header, Bytes behind);
  void begin_message(const Tag& tag, const std::vector<uint64_t>& sizes);
  /// Memory for the next bytes of the piece that is being read.
  Memory next_memory();
  void filled(size_t bytes);
  void end_if_complete(std::map<Tag, Incoming>::iterator incoming);

  // Between ranks of one host (peer_memory.cpp). Each tells the other where it is and that it may
  // look; who can read the other says so, and is then offered messages: it copies them itself.
  void introduce();
  void on_process(Bytes behind);
  void on_look();
  bool may_offer(const Outgoing& outgoing) const;
  void offer(Outgoing outgoing);
  void on_answer(const Tag& tag, bool taken);
  /// Ends the transfer as Closed.
  static void withdraw(Outgoing& outgoing);
  void on_offer(const Tag& tag, Bytes behind);
  void copy_later();
  void copy_piece();
  /// False when the memory cannot be read.
  bool copy_some(Incoming& incoming);
  void close_offers(uint32_t run);

  // By the carrier (peer_carrier.cpp). The sender says which piece goes next and gives it to the
  // carrier; the receiver, which reads that, asks the carrier for it.
  bool may_carry(const Outgoing& outgoing) const;
  void carry(Outgoing outgoing);
  /// Gives the carrier the next pieces of the lane, the most urgent first.
  void carry_pieces(size_t lane);
  void announce(Outgoing& outgoing, size_t lane);
  void on_carried(const FrameHeader& header);
  void sent_by_carrier(const Tag& tag, size_t lane, size_t bytes, const std::string& error);
  void received_by_carrier(const Tag& tag, size_t bytes, const std::string& error);
  /// The connection says it better, if it breaks, too.
  void carrier_failed(const std::string& error);
  void lose_later(const std::string& why);
  /// Nothing can be read any more.
  void on_connection_end();
  void end_if_carried(std::map<Tag, Outgoing>::iterator outgoing);
  void close_carried(uint32_t run);
  /// A `done` that calls `then` on the mesh's thread.
  Carrier::Done on_mesh(std::function<void(const std::string& error)> then);

  asio::ip::tcp::socket socket_;
  int rank_;
  MeshState& state_;
  bool lost_ = false;
  bool leaving_ = false;
  bool bye_ = false;  ///< the peer has said so
  std::chrono::steady_clock::time_point last_heard_;
  std::atomic<int64_t> offset_ns_{0};
  std::atomic<int64_t> offset_error_ns_{INT64_MAX};

  std::vector<std::byte> urgent_;   ///< frames that wait to be written
  std::vector<std::byte> writing_;  ///< frames that are being written
  bool is_writing_ = false;
  std::vector<asio::const_buffer> buffers_;
  uint64_t next_order_ = 0;
  std::map<Order, Outgoing> ready_;
  Order current_ = {};            ///< the transfer of which a piece is being written
  std::map<Tag, Outgoing> held_;  ///< whose receive is not posted yet
  std::set<Tag> posted_;          ///< whose send has not come yet

  std::map<Tag, Incoming> incoming_;
  std::vector<std::byte> input_;
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  size_t least_bytes_ = 1;          ///< of read_at_least()
  size_t unread_ = 0;               ///< bytes that the kernel had at the last beat
  bool reads_straight_ = false;     ///< a read into the memory of piece_tag_ is under way
  std::optional<Incoming> closed_;  ///< keeps that memory when its run is closed meanwhile
  Tag piece_tag_ = {};
  uint64_t piece_left_ = 0;           ///< bytes of a piece that are still to come
  std::vector<std::byte> discarded_;  ///< where bytes of closed runs go

  Seal nonce_;                            ///< what the peer has to find in this process
  std::optional<ProcessCard> peer_card_;  ///< of a peer that may be on this host
  std::optional<RemoteMemory> memory_;    ///< of the peer, once it has been read
  bool is_read_ = false;                  ///< by the peer
  std::map<Tag, Outgoing> offered_;       ///< until the peer answers
  std::map<Order, Tag> to_copy_;          ///< messages in incoming_ that the peer has offered
  bool is_copying_ = false;               ///< the next piece is to be copied soon

  struct Lane {
    std::map<Order, Tag> waiting;  ///< messages of carried_ with bytes that no carrier has
    int carried = 0;               ///< pieces that the carrier has
    uint64_t sent = 0;             ///< pieces, ever
    uint64_t received = 0;
  };
  asio::ip::address local_address_;
  bool carries_ = false;  ///< the peer
  std::array<Lane, kCarrierLanes> lanes_;
  std::map<Tag, Outgoing> carried_;  ///< messages that go by the carrier
  int coming_ = 0;                   ///< pieces that the carrier is to bring
  bool has_ended_ = false;           ///< the peer; lost when these are there
  std::unique_ptr<asio::steady_timer> carrier_timer_;
};

}  // namespace penstock::net
