// The TCP connection to one peer: frames in both directions, and pieces of messages between them,
// which go straight from and to their memory. Internal to net; everything is called with the mesh's
// mutex held. What can be written or read at once is, by whoever calls; the rest, and everything
// that is encrypted, by the mesh's thread.
//
//   Connection connection(std::move(stream), user, payload, state.mutex);
//   connection.read();                                   // from now on, on the mesh's thread
//   connection.put({.kind = FrameKind::Ping});           // before the next piece
//   connection.write();                                  // the payload has a piece now
//   connection.look();                                   // a thread that waits reads what has come
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
#include "penstock/net/mesh_mutex.h"
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

  Connection(std::unique_ptr<Stream> stream, User& user, Payload& payload, MeshMutex& mutex);

  void read();
  /// Uses the messages that have come. What concerns more than a message (a note, an end, an error)
  /// is left to the mesh's thread.
  void look();
  void put(const FrameHeader& header, Bytes behind = {});
  void write();
  /// Closes it and tells the user, once.
  void lose(const std::string& why);
  /// Takes no frame any more; says so to the peer when what there is has been written.
  void leave();
  /// Does it later, on the mesh's thread, with the mutex held. Any thread may call it.
  void post(std::function<void()> then);
  std::shared_ptr<void> hold() { return user_.hold(); }

  bool is_open() const { return socket_.is_open(); }
  bool is_encrypted() const { return stream_->tls() != TlsKind::Off; }
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

  enum class Reader : uint8_t { Mesh, Waiter };
  /// What is being written.
  struct Output {
    std::vector<std::byte> frames;
    std::vector<asio::const_buffer> buffers;
    std::shared_ptr<const void> keep;
    bool is_piece = false;
  };

  bool has_output() const { return !frames_.empty() || payload_.has_output(); }
  void next_output();
  /// Whether all of it has gone.
  bool write_now();
  void write_later();
  void on_written();
  void end_output_if_leaving();

  /// The connection is readable when that many bytes are there.
  void read_at_least(size_t bytes);
  void wait_for_input();
  void read_encrypted();
  bool is_straight() const { return payload_.expected() > 0 && input_.size() == 0; }
  /// Where the next bytes go: a piece straight to its place, once nothing of it lies in input_.
  Payload::Room next_room();
  void on_input(bool was_straight, size_t bytes);
  /// False: there will be nothing more to read.
  bool read_what_is_there(Reader reader);
  void on_read_failure(const asio::error_code& error);
  void take_frames(Reader reader);
  /// Uses what lies in input_; false when a frame is not whole yet, or not for this reader.
  bool take_frame(Reader reader);
  void leave_to_mesh(std::function<void()> then);

  std::unique_ptr<Stream> stream_;
  asio::ip::tcp::socket& socket_;  ///< of the stream
  User& user_;
  Payload& payload_;
  MeshMutex& mutex_;
  asio::ip::address local_address_;
  bool is_leaving_ = false;
  std::chrono::steady_clock::time_point last_heard_;
  std::vector<std::byte> frames_;  ///< that wait to be written
  Output output_;
  bool is_writing_ = false;
  Input input_;
  bool is_left_to_mesh_ = false;  ///< what lies in input_
  size_t least_bytes_ = 1;        ///< of read_at_least()
  size_t unread_ = 0;             ///< bytes that the kernel had when silence was last looked for
};

/// Appends a header to frames that are to be written, and what is behind it.
void append_frame(std::vector<std::byte>& frames, const FrameHeader& header, Bytes behind = {});

}  // namespace penstock::net
