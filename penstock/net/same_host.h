// What two ranks on one host need so that one can read and write the other's memory (cross-memory
// attach, process_vm_readv): who is where, the permission, the copying. Internal to net.
//
//   ProcessCard card = own_card(seal);                    // rank 1 sends it to rank 0
//   if (is_same_host(card, ...)) permission.give(card);   // rank 0: rank 1 may read me
//   RemoteMemory memory(card.pid);                        // rank 1: reads rank 0's
//   if (memory.holds(card.address, card.nonce)) ...       // it is that process indeed
//
// Nothing that a card says is believed: that two ranks share a host and that the kernel lets one
// read the other is known when the nonce has been read at its address.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>

namespace penstock::net {

/// A number in this process's memory that says, as long as it is there, that other memory is still
/// what it was. Who reads first that memory and then finds the seal whole has read the right bytes:
/// it is broken before the memory is given back, also by its end.
class Seal {
 public:
  Seal();
  ~Seal() { break_now(); }
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  void break_now() { *value_ = 0; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(value_.get()); }
  /// Another one for every seal, and hard to guess.
  uint64_t value() const { return *value_; }

 private:
  std::unique_ptr<std::atomic<uint64_t>> value_;
};

/// Says where a process is.
struct ProcessCard {
  std::string host = {};  ///< its boot, the namespaces of pids and of the network
  int32_t pid = 0;
  int32_t parent = 0;
  uint64_t address = 0;  ///< at which the process has the nonce
  uint64_t nonce = 0;
  int32_t ring = -1;  ///< the descriptor of a FrameRing for the peer's frames; -1: none

  static auto members(auto& self) {
    return std::tie(self.host, self.pid, self.parent, self.address, self.nonce, self.ring);
  }
};

/// The card of this process; the host is empty if the system does not say.
ProcessCard own_card(const Seal& nonce);

/// Whether it is worth trying: pids of the one are pids of the other.
bool is_same_host(const ProcessCard& a, const ProcessCard& b);

/// Lets other ranks read this process where the kernel's Yama module forbids it between processes
/// of one user that are not each other's ancestors (kernel.yama.ptrace_scope = 1, as in Ubuntu).
/// Such an exception names one process and holds for its descendants, too: for a single peer it is
/// the peer, for several their common parent, the launcher. Peers for which neither will do are
/// left out. Elsewhere it does nothing. One per process is meant.
class ReadPermission {
 public:
  ReadPermission() = default;
  ~ReadPermission();
  ReadPermission(const ReadPermission&) = delete;
  ReadPermission& operator=(const ReadPermission&) = delete;

  void give(const ProcessCard& own, const ProcessCard& peer);

 private:
  int32_t given_to_ = 0;
  bool are_siblings_ = true;  ///< all to whom it was given, of this process
};

/// Bytes at an address of another process.
iovec remote_part(uint64_t address, size_t bytes);

/// The memory of another process.
class RemoteMemory {
 public:
  explicit RemoteMemory(int32_t pid) : pid_(pid) {}

  /// Copies from the other process's memory into this one's, both in order. Returns the bytes
  /// copied, fewer when some cannot be read, 0 for any failure. Blocks for the copying only.
  size_t read(std::span<const iovec> into, std::span<const iovec> from) const;
  /// The same from this process into the other one.
  size_t write(std::span<const iovec> from, std::span<const iovec> into) const;
  /// Whether that number is there.
  bool holds(uint64_t address, uint64_t number) const;

 private:
  int32_t pid_;
};

}  // namespace penstock::net
