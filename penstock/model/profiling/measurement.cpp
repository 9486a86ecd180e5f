#include "penstock/model/profiling/measurement.h"

#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <latch>
#include <system_error>
#include <thread>
#include <utility>

#include "penstock/model/profiling/summary.h"
#include "penstock/model/profiling/thread_count.h"
#include "penstock/profile/pass_record.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/process/mutex.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::model::detail {

int64_t pass_time_ns(const std::vector<LayerTimes>& times) {
  int64_t sum = 0;
  for (const LayerTimes& layer : times)
    sum = saturating_add(
        sum, saturating_add(saturating_add(layer.forward_ns, layer.backward_ns), layer.step_ns));
  return sum;
}

namespace {

using Times = std::vector<LayerTimes>;

/// Bytes of gradient per second that one thread (with its intra-op threads), or a GPU, adds to
/// another tensor.
int64_t measure_copy_bandwidth(DeviceStream& stream) {
  const auto scope = stream.enter();
  constexpr int64_t kNumbers = int64_t{16} << 20;
  constexpr int kRepeats = 5;
  const c10::AutoGradMode no_grad(false);
  const auto options = at::TensorOptions().device(stream.memory());
  at::Tensor sum = at::ones({kNumbers}, options);
  const at::Tensor part = at::ones({kNumbers}, options);
  stream.synchronize();
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    sum.add_(part);
    stream.synchronize();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<int64_t>(static_cast<double>(kNumbers * static_cast<int64_t>(sizeof(float))) /
                              std::max(seconds[kRepeats / 2], 1e-9));
}

/// From one thread's giving away until another that sleeps meanwhile goes on, as between workers.
int64_t measure_hand_over() {
  constexpr int kRounds = 200;
  Mutex mutex;
  CondVar changed;
  int turn = 0;  // even: the first thread's
  std::vector<int64_t> there_and_back_ns;
  there_and_back_ns.reserve(kRounds);  // nothing may throw while the other thread runs
  const auto wait_for = [&](int value) {
    MutexLock lock(mutex);
    changed.wait_until(mutex, std::chrono::steady_clock::now() + std::chrono::seconds(1),
                       [&]() NO_THREAD_SAFETY_ANALYSIS { return turn >= value; });
  };
  const auto pass_on = [&](int value) {
    {
      MutexLock lock(mutex);
      turn = value;
    }
    changed.notify_all();
  };
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      wait_for(2 * i + 1);
      pass_on(2 * i + 2);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    // The other one has fallen asleep by then, as a worker has that waits for a computation.
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const int64_t begin_ns = steady_ns();
    pass_on(2 * i + 1);
    wait_for(2 * i + 2);
    there_and_back_ns.push_back(steady_ns() - begin_ns);
  }
  other.join();
  return summarize(std::move(there_and_back_ns)).mean / 2;
}

/// The last third of them measures the gradients of inputs and weights separately; they are not
/// used for anything else.
int total_passes(int warmup, int samples) { return warmup + samples + (samples + 1) / 2; }

/// The passes of one measurement.
struct Passes {
  int warmup = 0;
  int samples = 0;

  int total() const { return total_passes(warmup, samples); }
};

/// `asked`, or more samples of a fast model, from the time of one pass.
Passes enough(Passes asked, const ProfilerOptions& options, int64_t pass_ns) {
  const int64_t least_ns = std::chrono::nanoseconds(options.least_time).count();
  const int64_t wanted =
      std::min<int64_t>(least_ns / std::max<int64_t>(pass_ns, 1), options.most_samples);
  asked.samples = std::max(asked.samples, static_cast<int>(wanted));
  return asked;
}

/// `asked`, or as many as a slow model has time for.
Passes affordable(Passes asked, int least_warmup, const ProfilerOptions& options, int64_t pass_ns) {
  const int64_t most_ns = std::chrono::nanoseconds(options.most_time).count();
  if (most_ns == 0 || saturating_mul(pass_ns, asked.total()) <= most_ns) return asked;
  const auto passes = static_cast<int>(most_ns / pass_ns);
  asked.warmup = std::min(asked.warmup, std::max(least_warmup, 1));
  asked.samples = std::clamp((passes - asked.warmup) * 2 / 3, 1, asked.samples);
  return asked;
}

/// The exception that is being handled; one of libtorch's without its stack trace.
std::exception_ptr current_failure() noexcept {
  try {
    try {
      throw;
    } catch (const c10::Error& error) {
      return std::make_exception_ptr(
          RuntimeError(fmt::format("profiler: {}", error.what_without_backtrace())));
    }
  } catch (...) {
    return std::current_exception();
  }
}

/// The threads of one measurement: the first counts its passes, the others keep the machine busy
/// until it is done.
class Measurement {
 public:
  Measurement(const ModelPart& part, const ProfilerOptions& options,
              const std::optional<ProfiledLoss>& loss)
      : part_(part), options_(options), loss_(loss), ready_(options.concurrency) {}
  ~Measurement() { join(); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  /// Blocks until the first copy is done. Rethrows the first failure of any copy.
  Measured run() {
    start_threads();
    report_progress();
    join();
    {
      MutexLock lock(mutex_);
      if (failure_) std::rethrow_exception(failure_);
    }
    made_.pass = record_.times();
    return std::move(made_);
  }

 private:
  void start_threads() {
    for (int copy = 0; copy < options_.concurrency; ++copy) {
      try {
        threads_.emplace_back([this, copy] { run_copy(copy); });
      } catch (const std::system_error& error) {
        // Threads that did start must not wait for the others.
        stop_ = true;
        ready_.count_down(options_.concurrency - copy);
        throw RuntimeError(fmt::format("profiler: cannot start thread {} of {}: {}", copy + 1,
                                       options_.concurrency, error.what()));
      }
    }
  }

  void run_copy(int copy) {
    bool arrived = false;
    try {
      const ThreadCount threads(options_.threads);
      ModelPass pass(part_, options_, loss_);
      arrived = true;
      ready_.arrive_and_wait();
      if (copy == 0) {
        measure(pass);
      } else {
        while (!stop_.load(std::memory_order_relaxed)) pass.run();
      }
    } catch (...) {
      const std::exception_ptr failure = current_failure();
      MutexLock lock(mutex_);
      if (!failure_) failure_ = failure;
      stop_ = true;
    }
    if (!arrived) ready_.count_down();
    if (copy == 0) finish();
  }

  void measure(ModelPass& pass) {
    // One more records the graphs.
    const int least_warmup = options_.device_graphs ? ModelPass::kPassesWithoutGraphs + 1 : 0;
    Passes wanted{std::max(options_.warmup, least_warmup), options_.samples};
    const int64_t begin_ns = steady_ns();
    int64_t timed_begin_ns = begin_ns;
    for (int i = 0; i < wanted.total() && !stop_; ++i) {
      const bool split = i >= wanted.warmup + wanted.samples;
      const auto start = std::chrono::steady_clock::now();
      Times times = pass.run(split ? Backward::Split : Backward::Whole);
      const int64_t pass_ns =
          std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
      if (i == 0) wanted = affordable(wanted, least_warmup, options_, pass_ns);
      const bool timed = i >= wanted.warmup;
      if (!split) record_.add(pass_time_ns(times));
      if (i == std::max(wanted.warmup, 1) - 1) {
        if (is_cold(begin_ns)) {
          ++wanted.warmup;
        } else {
          wanted = enough(wanted, options_, pass_ns);
          if (!timed) record_.clear();
          timed_begin_ns = steady_ns();
        }
      }
      if (timed) (split ? made_.split_samples : made_.samples).push_back(std::move(times));
      if (timed && i == wanted.warmup + wanted.samples - 1)
        wanted.samples += further_samples(wanted.samples, timed_begin_ns);
      MutexLock lock(mutex_);
      ++passes_done_;
      passes_wanted_ = wanted.total();
      changed_.notify_all();
    }
    made_.bytes = pass.bytes();
    made_.device_graphs = pass.has_graphs();
    if (options_.device_graphs && !made_.device_graphs && options_.on_no_graphs)
      options_.on_no_graphs(pass.graph_obstacle());
    if (!stop_) made_.copy_bandwidth_bytes_per_s = measure_copy_bandwidth(pass.stream());
    if (!stop_ && options_.concurrency > 1) made_.hand_over_ns = measure_hand_over();
  }

  bool is_over(int64_t begin_ns, double share) const {
    const auto longest_ns = static_cast<double>(std::chrono::nanoseconds(options_.longest).count());
    return static_cast<double>(steady_ns() - begin_ns) >= share * longest_ns;
  }

  /// At the end of the warm-up: whether it should go on.
  bool is_cold(int64_t begin_ns) const {
    constexpr int64_t kEnoughToTell = 6;
    constexpr double kMostShare = 0.5;
    if (options_.wanted_error <= 0 || options_.warmup == 0 || is_over(begin_ns, kMostShare))
      return false;
    return record_.count() < kEnoughToTell || record_.still_falls();
  }

  /// At the end of the timed passes: how many more their mean needs to be known.
  int further_samples(int samples, int64_t timed_begin_ns) const {
    if (options_.wanted_error <= 0 || samples >= options_.most_samples ||
        is_over(timed_begin_ns, 1))
      return 0;
    const profile::PassTimes times = record_.times();
    if (times.mean_ns > 0 && times.error <= options_.wanted_error) return 0;
    return std::clamp(samples / 4, 1, options_.most_samples - samples);
  }

  void finish() {
    MutexLock lock(mutex_);
    stop_ = true;
    finished_ = true;
    changed_.notify_all();
  }

  void report_progress() {
    int reported = 0;
    for (bool finished = false; !finished;) {
      int done = 0;
      int wanted = 0;
      {
        MutexLock lock(mutex_);
        changed_.wait_until(
            mutex_, std::chrono::steady_clock::now() + std::chrono::seconds(1),
            [&]() NO_THREAD_SAFETY_ANALYSIS { return finished_ || passes_done_ > reported; });
        finished = finished_;
        done = passes_done_;
        wanted = passes_wanted_;
      }
      while (options_.progress && reported < done) options_.progress(++reported, wanted);
      reported = done;
    }
  }

  void join() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  const ModelPart& part_;
  const ProfilerOptions& options_;
  const std::optional<ProfiledLoss>& loss_;
  Measured made_;
  profile::PassRecord record_;  ///< of made_.samples
  std::latch ready_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar changed_;
  int passes_done_ GUARDED_BY(mutex_) = 0;
  int passes_wanted_ GUARDED_BY(mutex_) = 0;
  bool finished_ GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace

Measured measure(const ModelPart& part, const ProfilerOptions& options,
                 const std::optional<ProfiledLoss>& loss) {
  return Measurement(part, options, loss).run();
}

}  // namespace penstock::model::detail
