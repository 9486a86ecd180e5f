#include "penstock/net/connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/post.hpp>
#include <asio/write.hpp>
#include <cstring>

#include "penstock/util/error.h"

namespace penstock::net {

namespace {

constexpr size_t kInputBytes = 64 << 10;
/// Bytes that the kernel may hold before they go to the network.
constexpr int kMostUnsent = 512 << 10;
/// Of a large message, this much is read at a time: to be woken for every packet takes the cores
/// from those who compute.
constexpr size_t kLeastRead = 128 << 10;
constexpr size_t kReceiveBuffer = 1 << 20;
/// Reads and writes of more bytes than this are long waits (MeshState).
constexpr size_t kLongWait = 64 << 10;
/// No note and no list of sizes is larger: what is, is no frame of ours.
constexpr uint64_t kMostBehind = uint64_t{1} << 31;

/// Whether all that is behind the header must be there before the frame can be used.
bool is_whole(FrameKind kind) {
  return kind == FrameKind::Note || kind == FrameKind::Sizes || kind == FrameKind::Process ||
         kind == FrameKind::Offer;
}

}  // namespace

void append_frame(std::vector<std::byte>& frames, const FrameHeader& header, Bytes behind) {
  const auto* begin = reinterpret_cast<const std::byte*>(&header);
  frames.insert(frames.end(), begin, begin + sizeof header);
  frames.insert(frames.end(), behind.begin(), behind.end());
}

Connection::Connection(std::unique_ptr<Stream> stream, User& user, Payload& payload,
                       int& long_waits)
    : stream_(std::move(stream)),
      socket_(stream_->socket()),
      user_(user),
      payload_(payload),
      long_waits_(long_waits),
      last_heard_(std::chrono::steady_clock::now()),
      input_{.bytes = std::vector<std::byte>(kInputBytes)} {
  asio::error_code ignored;
  local_address_ = socket_.local_endpoint(ignored).address();
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  // What has been written cannot be overtaken: little more than what the network takes at once.
  setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent,
             sizeof kMostUnsent);
  // Makes the kernel's buffer for what has come at least as large, without fixing its size: a new
  // connection has 128 KiB, and while those are full, the sender stops.
  read_at_least(kReceiveBuffer);
  read_at_least(1);
}

void Connection::lose(const std::string& why) {
  if (!is_open()) return;
  asio::error_code ignored;
  socket_.close(ignored);
  user_.on_lost(why);
}

void Connection::post(std::function<void()> then) {
  asio::post(socket_.get_executor(), [hold = user_.hold(), then = std::move(then)] { then(); });
}

bool Connection::is_silent_for(std::chrono::milliseconds silence) {
  // On a slow connection a read may wait for longer than that, while bytes come.
  asio::error_code ignored;
  const size_t unread = socket_.available(ignored);
  if (unread != unread_) forgive();
  unread_ = unread;
  return std::chrono::steady_clock::now() - last_heard_ > silence;
}

// ---- writing

void Connection::put(const FrameHeader& header, Bytes behind) {
  if (!takes_frames()) return;
  append_frame(frames_, header, behind);
  write();
}

void Connection::write() {
  if (is_writing_ || !is_open() || (frames_.empty() && !payload_.has_output())) return;
  writing_.clear();
  buffers_.clear();
  const bool is_piece = frames_.empty();
  std::shared_ptr<const void> keep;
  if (is_piece) {
    keep = payload_.next_output(writing_, buffers_);
  } else {
    writing_.swap(frames_);
    buffers_.emplace_back(writing_.data(), writing_.size());
  }
  is_writing_ = true;
  const int long_wait = asio::buffer_size(buffers_) > kLongWait ? 1 : 0;
  long_waits_ += long_wait;
  auto then = [this, hold = user_.hold(), keep = std::move(keep), is_piece, long_wait](
                  const asio::error_code& error, size_t) {
    long_waits_ -= long_wait;
    is_writing_ = false;
    if (!is_open()) return;
    if (error)
      lose("closed the connection");
    else
      on_written(is_piece);
  };
  stream_->before_write(asio::buffer_size(buffers_));
  stream_->use([&](auto& layer) { asio::async_write(layer, buffers_, std::move(then)); });
}

void Connection::on_written(bool was_piece) {
  if (was_piece) payload_.output_written();
  if (is_leaving_ && frames_.empty()) {
    // Not closed yet: closing with unread input would take back what was sent.
    asio::error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    return;
  }
  write();
}

// ---- reading

void Connection::read() {
  // A piece goes straight to its place once nothing of it lies in input_.
  const uint64_t expected = payload_.expected();
  const bool straight = expected > 0 && input_.size() == 0;
  Payload::Room room;
  if (straight)
    room = payload_.room();
  else
    room.memory = Memory(input_.bytes).subspan(input_.end);
  // Of what is encrypted some may have been read already.
  const bool may_wait = straight && stream_->tls() == TlsKind::Off;
  read_at_least(may_wait ? std::min<uint64_t>(expected, kLeastRead) : 1);
  const int long_wait = expected > kLongWait ? 1 : 0;
  long_waits_ += long_wait;
  auto then = [this, hold = user_.hold(), keep = std::move(room.keep), straight, long_wait](
                  const asio::error_code& error, size_t bytes) {
    long_waits_ -= long_wait;
    if (!is_open()) return;
    if (error) return on_read_failure(error);
    forgive();
    if (straight)
      payload_.filled(bytes);
    else
      input_.end += bytes;
    on_read();
  };
  stream_->use([&](auto& layer) {
    layer.async_read_some(asio::mutable_buffer(room.memory.data(), room.memory.size()),
                          std::move(then));
  });
}

void Connection::on_read_failure(const asio::error_code& error) {
  if (stream_->is_forged(error))
    lose(fmt::format("sent what nobody has encrypted for this rank: {}", error.message()));
  else
    user_.on_end();
}

void Connection::on_read() {
  try {
    while (take_frame()) {
    }
  } catch (const std::exception& failure) {
    lose(failure.what());
  }
  if (is_open()) read();
}

void Connection::read_at_least(size_t bytes) {
  if (bytes == least_bytes_) return;
  const int least = static_cast<int>(bytes);  // if it is refused, nothing depends on it but time
  setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
  least_bytes_ = bytes;
}

void Connection::Input::make_room(size_t needed) {
  if (begin > 0) {
    std::memmove(bytes.data(), bytes.data() + begin, size());
    end -= begin;
    begin = 0;
  }
  // Step by step, so that a length that is wrong takes no memory before its bytes come.
  if (needed > bytes.size() && end == bytes.size())
    bytes.resize(std::min<size_t>(needed, bytes.size() * 2));
}

bool Connection::take_frame() {
  const size_t available = input_.size();
  const std::byte* const begin = input_.bytes.data() + input_.begin;
  if (!is_open()) return false;
  if (payload_.expected() > 0) {
    if (available == 0) return false;
    const Memory memory = payload_.room().memory;
    const size_t count = std::min(available, memory.size());
    std::memcpy(memory.data(), begin, count);
    input_.begin += count;
    payload_.filled(count);
    return true;
  }
  FrameHeader header;
  size_t needed = sizeof header;
  if (available >= needed) {
    std::memcpy(&header, begin, sizeof header);
    if (is_whole(header.kind)) {
      if (header.bytes > kMostBehind)
        throw TransportError(fmt::format("sent a frame of {} bytes", header.bytes));
      needed += header.bytes;
    }
  }
  if (available < needed) {
    input_.make_room(needed);
    return false;
  }
  input_.begin += needed;
  user_.on_frame(header, Bytes(begin + sizeof header, needed - sizeof header));
  return true;
}

}  // namespace penstock::net
