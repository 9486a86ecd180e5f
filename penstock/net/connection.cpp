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
/// Reads in a row; whatever else the mesh's thread has to do comes then.
constexpr int kMostReads = 16;
/// Bytes that are written in a row: what the other rank asks for meanwhile may be urgent, and is
/// read after them, even while the kernel takes all that comes.
constexpr size_t kMostWritten = 1 << 20;
/// No note and no list of sizes is larger: what is, is no frame of ours.
constexpr uint64_t kMostBehind = uint64_t{1} << 31;

/// Whether all that is behind the header must be there before the frame can be used.
bool is_whole(FrameKind kind) {
  return kind == FrameKind::Note || kind == FrameKind::Sizes || kind == FrameKind::Process ||
         kind == FrameKind::Offer || kind == FrameKind::Into || kind == FrameKind::Given;
}

/// Whether it concerns messages alone, so that any thread may use it.
bool is_of_message(FrameKind kind) {
  return goes_through_memory(kind) || kind == FrameKind::Sizes || kind == FrameKind::Piece ||
         kind == FrameKind::Bell;
}

bool is_not_yet(const asio::error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again ||
         error == asio::error::interrupted;
}

/// Takes the first bytes away.
void drop_first(std::vector<asio::const_buffer>& buffers, size_t bytes) {
  size_t whole = 0;
  while (whole < buffers.size() && bytes >= buffers[whole].size()) bytes -= buffers[whole++].size();
  buffers.erase(buffers.begin(), buffers.begin() + static_cast<std::ptrdiff_t>(whole));
  if (!buffers.empty()) buffers.front() += bytes;
}

}  // namespace

void append_frame(std::vector<std::byte>& frames, const FrameHeader& header, Bytes behind) {
  const auto* begin = reinterpret_cast<const std::byte*>(&header);
  frames.insert(frames.end(), begin, begin + sizeof header);
  frames.insert(frames.end(), behind.begin(), behind.end());
}

Connection::Connection(std::unique_ptr<Stream> stream, User& user, Payload& payload,
                       MeshMutex& mutex)
    : stream_(std::move(stream)),
      socket_(stream_->socket()),
      user_(user),
      payload_(payload),
      mutex_(mutex),
      last_heard_(std::chrono::steady_clock::now()),
      input_{.bytes = std::vector<std::byte>(kInputBytes)} {
  asio::error_code ignored;
  local_address_ = socket_.local_endpoint(ignored).address();
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  // What has been written cannot be overtaken: little more than what the network takes at once.
  setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent,
             sizeof kMostUnsent);
  if (!is_encrypted()) socket_.non_blocking(true, ignored);
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
  asio::post(socket_.get_executor(), [this, hold = user_.hold(), then = std::move(then)] {
    const std::lock_guard lock(mutex_);
    then();
  });
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
  size_t written = 0;
  while (!is_writing_ && is_open() && has_output()) {
    next_output();
    is_writing_ = true;
    written += asio::buffer_size(output_.buffers);
    if (written > kMostWritten || !write_now()) return write_later();
    on_written();
  }
}

void Connection::next_output() {
  output_.frames.clear();
  output_.buffers.clear();
  output_.is_piece = frames_.empty();
  if (output_.is_piece) {
    output_.keep = payload_.next_output(output_.frames, output_.buffers);
  } else {
    output_.frames.swap(frames_);
    output_.buffers.emplace_back(output_.frames.data(), output_.frames.size());
  }
}

bool Connection::write_now() {
  if (is_encrypted()) return false;
  asio::error_code error;  // met again by the mesh's thread
  drop_first(output_.buffers, socket_.write_some(output_.buffers, error));
  return output_.buffers.empty();
}

void Connection::write_later() {
  stream_->before_write(asio::buffer_size(output_.buffers));
  stream_->use([&](auto& layer) {
    asio::async_write(layer, output_.buffers,
                      [this, hold = user_.hold()](const asio::error_code& error, size_t) {
                        const std::lock_guard lock(mutex_);
                        if (!is_open()) return;
                        if (error) return lose("closed the connection");
                        on_written();
                        write();
                      });
  });
}

void Connection::on_written() {
  is_writing_ = false;
  output_.keep.reset();
  if (output_.is_piece) payload_.output_written();
  end_output_if_leaving();
}

void Connection::leave() {
  is_leaving_ = true;
  end_output_if_leaving();
}

void Connection::end_output_if_leaving() {
  if (!is_leaving_ || is_writing_ || !frames_.empty()) return;
  // Not closed yet: closing with unread input would take back what was sent.
  asio::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  is_writing_ = true;  // nothing is written any more
}

// ---- reading

void Connection::read() {
  if (is_encrypted())
    read_encrypted();
  else
    wait_for_input();
}

void Connection::wait_for_input() {
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [this, hold = user_.hold()](const asio::error_code& error) {
                       const std::lock_guard lock(mutex_);
                       if (!is_open()) return;
                       if (error) return on_read_failure(error);
                       if (read_what_is_there(Reader::Mesh)) wait_for_input();
                     });
}

void Connection::look() {
  if (is_open() && !is_left_to_mesh_) read_what_is_there(Reader::Waiter);
}

bool Connection::read_what_is_there(Reader reader) {
  for (int reads = 0; reads < kMostReads && is_open(); ++reads) {
    const bool straight = is_straight();
    const Payload::Room room = next_room();
    if (room.memory.empty()) break;
    asio::error_code error;
    const size_t bytes =
        socket_.read_some(asio::mutable_buffer(room.memory.data(), room.memory.size()), error);
    if (is_not_yet(error)) break;
    if (error) {
      if (reader == Reader::Mesh) on_read_failure(error);
      return false;
    }
    on_input(straight, bytes);
    take_frames(reader);
    if (reader == Reader::Waiter && is_left_to_mesh_) break;
  }
  if (!is_open()) return false;
  read_at_least(is_straight() ? std::min<uint64_t>(payload_.expected(), kLeastRead) : 1);
  return true;
}

void Connection::read_encrypted() {
  const bool straight = is_straight();
  const Payload::Room room = next_room();
  auto then = [this, hold = user_.hold(), keep = room.keep, straight](const asio::error_code& error,
                                                                      size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!is_open()) return;
    if (error) return on_read_failure(error);
    on_input(straight, bytes);
    take_frames(Reader::Mesh);
    if (is_open()) read_encrypted();
  };
  stream_->use([&](auto& layer) {
    layer.async_read_some(asio::mutable_buffer(room.memory.data(), room.memory.size()),
                          std::move(then));
  });
}

Connection::Payload::Room Connection::next_room() {
  if (is_straight()) return payload_.room();
  return {.memory = Memory(input_.bytes).subspan(input_.end), .keep = nullptr};
}

void Connection::on_input(bool was_straight, size_t bytes) {
  forgive();
  if (was_straight)
    payload_.filled(bytes);
  else
    input_.end += bytes;
}

void Connection::on_read_failure(const asio::error_code& error) {
  if (stream_->is_forged(error))
    lose(fmt::format("sent what nobody has encrypted for this rank: {}", error.message()));
  else
    user_.on_end();
}

void Connection::take_frames(Reader reader) {
  try {
    while (take_frame(reader)) {
    }
  } catch (const std::exception& failure) {
    if (reader == Reader::Mesh) return lose(failure.what());
    leave_to_mesh([this, why = std::string(failure.what())] { lose(why); });
  }
}

void Connection::leave_to_mesh(std::function<void()> then) {
  is_left_to_mesh_ = true;
  post([this, then = std::move(then)] {
    is_left_to_mesh_ = false;
    then();
  });
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

bool Connection::take_frame(Reader reader) {
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
    if (reader == Reader::Waiter && !is_of_message(header.kind)) {
      leave_to_mesh([this] { take_frames(Reader::Mesh); });
      return false;
    }
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
