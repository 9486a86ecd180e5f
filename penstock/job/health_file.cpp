#include "penstock/job/health_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "penstock/job/log_lines.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"
#include "penstock/util/process/log.h"

namespace penstock::job {

namespace {

constexpr std::chrono::milliseconds kBetween{2000};

}  // namespace

HealthFile::HealthFile(std::string path, int rank) : path_(std::move(path)), rank_(rank) {
  write("preparing");
}

HealthFile::~HealthFile() { end("failed"); }

void HealthFile::begin() {
  {
    const MutexLock lock(mutex_);
    if (is_over_) return;
  }
  try_write("training");
  writer_ = std::thread([this] { watch(); });
}

void HealthFile::end(std::string_view state) {
  bool is_first = false;
  {
    const MutexLock lock(mutex_);
    is_first = !std::exchange(is_over_, true);
  }
  ended_.notify_all();
  if (writer_.joinable()) writer_.join();
  if (is_first) try_write(state);
}

void HealthFile::watch() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      const auto next = std::chrono::steady_clock::now() + kBetween;
      if (ended_.wait_until(mutex_, next, [this] { return is_over_; })) return;
    }
    if (has_progress_.exchange(false)) try_write("training");
  }
}

void HealthFile::write(std::string_view state) {
  Json json = {{"time", utc_text(std::chrono::system_clock::now())},
               {"state", state},
               {"rank", rank_},
               {"process", getpid()}};
  if (const int64_t step = step_; step >= 0) json["step"] = step;
  write_file_atomic(path_, json.dump() + "\n");
}

void HealthFile::try_write(std::string_view state) {
  try {
    write(state);
  } catch (const Error& error) {
    if (std::exchange(has_warned_, true)) return;
    log_warning(
        fmt::format("the health file is not written, and the run goes on: {}", error.what()));
  }
}

void HealthFile::on_mini_batch(const train::Progress& progress) {
  step_ = progress.step;
  has_progress_ = true;
}
void HealthFile::on_epoch(const train::EpochSummary&) { has_progress_ = true; }
void HealthFile::on_evaluation(const train::Evaluation& evaluation) {
  step_ = evaluation.step;
  has_progress_ = true;
}
void HealthFile::on_action(WorkerId, const schedule::TimelineEvent&) {
  if (!has_progress_.load(std::memory_order_relaxed)) has_progress_ = true;
}

}  // namespace penstock::job
