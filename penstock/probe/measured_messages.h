// Messages of which only size and time matter, between ranks that measure their links;
// internal.
//
//   MeasuredMessages messages(mesh, run, peers);
//   const MeasuredMessages::Incoming incoming = messages.receive(tag, memory);
//   messages.wait(*messages.send(tag, bytes, size));
//   messages.wait(*incoming.transfer);
//
// As thread-safe as the mesh.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/net/mesh.h"

namespace penstock::probe {

/// Whom a rank sends to and receives from while links are measured; the same one may be both.
struct LinkPeers {
  std::optional<int> to = {};
  std::optional<int> from = {};
  /// Ends the measuring as soon as it is true. Null: nothing does.
  const std::atomic<bool>* stop = nullptr;
};

using Block = std::vector<std::byte>;

class MeasuredMessages {
 public:
  /// Keeps a reference to the mesh.
  MeasuredMessages(net::Mesh& mesh, uint32_t run, const LinkPeers& peers)
      : mesh_(mesh), run_(run), peers_(peers) {}

  bool sends() const { return peers_.to.has_value(); }
  bool receives() const { return peers_.from.has_value(); }

  struct Number {
    uint32_t channel = 0;
    uint64_t sequence = 0;
  };
  /// The first `bytes` of a block.
  std::shared_ptr<net::Transfer> send(Number number, const std::shared_ptr<Block>& block,
                                      size_t bytes);

  struct Incoming {
    std::shared_ptr<net::Transfer> transfer;
    std::shared_ptr<uint64_t> size;  ///< 0 until it has come
  };
  /// Into a block, of whose size a message has no more.
  Incoming receive(Number number, const std::shared_ptr<Block>& block);

  /// Blocks. Throws TransportError when a peer is lost, TimeoutError after a minute, RuntimeError
  /// soon after LinkPeers::stop. `meanwhile` is called every millisecond until then, if there is
  /// one.
  void wait(net::Transfer& transfer, const std::function<void()>& meanwhile = {}) const;

 private:
  /// "rank 1", or "ranks 0 and 2": with whom it exchanges them.
  std::string partners() const;

  net::Tag tag(Number number) const {
    return {.run = run_, .channel = number.channel, .sequence = number.sequence};
  }

  net::Mesh& mesh_;
  uint32_t run_;
  LinkPeers peers_;
};

}  // namespace penstock::probe
