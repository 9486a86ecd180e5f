// What passing a message from one worker thread to another costs: the hand-over itself, through a
// mutex and a condition variable as in the executor's channels, and a copy of the message on the
// receiver's side.
//
//   HandOver pair(4 << 20);
//   double ns = pair.exchange_ns(HandOver::Copy::No);   // there and back
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace penstock::probe {

/// Owns a second thread, which answers. Not thread-safe.
class HandOver {
 public:
  enum class Copy : uint8_t { No, Yes };

  /// Throws RuntimeError when the thread cannot be started.
  explicit HandOver(size_t message_bytes);
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  /// Nanoseconds from handing a message over to having its answer, which takes no copy. The
  /// receiver waits asleep. With Copy::Yes it copies the message first, which is not in a cache
  /// unless caches are larger than kSpanBytes. Blocks; throws TimeoutError after ten seconds.
  double exchange_ns(Copy copy);

  static constexpr size_t kSpanBytes = size_t{64} << 20;

 private:
  struct Peer;
  std::unique_ptr<Peer> peer_;
};

}  // namespace penstock::probe
