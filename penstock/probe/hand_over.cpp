#include "penstock/probe/hand_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "penstock/probe/measurement.h"
#include "penstock/util/error.h"
#include "penstock/util/process/mutex.h"

namespace penstock::probe {

namespace {

constexpr auto kPatience = std::chrono::seconds(10);

/// A queue of one message.
class Mailbox {
 public:
  void put(const std::byte* message) {
    MutexLock lock(mutex_);
    message_ = message;
    full_ = true;
    changed_.notify_all();
  }

  enum class Result : uint8_t { Taken, Closed, TimedOut };

  Result take(const std::byte*& message) {
    MutexLock lock(mutex_);
    changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kPatience,
                        [this]() NO_THREAD_SAFETY_ANALYSIS { return full_ || closed_; });
    if (closed_) return Result::Closed;
    if (!full_) return Result::TimedOut;
    full_ = false;
    message = message_;
    return Result::Taken;
  }

  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  const std::byte* message_ GUARDED_BY(mutex_) = nullptr;
  bool full_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace

struct HandOver::Peer {
  explicit Peer(size_t bytes)
      : message_bytes(bytes),
        messages(std::max<size_t>(2, kSpanBytes / bytes)),
        sent(messages * bytes),
        copies(messages * bytes) {}

  /// The second thread. A null message asks for no copy. It gives up on its own when nothing comes
  /// for long, as nobody is left to ask.
  void answer() {
    size_t next = 0;
    for (const std::byte* message = nullptr; there.take(message) == Mailbox::Result::Taken;) {
      if (message != nullptr)
        std::memcpy(copies.data() + next++ % messages * message_bytes, message, message_bytes);
      back.put(message);
    }
    back.close();
  }

  size_t message_bytes;
  size_t messages;  ///< both sides use this many in turn, so that none is in a cache
  std::vector<std::byte> sent, copies;
  size_t next_sent = 0;
  Mailbox there, back;
  std::thread thread;
};

HandOver::HandOver(size_t message_bytes) : peer_(std::make_unique<Peer>(message_bytes)) {
  try {
    peer_->thread = std::thread([peer = peer_.get()] { peer->answer(); });
  } catch (const std::system_error& error) {
    throw RuntimeError(fmt::format("cannot start a second thread: {}", error.what()));
  }
}

HandOver::~HandOver() {
  peer_->there.close();
  peer_->thread.join();
}

double HandOver::exchange_ns(Copy copy) {
  const std::byte* message = nullptr;
  if (copy == Copy::Yes)
    message = peer_->sent.data() + peer_->next_sent++ % peer_->messages * peer_->message_bytes;
  return time_ns([&] {
    peer_->there.put(message);
    const std::byte* answer = nullptr;
    if (peer_->back.take(answer) == Mailbox::Result::Taken) return;
    throw TimeoutError(
        "the second thread did not answer within 10 s: is the machine suspended or out of memory?");
  });
}

}  // namespace penstock::probe
