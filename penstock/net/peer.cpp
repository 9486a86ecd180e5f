#include "penstock/net/peer.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/write.hpp>
#include <cstring>
#include <limits>

#include "penstock/util/error.h"
#include "penstock/util/steady_ns.h"

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

Peer::Peer(asio::ip::tcp::socket socket, int rank, MeshState& state)
    : socket_(std::move(socket)),
      rank_(rank),
      state_(state),
      last_heard_(std::chrono::steady_clock::now()),
      input_(kInputBytes) {
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

void Peer::start() {
  forgive();
  put({.kind = FrameKind::Ping, .clock = steady_ns()});
  if (state_.same_host_memory) introduce();
  read();
}

void Peer::lose(const std::string& why) {
  if (lost_) return;
  lost_ = true;
  asio::error_code ignored;
  socket_.close(ignored);
  for (auto& [order, outgoing] : ready_) outgoing.transfer->end(Transfer::Result::Closed);
  for (auto& [tag, outgoing] : held_) outgoing.transfer->end(Transfer::Result::Closed);
  for (auto& [tag, outgoing] : offered_) withdraw(outgoing);
  for (auto& [tag, incoming] : incoming_) incoming.transfer->end(Transfer::Result::Closed);
  close_carried(UINT32_MAX);
  if (carrier_timer_) carrier_timer_->cancel();
  if (!bye_ && !leaving_) state_.is_broken = true;
  // Of a rank that ends as it should, what the carrier has ends by itself; the carrier may only not
  // have noticed yet.
  if (state_.carrier && !leaving_ && (!bye_ || coming_ > 0)) state_.carrier->lose(rank_);
  if (!is_writing_) ready_.clear();
  held_.clear();
  offered_.clear();
  to_copy_.clear();
  incoming_.clear();
  if (!leaving_) state_.handlers.lost(rank_, why);
}

void Peer::drop() {
  leaving_ = true;
  if (!lost_) state_.is_broken = true;
  lose({});
}

void Peer::leave() {
  put({.kind = FrameKind::Bye});
  leaving_ = true;
}

void Peer::beat(std::chrono::milliseconds silence) {
  if (lost_) return;
  // On a slow connection a read may wait for longer than that, while bytes come.
  asio::error_code ignored;
  const size_t unread = socket_.available(ignored);
  if (unread != unread_) forgive();
  unread_ = unread;
  if (std::chrono::steady_clock::now() - last_heard_ > silence) {
    const double seconds = std::chrono::duration<double>(silence).count();
    lose(bye_ ? fmt::format("has ended, but not closed its connection for {:.1f} s", seconds)
              : fmt::format("has not answered for {:.1f} s", seconds));
    return;
  }
  if (!bye_) put({.kind = FrameKind::Ping, .clock = steady_ns()});
}

// ---- writing

void Peer::put(const FrameHeader& header, Bytes behind) {
  if (lost_ || leaving_) return;
  const auto* begin = reinterpret_cast<const std::byte*>(&header);
  urgent_.insert(urgent_.end(), begin, begin + sizeof header);
  urgent_.insert(urgent_.end(), behind.begin(), behind.end());
  write();
}

void Peer::tell(const std::string& note) {
  put({.kind = FrameKind::Note, .bytes = note.size()}, std::as_bytes(std::span(note)));
}

void Peer::send(Tag tag, std::vector<Bytes> parts, std::shared_ptr<const void> keep, int urgency,
                std::shared_ptr<Transfer> transfer) {
  if (lost_ || tag.run <= state_.closed_run) {
    transfer->end(Transfer::Result::Closed);
    return;
  }
  Outgoing outgoing{.tag = tag,
                    .parts = std::move(parts),
                    .keep = std::move(keep),
                    .urgency = urgency,
                    .transfer = std::move(transfer)};
  for (const Bytes& part : outgoing.parts) outgoing.left += part.size();
  if (posted_.erase(tag) == 0) {
    held_.insert_or_assign(tag, std::move(outgoing));
    return;
  }
  make_ready(std::move(outgoing));
}

void Peer::make_ready(Outgoing outgoing) {
  if (may_carry(outgoing)) {
    carry(std::move(outgoing));
    return;
  }
  if (may_offer(outgoing)) {
    offer(std::move(outgoing));
    return;
  }
  const Order order{-int64_t{outgoing.urgency}, next_order_++};
  ready_.emplace(order, std::move(outgoing));
  write();
}

void Peer::add_piece(Outgoing& outgoing) {
  // The frames of this write lie in writing_; what is behind them in the sender's own memory.
  if (!outgoing.begun) {
    outgoing.begun = true;
    std::vector<uint64_t> sizes;
    sizes.reserve(outgoing.parts.size());
    for (const Bytes& part : outgoing.parts)
      sizes.push_back(part.data() == nullptr ? kAbsent : part.size());
    const FrameHeader header{
        .kind = FrameKind::Sizes, .tag = outgoing.tag, .bytes = sizes.size() * sizeof(uint64_t)};
    const auto* begin = reinterpret_cast<const std::byte*>(&header);
    writing_.insert(writing_.end(), begin, begin + sizeof header);
    const Bytes bytes = std::as_bytes(std::span(sizes));
    writing_.insert(writing_.end(), bytes.begin(), bytes.end());
  }
  const uint64_t length = std::min<uint64_t>(outgoing.left, state_.piece_bytes);
  if (length > 0) {
    const FrameHeader header{.kind = FrameKind::Piece, .tag = outgoing.tag, .bytes = length};
    const auto* begin = reinterpret_cast<const std::byte*>(&header);
    writing_.insert(writing_.end(), begin, begin + sizeof header);
  }
  buffers_.emplace_back(writing_.data(), writing_.size());
  for (uint64_t left = length; left > 0;) {
    const Bytes part = outgoing.parts[outgoing.part];
    const size_t count = std::min<uint64_t>(left, part.size() - outgoing.offset);
    if (count > 0) buffers_.emplace_back(part.data() + outgoing.offset, count);
    outgoing.offset += count;
    left -= count;
    if (outgoing.offset == part.size()) {
      ++outgoing.part;
      outgoing.offset = 0;
    }
  }
  outgoing.left -= length;
  state_.sent += static_cast<int64_t>(length);
}

void Peer::write() {
  if (is_writing_ || lost_ || (urgent_.empty() && ready_.empty())) return;
  writing_.clear();
  buffers_.clear();
  bool piece = false;
  if (!urgent_.empty()) {
    writing_.swap(urgent_);
    buffers_.emplace_back(writing_.data(), writing_.size());
  } else {
    current_ = ready_.begin()->first;
    add_piece(ready_.begin()->second);
    piece = true;
  }
  is_writing_ = true;
  const int long_wait = asio::buffer_size(buffers_) > kLongWait ? 1 : 0;
  state_.long_waits += long_wait;
  asio::async_write(
      socket_, buffers_,
      [self = shared_from_this(), piece, long_wait](const asio::error_code& error, size_t) {
        self->state_.long_waits -= long_wait;
        self->is_writing_ = false;
        if (self->lost_) {
          self->ready_.clear();
          return;
        }
        if (error) {
          self->lose("closed the connection");
          return;
        }
        if (piece) {
          const auto found = self->ready_.find(self->current_);
          const bool closed = found->second.tag.run <= self->state_.closed_run;
          if (found->second.left == 0 || closed) {
            const auto transfer = std::move(found->second.transfer);
            self->ready_.erase(found);
            transfer->end(Transfer::Result::Done);
          }
        }
        if (self->leaving_ && self->urgent_.empty()) {
          // Not closed yet: closing with unread input would take back what was sent.
          asio::error_code ignored;
          self->socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
          return;
        }
        self->write();
      });
}

// ---- reading

void Peer::receive(Tag tag, Place place, std::shared_ptr<Transfer> transfer) {
  if (lost_ || tag.run <= state_.closed_run) {
    transfer->end(Transfer::Result::Closed);
    return;
  }
  Incoming incoming;
  incoming.place = std::make_shared<const Place>(std::move(place));
  incoming.transfer = std::move(transfer);
  incoming_.insert_or_assign(tag, std::move(incoming));
  put({.kind = FrameKind::Posted, .tag = tag});
}

Memory Peer::next_memory() {
  const auto found = incoming_.find(piece_tag_);
  if (found == incoming_.end()) {
    discarded_.resize(kInputBytes);
    return Memory(discarded_).first(std::min<uint64_t>(piece_left_, discarded_.size()));
  }
  Incoming& incoming = found->second;
  while (incoming.offset == incoming.parts[incoming.part].size()) {
    ++incoming.part;
    incoming.offset = 0;
  }
  const Memory part = incoming.parts[incoming.part].subspan(incoming.offset);
  return part.first(std::min<uint64_t>(piece_left_, part.size()));
}

void Peer::filled(size_t bytes) {
  piece_left_ -= bytes;
  const auto found = incoming_.find(piece_tag_);
  if (found == incoming_.end()) return;
  state_.received += static_cast<int64_t>(bytes);
  found->second.offset += bytes;
  found->second.left -= bytes;
  end_if_complete(found);
}

void Peer::end_if_complete(std::map<Tag, Incoming>::iterator incoming) {
  if (incoming->second.left > 0) return;
  const auto transfer = std::move(incoming->second.transfer);
  incoming_.erase(incoming);
  transfer->end(Transfer::Result::Done);
}

void Peer::read() {
  // A piece goes straight to its place once nothing of it lies in input_.
  const bool straight = piece_left_ > 0 && input_begin_ == input_end_;
  asio::mutable_buffer buffer;
  reads_straight_ = straight;
  if (straight) {
    const Memory memory = next_memory();
    buffer = asio::mutable_buffer(memory.data(), memory.size());
  } else {
    buffer = asio::mutable_buffer(input_.data() + input_end_, input_.size() - input_end_);
  }
  read_at_least(straight ? std::min<uint64_t>(piece_left_, kLeastRead) : 1);
  const int long_wait = piece_left_ > kLongWait ? 1 : 0;
  state_.long_waits += long_wait;
  socket_.async_read_some(buffer, [self = shared_from_this(), straight, long_wait](
                                      const asio::error_code& error, size_t bytes) {
    self->state_.long_waits -= long_wait;
    self->reads_straight_ = false;
    self->closed_.reset();
    if (self->lost_) return;
    if (error) {
      self->on_connection_end();
      return;
    }
    self->last_heard_ = std::chrono::steady_clock::now();
    if (straight)
      self->filled(bytes);
    else
      self->input_end_ += bytes;
    try {
      while (self->take_frame()) {
      }
    } catch (const std::exception& failure) {
      self->lose(failure.what());
    }
    if (!self->lost_) self->read();
  });
}

void Peer::read_at_least(size_t bytes) {
  if (bytes == least_bytes_) return;
  const int least = static_cast<int>(bytes);  // if it is refused, nothing depends on it but time
  setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
  least_bytes_ = bytes;
}

bool Peer::take_frame() {
  const size_t available = input_end_ - input_begin_;
  if (lost_) return false;
  if (piece_left_ > 0) {
    if (available == 0) return false;
    const Memory memory = next_memory();
    const size_t count = std::min(available, memory.size());
    std::memcpy(memory.data(), input_.data() + input_begin_, count);
    input_begin_ += count;
    filled(count);
    return true;
  }
  if (available == 0) input_begin_ = input_end_ = 0;
  FrameHeader header;
  size_t needed = sizeof header;
  if (available >= needed) {
    std::memcpy(&header, input_.data() + input_begin_, sizeof header);
    if (is_whole(header.kind)) {
      if (header.bytes > kMostBehind)
        throw TransportError(fmt::format("sent a frame of {} bytes", header.bytes));
      needed += header.bytes;
    }
  }
  if (available < needed) {
    // Room for the rest, from the beginning.
    if (input_begin_ > 0) {
      std::memmove(input_.data(), input_.data() + input_begin_, available);
      input_begin_ = 0;
      input_end_ = available;
    }
    // Step by step, so that a length that is wrong takes no memory before its bytes come.
    if (needed > input_.size() && input_end_ == input_.size())
      input_.resize(std::min<size_t>(needed, input_.size() * 2));
    return false;
  }
  const Bytes behind(input_.data() + input_begin_ + sizeof header, needed - sizeof header);
  input_begin_ += needed;
  on_frame(header, behind);
  return true;
}

void Peer::on_frame(const FrameHeader& header, Bytes behind) {
  switch (header.kind) {
    case FrameKind::Note:
      state_.handlers.note(
          rank_, std::string(reinterpret_cast<const char*>(behind.data()), behind.size()));
      return;
    case FrameKind::Posted: {
      if (header.tag.run <= state_.closed_run) return;
      auto held = held_.extract(header.tag);
      if (held.empty())
        posted_.insert(header.tag);
      else
        make_ready(std::move(held.mapped()));
      return;
    }
    case FrameKind::Sizes: {
      std::vector<uint64_t> sizes(behind.size() / sizeof(uint64_t));
      std::memcpy(sizes.data(), behind.data(), sizes.size() * sizeof(uint64_t));
      begin_message(header.tag, sizes);
      return;
    }
    case FrameKind::Piece: {
      const auto found = incoming_.find(header.tag);
      if (found == incoming_.end()
              ? header.tag.run > state_.closed_run
              : !found->second.begun || found->second.offer ||
                    header.bytes > found->second.left - found->second.announced)
        throw TransportError("sent a piece that does not belong to its message");
      piece_tag_ = header.tag;
      piece_left_ = header.bytes;
      return;
    }
    case FrameKind::Ping:
      put({.kind = FrameKind::Pong,
           .bytes = static_cast<uint64_t>(steady_ns()),
           .clock = header.clock});
      return;
    case FrameKind::Pong: {
      const int64_t now = steady_ns();
      const int64_t error = (now - header.clock) / 2 + 1;
      if (error < offset_error_ns_) {
        offset_error_ns_ = error;
        offset_ns_ = static_cast<int64_t>(header.bytes) - (now + header.clock) / 2;
      }
      return;
    }
    case FrameKind::Bye:
      bye_ = true;
      return;
    case FrameKind::Process:
      on_process(behind);
      return;
    case FrameKind::Look:
      on_look();
      return;
    case FrameKind::Reads:
      // Of a rank that does not say where it is, nobody can have read anything.
      is_read_ = state_.same_host_memory;
      return;
    case FrameKind::Offer:
      on_offer(header.tag, behind);
      return;
    case FrameKind::Taken:
    case FrameKind::Refused:
      on_answer(header.tag, header.kind == FrameKind::Taken);
      return;
    case FrameKind::Carries:
      carries_ = true;
      return;
    case FrameKind::Carried:
      on_carried(header);
      return;
  }
  throw TransportError("sent a frame of an unknown kind");
}

void Peer::begin_message(const Tag& tag, const std::vector<uint64_t>& sizes) {
  const auto found = incoming_.find(tag);
  if (found == incoming_.end()) {
    if (tag.run > state_.closed_run) throw TransportError("sent a message that nobody waits for");
    return;
  }
  Incoming& incoming = found->second;
  if (incoming.begun) throw TransportError("sent a message twice");
  incoming.parts = (*incoming.place)(sizes);
  incoming.begun = true;
  if (incoming.parts.size() != sizes.size())
    throw InternalError("a message has no place for some of its parts");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == kAbsent) {
      incoming.parts[i] = {};
      continue;
    }
    if (incoming.parts[i].size() != sizes[i])
      throw InternalError("a message has a place of another size");
    incoming.left += sizes[i];
  }
  end_if_complete(found);
}

void Peer::close_run(uint32_t run) {
  const auto end_all = [run](auto& transfers) {
    for (auto at = transfers.begin(); at != transfers.end();) {
      if (at->first.run > run) {
        ++at;
        continue;
      }
      at->second.transfer->end(Transfer::Result::Closed);
      at = transfers.erase(at);
    }
  };
  if (reads_straight_ && piece_tag_.run <= run) {
    const auto found = incoming_.find(piece_tag_);
    if (found != incoming_.end()) closed_ = found->second;
  }
  close_offers(run);
  close_carried(run);
  end_all(held_);
  end_all(incoming_);
  std::erase_if(posted_, [run](const Tag& tag) { return tag.run <= run; });
  for (auto at = ready_.begin(); at != ready_.end();) {
    const bool being_written = is_writing_ && at->first == current_;
    if (at->second.tag.run <= run) at->second.transfer->end(Transfer::Result::Closed);
    at = at->second.tag.run <= run && !being_written ? ready_.erase(at) : std::next(at);
  }
}

}  // namespace penstock::net
