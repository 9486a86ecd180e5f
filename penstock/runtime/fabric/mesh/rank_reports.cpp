#include "penstock/runtime/fabric/mesh/rank_reports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <utility>

namespace penstock::runtime {

namespace {

/// How long all() waits for the other ranks.
constexpr std::chrono::seconds kAnswers{2};

}  // namespace

RankReports::RankReports(const RunNotes& notes, const Site& site,
                         const schedule::ScheduleShape& shape)
    : notes_(notes), site_(site), labels_(worker_labels(shape)), board_(shape) {}

std::string RankReports::name_of(int rank) const {
  std::vector<std::string> workers;
  for (size_t w = 0; w < site_.rank_of_worker.size(); ++w) {
    if (site_.rank_of_worker[w] == rank)
      workers.push_back(fmt::format("worker {}: {}", w, labels_[w]));
  }
  if (workers.empty()) return fmt::format("rank {} (adds gradients)", rank);
  return fmt::format("rank {} ({})", rank, fmt::join(workers, "; "));
}

std::string RankReports::all() {
  {
    MutexLock lock(mutex_);
    answers_.clear();
    answers_[site_.rank] = own();
  }
  notes_.tell_all(NoteKind::AskWorkers);
  MutexLock lock(mutex_);
  changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kAnswers,
                      [this]() NO_THREAD_SAFETY_ANALYSIS {
                        return static_cast<int>(answers_.size() + lost_.size()) >= notes_.ranks();
                      });
  std::string text;
  for (int r = 0; r < notes_.ranks(); ++r) {
    const auto answer = answers_.find(r);
    const auto lost = lost_.find(r);
    if (answer != answers_.end())
      text += answer->second;
    else
      text += fmt::format("\n  {} {}", name_of(r),
                          lost == lost_.end() ? "does not answer" : lost->second);
  }
  return text;
}

void RankReports::on_answer(int peer, std::string workers) {
  MutexLock lock(mutex_);
  answers_[peer] = std::move(workers);
  changed_.notify_all();
}

void RankReports::on_lost(int peer, const std::string& why) {
  MutexLock lock(mutex_);
  lost_[peer] = why;
  changed_.notify_all();
}

}  // namespace penstock::runtime
