// The TCP connection to one peer: frames in both directions, and pieces of messages between them,
// which go straight from and to their memory. Internal to net; runs on the mesh's thread.
//
//   Connection connection(std::move(stream), user, payload, state.long_waits);
//   connection.read();                                   // from now on
//   connection.put({.kind = FrameKind::Ping});           // before the next piece
//   connection.write();                                  // the payload has a piece now
#pragma once

#include <asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/net/bytes.h"
#include "penstock/net/frame.h"
#include "penstock/net/stream.h"

namespace penstock::net {

class Connection {
 public:
  /// Whom it tells.
  class User {
   public:
    virtual ~User() = default;
    /// What it throws ends the connection, with its text.
    virtual void on_frame(const FrameHeader& header, Bytes behind) = 0;
    /// Nothing can be read any more.
    virtual void on_end() = 0;
    /// The connection has been closed by lose().
    virtual void on_lost(const std::string& why) = 0;
    /// Keeps the user and the connection while something is under way.
    virtual std::shared_ptr<void> hold() = 0;
  };

  /// The bytes of messages.
  class Payload {
   public:
    struct Room {
      Memory memory;
      std::shared_ptr<const void> keep;  ///< owns it
    };
    virtual ~Payload() = default;
    virtual bool has_output() const = 0;
    /// Appends the frames of the next piece, and the memory that is to be written: `frames` and
    /// what is behind them. Returns the owner of the latter.
    virtual std::shared_ptr<const void> next_output(std::vector<std::byte>& frames,
                                                    std::vector<asio::const_buffer>& buffers) = 0;
    virtual void output_written() = 0;
    /// Bytes of a piece that are to be read before the next frame.
    virtual uint64_t expected() const = 0;
    /// Where the next of these go.
    virtual Room room() = 0;
    virtual void filled(size_t bytes) = 0;
  };

  Connection(std::unique_ptr<Stream> stream, User& user, Payload& payload, int& long_waits);

  void read();
  void put(const FrameHeader& header, Bytes behind = {});
  void write();
  /// Closes it and tells the user, once.
  void lose(const std::string& why);
  /// Takes no frame any more; says so to the peer when what there is has been written.
  void leave() { is_leaving_ = true; }
  /// Does it later, on the mesh's thread. Any thread may call it.
  void post(std::function<void()> then);
  std::shared_ptr<void> hold() { return user_.hold(); }

  bool is_open() const { return socket_.is_open(); }
  bool is_leaving() const { return is_leaving_; }
  bool takes_frames() const { return is_open() && !is_leaving_; }
  bool is_silent_for(std::chrono::milliseconds silence);
  /// This process has been stopped itself: nobody's silence counts.
  void forgive() { last_heard_ = std::chrono::steady_clock::now(); }
  asio::any_io_executor executor() { return socket_.get_executor(); }
  const asio::ip::address& local_address() const { return local_address_; }

 private:
  /// What has been read and not been used.
  struct Input {
    std::vector<std::byte> bytes;
    size_t begin = 0;
    size_t end = 0;
    size_t size() const { return end - begin; }
    /// Makes room for `needed` bytes from the beginning.
    void make_room(size_t needed);
  };

  /// The connection is readable when that many bytes are there.
  void read_at_least(size_t bytes);
  void on_read();
  void on_read_failure(const asio::error_code& error);
  void on_written(bool was_piece);
  /// Uses what lies in input_; false when a frame is not whole yet.
  bool take_frame();

  std::unique_ptr<Stream> stream_;
  asio::ip::tcp::socket& socket_;  ///< of the stream
  User& user_;
  Payload& payload_;
  int& long_waits_;
  asio::ip::address local_address_;
  bool is_leaving_ = false;
  std::chrono::steady_clock::time_point last_heard_;
  std::vector<std::byte> frames_;   ///< that wait to be written
  std::vector<std::byte> writing_;  ///< that are being written
  bool is_writing_ = false;
  std::vector<asio::const_buffer> buffers_;
  Input input_;
  size_t least_bytes_ = 1;  ///< of read_at_least()
  size_t unread_ = 0;       ///< bytes that the kernel had when silence was last looked for
};

/// Appends a header to frames that are to be written, and what is behind it.
void append_frame(std::vector<std::byte>& frames, const FrameHeader& header, Bytes behind = {});

}  // namespace penstock::net
