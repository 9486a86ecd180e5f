#include "penstock/net/peer.h"

#include <fmt/format.h>

#include <cstring>

#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::net {

Peer::Peer(std::unique_ptr<Stream> stream, int rank, MeshState& state)
    : rank_(rank),
      state_(state),
      inbox_(state.closed_run),
      context_{.state = state,
               .connection = connection_,
               .link = link_,
               .inbox = inbox_,
               .rank = rank,
               .send_again = [this](Outgoing outgoing) { choose_path(std::move(outgoing)); }},
      carrier_(context_),
      short_(context_),
      memory_(context_),
      pieces_(context_),
      connection_(std::move(stream), *this, pieces_, state.mutex),
      link_(connection_) {}

void Peer::start() {
  forgive();
  connection_.put({.kind = FrameKind::Ping, .clock = steady_ns()});
  memory_.introduce();
  connection_.read();
}

void Peer::tell(const std::string& note) {
  connection_.put({.kind = FrameKind::Note, .bytes = note.size()}, std::as_bytes(std::span(note)));
}

// ---- messages

void Peer::send(Outgoing outgoing) {
  if (!is_open() || outgoing.tag.run <= state_.closed_run) {
    outgoing.transfer->end(Transfer::Result::Closed);
    return;
  }
  for (const Bytes& part : outgoing.parts) outgoing.left += part.size();
  if (posted_.erase(outgoing.tag) > 0) {
    choose_path(std::move(outgoing));
    return;
  }
  const Tag tag = outgoing.tag;
  held_.insert_or_assign(tag, std::move(outgoing));
}

void Peer::choose_path(Outgoing outgoing) {
  for (Path* path : paths()) {
    if (!path->takes(outgoing)) continue;
    path->send(std::move(outgoing));
    return;
  }
}

void Peer::receive(Tag tag, Place place, std::shared_ptr<Transfer> transfer) {
  if (!is_open() || tag.run <= state_.closed_run) {
    transfer->end(Transfer::Result::Closed);
    return;
  }
  inbox_.post(tag, std::move(place), std::move(transfer));
  link_.put({.kind = FrameKind::Posted, .tag = tag});
}

void Peer::close_run(uint32_t run) {
  for (Path* path : paths()) path->close_run(run);
  inbox_.close_run(run);
  std::erase_if(held_, [run](const auto& entry) {
    if (entry.first.run > run) return false;
    entry.second.transfer->end(Transfer::Result::Closed);
    return true;
  });
  std::erase_if(posted_, [run](const Tag& tag) { return tag.run <= run; });
}

bool Peer::look() {
  bool moved = false;
  try {
    moved = read_link();
    // Of a peer whose messages come through memory, the mesh's thread reads the rest.
    if (!link_.is_used()) connection_.look();
    for (Path* path : paths()) moved = path->look() || moved;
  } catch (const std::exception& failure) {
    connection_.post([this, why = std::string(failure.what())] { connection_.lose(why); });
  }
  return moved;
}

bool Peer::go_on() {
  bool any = false;
  try {
    any = read_link();
  } catch (const std::exception& failure) {
    connection_.lose(failure.what());
  }
  memory_.go_on();
  return any;
}

bool Peer::read_link() {
  return link_.read([this](const FrameHeader& header, Bytes behind) {
    if (!goes_through_memory(header.kind)) throw TransportError("sent a frame of an unknown kind");
    if (is_open()) on_frame(header, behind);
  });
}

// ---- frames

void Peer::on_frame(const FrameHeader& header, Bytes behind) {
  switch (header.kind) {
    case FrameKind::Note:
      state_.handlers.note(
          rank_, std::string(reinterpret_cast<const char*>(behind.data()), behind.size()));
      return;
    case FrameKind::Posted:
      on_posted(header.tag);
      return;
    case FrameKind::Sizes: {
      std::vector<uint64_t> sizes(behind.size() / sizeof(uint64_t));
      std::memcpy(sizes.data(), behind.data(), sizes.size() * sizeof(uint64_t));
      inbox_.begin(header.tag, sizes);
      return;
    }
    case FrameKind::Ping:
      connection_.put({.kind = FrameKind::Pong,
                       .bytes = static_cast<uint64_t>(steady_ns()),
                       .clock = header.clock});
      return;
    case FrameKind::Pong:
      on_pong(header);
      return;
    case FrameKind::Bell:
      read_link();
      memory_.go_on();
      return;
    case FrameKind::Bye:
      read_link();  // all that it has put there before
      bye_ = true;
      return;
    default:
      for (Path* path : paths()) {
        if (path->on_frame(header, behind)) return;
      }
      throw TransportError("sent a frame of an unknown kind");
  }
}

void Peer::on_posted(const Tag& tag) {
  if (tag.run <= state_.closed_run) return;
  auto held = held_.extract(tag);
  if (held.empty())
    posted_.insert(tag);
  else
    choose_path(std::move(held.mapped()));
}

void Peer::on_pong(const FrameHeader& header) {
  const int64_t now = steady_ns();
  const int64_t error = (now - header.clock) / 2 + 1;
  if (error >= offset_error_ns_) return;
  offset_error_ns_ = error;
  offset_ns_ = static_cast<int64_t>(header.bytes) - (now + header.clock) / 2;
}

// ---- signs of life and the end

void Peer::beat(std::chrono::milliseconds silence) {
  if (!is_open()) return;
  if (connection_.is_silent_for(silence)) {
    const double seconds = std::chrono::duration<double>(silence).count();
    connection_.lose(
        bye_ ? fmt::format("has ended, but not closed its connection for {:.1f} s", seconds)
             : fmt::format("has not answered for {:.1f} s", seconds));
    return;
  }
  if (!bye_) connection_.put({.kind = FrameKind::Ping, .clock = steady_ns()});
}

void Peer::on_end() {
  try {
    read_link();
  } catch (const std::exception& failure) {
    return connection_.lose(failure.what());
  }
  // It may have sent all before it ended, and the carrier still have some of that.
  if (bye_ && carrier_.is_coming())
    carrier_.end_when_all_is_there();
  else
    connection_.lose(bye_ ? "has ended" : "closed the connection");
}

void Peer::on_lost(const std::string& why) {
  close_run(UINT32_MAX);
  for (Path* path : paths()) path->end();
  const bool leaving = connection_.is_leaving();
  if (!bye_ && !leaving) state_.is_broken = true;
  // Of a rank that ends as it should, what the carrier has ends by itself; the carrier may only not
  // have noticed yet.
  if (state_.carrier && !leaving && (!bye_ || carrier_.is_coming())) state_.carrier->lose(rank_);
  if (!leaving) state_.handlers.lost(rank_, why);
}

void Peer::leave() {
  connection_.put({.kind = FrameKind::Bye});
  connection_.leave();
}

void Peer::drop() {
  if (is_open()) state_.is_broken = true;
  connection_.leave();
  connection_.lose({});
}

}  // namespace penstock::net
