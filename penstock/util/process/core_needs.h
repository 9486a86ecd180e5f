// Who wants the cores of this machine, as far as this process knows: only where all have one each
// is it worth waiting awake (util/awake.h). Thread-safe.
//
//   const CoreNeed need(CoreNeed::Kind::Thread, 4);  // four workers, while it lives
//   if (have_cores()) ...
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace penstock {

/// Counts as long as it lives.
class CoreNeed {
 public:
  enum class Kind : uint8_t {
    Thread,       ///< of this process, that computes
    OtherProcess  ///< on this machine, with as many of them
  };

  CoreNeed(Kind kind, int64_t count) : kind_(kind), count_(count) { total(kind) += count; }
  ~CoreNeed() { total(kind_) -= count_; }
  CoreNeed(const CoreNeed&) = delete;
  CoreNeed& operator=(const CoreNeed&) = delete;

  static std::atomic<int64_t>& total(Kind kind) {
    static std::array<std::atomic<int64_t>, 2> totals{};
    return totals[static_cast<size_t>(kind)];
  }

 private:
  Kind kind_;
  int64_t count_;
};

inline bool have_cores() {
  static const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  const int64_t threads = std::max<int64_t>(CoreNeed::total(CoreNeed::Kind::Thread), 1);
  return threads * (1 + CoreNeed::total(CoreNeed::Kind::OtherProcess)) <= cores;
}

}  // namespace penstock
