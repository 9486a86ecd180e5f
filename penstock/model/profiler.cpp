#include "penstock/model/profiler.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <fstream>
#include <latch>
#include <system_error>
#include <thread>
#include <utility>

#include "penstock/model/device/devices.h"
#include "penstock/model/profiling/model_pass.h"
#include "penstock/model/profiling/summary.h"
#include "penstock/model/shapes.h"
#include "penstock/profile/pass_record.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/process/mutex.h"
#include "penstock/util/process/steady_ns.h"
#include "penstock/util/text/units.h"

namespace penstock::model {
namespace {

using Times = std::vector<detail::LayerTimes>;

void check_at_least(int64_t value, int64_t low, int64_t high, const char* what) {
  if (value < low || value > high) {
    throw ConfigError(
        fmt::format("profiler: {} must be between {} and {}, found {}", what, low, high, value));
  }
}

/// The minimum memory that `copies` passes need: two versions, gradients and optimiser state of the
/// weights, and every output.
int64_t least_memory_bytes(const Model& model, const ProfilerOptions& options,
                           int64_t weight_copies) {
  int64_t outputs = 0;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    // Views have no memory of their own.
    if (model.graph().layer(LayerId{i}).kind == "flatten" ||
        model.graph().layer(LayerId{i}).kind == "split")
      continue;
    for (const Shape& shape : model.output_shapes(LayerId{i})) {
      outputs = saturating_add(
          outputs, saturating_mul(options.batch_size, detail::checked_elements(shape, "output")));
    }
  }
  const int64_t numbers =
      saturating_add(outputs, saturating_mul(model.parameter_count(), weight_copies));
  return saturating_mul(saturating_mul(numbers, static_cast<int64_t>(sizeof(float))),
                        options.concurrency);
}

void check_options(const Model& model, const ProfilerOptions& options) {
  const bool is_cpu = options.device.empty() || at::Device(options.device).is_cpu();
  if (options.precision == Precision::Tf32 && is_cpu) {
    throw ConfigError(
        "profiler: precision tf32 is a mode of NVIDIA's GPUs, and the CPU is measured: expected "
        "float32, bfloat16 or float16, or a GPU as the device");
  }
  check_at_least(options.batch_size, 1, detail::kMaxElements, "batch size");
  check_at_least(options.warmup, 0, 1'000'000, "number of warm-up passes");
  check_at_least(options.samples, 1, 1'000'000, "number of samples");
  check_at_least(options.threads, 1, 1024, "number of threads");
  check_at_least(options.concurrency, 1, 1024, "concurrency");
  check_at_least(options.longest.count(), 0, 86'400'000, "longest time in ms");
  if (!(options.wanted_error >= 0 && options.wanted_error <= 1)) {
    throw ConfigError(fmt::format("profiler: wanted error must be between 0 and 1, found {}",
                                  options.wanted_error));
  }
  check_at_least(options.least_time.count(), 0, 86'400'000, "least time in ms");
  check_at_least(options.most_time.count(), 0, 86'400'000, "most time in ms");
  check_at_least(options.most_samples, 0, 1'000'000, "greatest number of samples");
  if (model.graph().num_layers() == 0)
    throw ConfigError(fmt::format("profiler: model '{}' has no layers", model.name()));
  const auto states = static_cast<int64_t>(num_states(options.optimizer));
  const int64_t needed = least_memory_bytes(model, options, 3 + states);
  int64_t installed = saturating_mul(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGESIZE));
  if (!options.device.empty()) {
    require_device(installed_devices(), at::Device(options.device));
    installed = installed_devices().memory(at::Device(options.device)).total;
  }
  if (needed > installed) {
    throw ConfigError(fmt::format(
        "profiler: model '{}' with batch size {} and concurrency {} needs at least "
        "{}, {} has {}",
        model.name(), options.batch_size, options.concurrency, format_bytes(needed),
        options.device.empty() ? "this machine" : options.device, format_bytes(installed)));
  }
}

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
  return detail::summarize(std::move(there_and_back_ns)).mean / 2;
}

std::string device_name(const ProfilerOptions& options) {
  if (!options.device.empty()) return installed_devices().name(at::Device(options.device));
  const int threads = options.threads;
  std::string name = "CPU";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    name = line.substr(colon + 2);
    break;
  }
  return fmt::format("{}, {} thread{}", name, threads, threads == 1 ? "" : "s");
}

/// Sets the intra-op thread count of a thread; restores it on destruction.
class ThreadCount {
 public:
  // Reading the count first makes libtorch do its per-thread initialisation now; later it would
  // undo the setting.
  explicit ThreadCount(int threads) : before_(at::get_num_threads()) {
    at::set_num_threads(threads);
  }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

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

int64_t pass_time_ns(const Times& times) {
  int64_t sum = 0;
  for (const detail::LayerTimes& layer : times)
    sum = saturating_add(
        sum, saturating_add(saturating_add(layer.forward_ns, layer.backward_ns), layer.step_ns));
  return sum;
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
  Measurement(const Model& model, const ProfilerOptions& options,
              const std::optional<ProfiledLoss>& loss)
      : model_(model), options_(options), loss_(loss), ready_(options.concurrency) {}
  ~Measurement() { join(); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  /// Blocks until the first copy is done. Rethrows the first failure of any copy.
  void run() {
    start_threads();
    report_progress();
    join();
    MutexLock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

  // The results of run().
  std::vector<Times> samples;
  std::vector<Times> split_samples;  ///< of Backward::Split
  std::vector<detail::LayerBytes> bytes;
  profile::PassRecord record;  ///< of `samples`
  bool device_graphs = false;  ///< ProfilerOptions
  int64_t hand_over_ns = 0;
  int64_t copy_bandwidth_bytes_per_s = 0;

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
      detail::ModelPass pass(model_, options_, loss_);
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

  void measure(detail::ModelPass& pass) {
    // One more records the graphs.
    const int least_warmup =
        options_.device_graphs ? detail::ModelPass::kPassesWithoutGraphs + 1 : 0;
    Passes wanted{std::max(options_.warmup, least_warmup), options_.samples};
    const int64_t begin_ns = steady_ns();
    int64_t timed_begin_ns = begin_ns;
    for (int i = 0; i < wanted.total() && !stop_; ++i) {
      const bool split = i >= wanted.warmup + wanted.samples;
      const auto start = std::chrono::steady_clock::now();
      Times times = pass.run(split ? detail::Backward::Split : detail::Backward::Whole);
      const int64_t pass_ns =
          std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
      if (i == 0) wanted = affordable(wanted, least_warmup, options_, pass_ns);
      const bool timed = i >= wanted.warmup;
      if (!split) record.add(pass_time_ns(times));
      if (i == std::max(wanted.warmup, 1) - 1) {
        if (is_cold(begin_ns)) {
          ++wanted.warmup;
        } else {
          wanted = enough(wanted, options_, pass_ns);
          if (!timed) record.clear();
          timed_begin_ns = steady_ns();
        }
      }
      if (timed) (split ? split_samples : samples).push_back(std::move(times));
      if (timed && i == wanted.warmup + wanted.samples - 1)
        wanted.samples += further_samples(wanted.samples, timed_begin_ns);
      MutexLock lock(mutex_);
      ++passes_done_;
      passes_wanted_ = wanted.total();
      changed_.notify_all();
    }
    bytes = pass.bytes();
    device_graphs = pass.has_graphs();
    if (options_.device_graphs && !device_graphs && options_.on_no_graphs)
      options_.on_no_graphs(pass.graph_obstacle());
    if (!stop_) copy_bandwidth_bytes_per_s = measure_copy_bandwidth(pass.stream());
    if (!stop_ && options_.concurrency > 1) hand_over_ns = measure_hand_over();
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
    return record.count() < kEnoughToTell || record.still_falls();
  }

  /// At the end of the timed passes: how many more their mean needs to be known.
  int further_samples(int samples, int64_t timed_begin_ns) const {
    if (options_.wanted_error <= 0 || samples >= options_.most_samples ||
        is_over(timed_begin_ns, 1))
      return 0;
    const profile::PassTimes times = record.times();
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

  const Model& model_;
  const ProfilerOptions& options_;
  const std::optional<ProfiledLoss>& loss_;
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

/// The summary of one time of one layer over all samples.
detail::Summary summarize(const std::vector<Times>& samples, size_t layer,
                          int64_t detail::LayerTimes::*member) {
  std::vector<int64_t> values;
  for (const Times& times : samples) values.push_back(times[layer].*member);
  return detail::summarize(std::move(values));
}

/// The part of `backward_ns` that makes the weights' gradients, in proportion to the two times
/// measured separately: separately they take a little longer than together.
int64_t weight_part(int64_t backward_ns, const std::vector<Times>& split_samples, size_t layer) {
  const auto inputs = static_cast<double>(
      summarize(split_samples, layer, &detail::LayerTimes::backward_input_ns).mean);
  const auto weights = static_cast<double>(
      summarize(split_samples, layer, &detail::LayerTimes::backward_weight_ns).mean);
  if (weights <= 0) return 0;
  return std::min(backward_ns, static_cast<int64_t>(static_cast<double>(backward_ns) *
                                                    (weights / (inputs + weights))));
}

}  // namespace

profile::Profile measure_profile(const Model& model, const ProfilerOptions& options,
                                 const std::optional<ProfiledLoss>& loss) {
  check_options(model, options);
  // libtorch gives the count that was set last to every later thread; restore the old value.
  const ThreadCount unchanged(at::get_num_threads());
  if (!options.device.empty() && at::Device(options.device).is_cuda()) {
    at::globalContext().setAllowTF32CuBLAS(options.precision == Precision::Tf32);
    at::globalContext().setAllowTF32CuDNN(options.precision == Precision::Tf32);
  }
  Measurement measurement(model, options, loss);
  measurement.run();

  profile::Profile result;
  result.model = model.name();
  result.device = device_name(options);
  result.source = "measured";
  result.precision = options.precision;
  result.device_graphs = measurement.device_graphs;
  result.batch_size = options.batch_size;
  result.samples = static_cast<int>(measurement.samples.size());
  result.copy_bandwidth_bytes_per_s = measurement.copy_bandwidth_bytes_per_s;
  result.pass = measurement.record.times();
  result.hand_over_ns = measurement.hand_over_ns;
  result.graph = model.graph();
  for (size_t i = 0; i < measurement.bytes.size(); ++i) {
    const detail::Summary forward =
        summarize(measurement.samples, i, &detail::LayerTimes::forward_ns);
    const detail::Summary backward =
        summarize(measurement.samples, i, &detail::LayerTimes::backward_ns);
    const detail::Summary accumulate =
        summarize(measurement.split_samples, i, &detail::LayerTimes::accumulate_ns);
    const detail::Summary step = summarize(measurement.samples, i, &detail::LayerTimes::step_ns);
    const detail::Summary loss_part =
        summarize(measurement.samples, i, &detail::LayerTimes::loss_ns);
    const detail::LayerBytes& bytes = measurement.bytes[i];
    result.costs.push_back(
        {.forward_ns = forward.mean,
         .backward_ns = backward.mean,
         .backward_weight_ns = weight_part(backward.mean, measurement.split_samples, i),
         .accumulate_ns = accumulate.mean,
         .step_ns = step.mean,
         .forward_spread_ns = forward.spread,
         .backward_spread_ns = backward.spread,
         .output_bytes = bytes.outputs,
         .weight_bytes = bytes.weights,
         .stash_bytes = std::max<int64_t>(bytes.stash, 0),
         .tied_bytes = model.tied_bytes(LayerId{static_cast<int32_t>(i)}),
         .loss_ns = std::min(loss_part.mean, forward.mean + backward.mean),
         .short_weight_bytes = bytes.short_weights,
         .constant_bytes = model.layer(LayerId{static_cast<int32_t>(i)}).constant_bytes()});
  }
  return result;
}

}  // namespace penstock::model
