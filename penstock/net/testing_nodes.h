// Ranks of a mesh in one process, over the loopback, and messages for them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/launch/free_port.h"
#include "penstock/net/hello.h"
#include "penstock/net/mesh.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/process/log.h"
#include "penstock/util/process/mutex.h"

namespace penstock::net::testing_nodes {

inline uint16_t free_port() { return static_cast<uint16_t>(launch::free_port()); }

inline CondVar::Deadline soon(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  return std::chrono::steady_clock::now() + timeout;
}

struct Node {
  std::unique_ptr<Mesh> mesh;
  std::string failure;
};

inline std::vector<Node> connected(int ranks, MeshOptions options = {}) {
  options.ranks = ranks;
  options.port = free_port();
  std::vector<Node> nodes(static_cast<size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&nodes, options, r]() mutable {
      options.rank = r;
      try {
        nodes[static_cast<size_t>(r)].mesh = Mesh::connect(options);
      } catch (const std::exception& error) {
        nodes[static_cast<size_t>(r)].failure = error.what();
      }
    });
  }
  return threads.clear(), std::move(nodes);
}

inline void start_quietly(const std::vector<Node>& nodes) {
  for (const Node& node : nodes)
    node.mesh->start(
        {.note = [](int, const std::string&) {}, .lost = [](int, const std::string&) {}});
}

using Block = std::vector<std::byte>;

inline std::shared_ptr<Block> block_of(size_t bytes, uint64_t seed) {
  auto block = std::make_shared<Block>(bytes);
  Rng rng(seed);
  for (std::byte& byte : *block) byte = static_cast<std::byte>(rng.below(256));
  return block;
}

struct Parts {
  std::vector<uint64_t> sizes;
  std::vector<Block> blocks;
};

inline Place into(const std::shared_ptr<Parts>& parts) {
  return [parts](const std::vector<uint64_t>& sizes) {
    parts->sizes = sizes;
    std::vector<Memory> memory;
    parts->blocks.resize(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != kAbsent) parts->blocks[i].resize(sizes[i]);
      memory.emplace_back(parts->blocks[i]);
    }
    return memory;
  };
}

/// One message from rank to rank; what its transfer at the sender says.
inline Transfer::Result pass(const std::vector<Node>& nodes, int from, int to, Tag tag,
                             const std::shared_ptr<Block>& block,
                             const std::shared_ptr<Parts>& parts) {
  nodes[static_cast<size_t>(to)].mesh->receive(from, tag, into(parts));
  return nodes[static_cast<size_t>(from)].mesh->send(to, tag, {Bytes(*block)}, block)->wait(soon());
}

/// Returns when the first two ranks read each other's memory; false: they do not. The messages that
/// show it are of run 1.
inline bool read_each_other(const std::vector<Node>& nodes) {
  constexpr uint32_t kChannel = 1'000'000;
  const auto block = std::make_shared<Block>(1 << 20);
  const CondVar::Deadline deadline = soon();
  uint64_t sequence = 0;
  while (nodes[0].mesh->traffic().sent_by_memory == 0 ||
         nodes[1].mesh->traffic().sent_by_memory == 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    const auto parts = std::make_shared<Parts>();
    const Tag tag{.run = 1, .channel = kChannel, .sequence = ++sequence};
    pass(nodes, 0, 1, tag, block, parts);
    pass(nodes, 1, 0, tag, block, parts);
  }
  return true;
}

/// Connects to a port of the loopback, as often as needed until somebody listens.
inline int connected_to(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  while (true) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// A connection that has said hello, as a rank without TLS does; false: it is broken.
inline bool say_hello_by_hand(int fd, const Hello& hello) {
  OpeningBytes theirs;
  Challenge challenge;
  const OpeningBytes own = opening(hello.rank, TlsKind::Off);
  if (recv(fd, theirs.data(), theirs.size(), MSG_WAITALL) != std::ssize(theirs) ||
      recv(fd, challenge.data(), challenge.size(), MSG_WAITALL) != std::ssize(challenge))
    return false;
  const HelloBytes bytes = encode(hello, challenge);
  return write(fd, own.data(), own.size()) == std::ssize(own) &&
         write(fd, bytes.data(), bytes.size()) == std::ssize(bytes);
}

/// Refusals are logged as warnings; keeps them instead of printing them.
class Warnings {
 public:
  Warnings() {
    set_log_sink([this](LogLevel, std::string_view message) {
      MutexLock lock(mutex_);
      text_ += message;
    });
  }
  ~Warnings() { set_log_sink({}); }
  std::string text() {
    MutexLock lock(mutex_);
    return text_;
  }

 private:
  Mutex mutex_;
  std::string text_ GUARDED_BY(mutex_);
};

}  // namespace penstock::net::testing_nodes
