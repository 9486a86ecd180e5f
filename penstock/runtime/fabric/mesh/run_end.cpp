#include "penstock/runtime/fabric/mesh/run_end.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

/// How often a rank without workers looks at the stop flag.
constexpr std::chrono::milliseconds kLookAgain{100};

/// A text that ends in a colon, with the list that it announces, which may be empty.
std::string listed(const std::string& text, const std::string& list) {
  return text + (list.empty() && text.ends_with(':') ? " none" : list);
}

Failure get_failure(net::WireReader& in) {
  const auto kind = in.get<Failure::Kind>();
  return {kind, std::string(in.text())};
}

}  // namespace

/// What rank 0 tells all ranks at the end.
struct RunEnd::Outcome {
  std::optional<Failure> failure;
  std::vector<MiniBatchStats> mini_batches;
};

RunEnd::RunEnd(const RunNotes& notes, RankReports& reports, MeshStop& stop, LossCollector& losses,
               std::function<void()> close)
    : notes_(notes), reports_(reports), stop_(stop), losses_(losses), close_(std::move(close)) {}

RunEnd::~RunEnd() = default;

void RunEnd::open() {
  bool failed = false;
  {
    MutexLock lock(mutex_);
    is_open_ = true;
    failed = failure_.has_value();
  }
  if (failed) close_();
}

// ---- failures

bool RunEnd::failed() const {
  MutexLock lock(mutex_);
  return failure_.has_value();
}

bool RunEnd::close(Failure failure, std::exception_ptr exception) {
  const std::string workers = reports_.own();
  {
    MutexLock lock(mutex_);
    if (failure_) return false;
    workers_then_ = workers;
    failure_ = std::move(failure);
    exception_ = std::move(exception);
    changed_.notify_all();
    // Not open yet: open() closes what there will be.
    if (!is_open_) return true;
  }
  close_();
  return true;
}

void RunEnd::fail(std::exception_ptr exception) noexcept {
  try {
    const Failure failure = describe(exception);
    if (close(failure, std::move(exception))) tell(failure);
  } catch (...) {
    // No memory for the message: closing needs none, and finish() tells the others.
    close_();
  }
}

void RunEnd::tell(const Failure& failure) const {
  notes_.tell_all(NoteKind::Fail, failure.kind, failure.text);
}

void RunEnd::on_fail(net::WireReader& in) { close(get_failure(in), nullptr); }

void RunEnd::on_lost(int peer, const std::string& why) {
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    is_over = outcome_ != nullptr;
  }
  if (!is_over) {
    const std::string text =
        fmt::format("{} {}; the workers that can be reached are:", reports_.name_of(peer), why);
    const Failure failure{Failure::Kind::Transport, text};
    // Told to all, so that nobody takes a rank for the cause that only gives up because of this
    // one.
    if (close(failure, nullptr)) tell(failure);
  }
  // Who waits for the end finds the failure when it finds that a rank is lost.
  MutexLock lock(mutex_);
  lost_.insert(peer);
  changed_.notify_all();
  if (!is_over) end_if_all_done();
}

// ---- the end

void RunEnd::on_done(int peer, net::WireReader& in) {
  const auto started = in.get<int64_t>();
  const std::string failure(in.text());
  if (!failure.empty()) {
    net::WireReader of_failure(failure);
    on_fail(of_failure);
  }
  add_done(peer, started, std::string(in.text()));
}

void RunEnd::add_done(int rank, int64_t started, const std::string& workers) {
  MutexLock lock(mutex_);
  workers_of_done_[rank] = workers;
  last_started_ = std::max(last_started_, started);
  end_if_all_done();
}

void RunEnd::end_if_all_done() {
  if (!notes_.is_first() || outcome_) return;
  for (int r = 0; r < notes_.ranks(); ++r) {
    if (!workers_of_done_.contains(r) && !lost_.contains(r)) return;
  }
  outcome_ = std::make_unique<Outcome>();
  std::string note;
  if (failure_) {
    outcome_->failure = failure_;
    if (failure_->kind == Failure::Kind::Transport) {
      for (const auto& [rank, workers] : workers_of_done_) outcome_->failure->text += workers;
      outcome_->failure->text = listed(outcome_->failure->text, "");
    }
    note = net::wire_text(NoteKind::End, true, outcome_->failure->kind, outcome_->failure->text);
  } else {
    outcome_->mini_batches = losses_.take(last_started_ + 1);
    note = net::wire_text(NoteKind::End, false, outcome_->mini_batches);
  }
  changed_.notify_all();
  for (int r = 1; r < notes_.ranks(); ++r) {
    if (!lost_.contains(r)) notes_.hub().tell(r, notes_.run(), note);
  }
}

void RunEnd::on_end(net::WireReader& in) {
  auto outcome = std::make_unique<Outcome>();
  if (in.get<bool>())
    outcome->failure = get_failure(in);
  else
    outcome->mini_batches = in.list<MiniBatchStats>();
  MutexLock lock(mutex_);
  outcome_ = std::move(outcome);
  changed_.notify_all();
}

bool RunEnd::wait_for_end(Wait& wait) {
  const bool has_workers = reports_.has_workers();
  while (true) {
    // Workers look at the stop flag; where there are none, this thread does.
    if (!has_workers) stop_.look();
    const CondVar::Deadline look =
        has_workers ? wait.deadline
                    : std::min(wait.deadline, CondVar::Deadline::clock::now() + kLookAgain);
    bool ended = false;
    {
      MutexLock lock(mutex_);
      ended = changed_.wait_until(mutex_, look, [this]() NO_THREAD_SAFETY_ANALYSIS {
        return outcome_ != nullptr || lost_.contains(0);
      });
    }
    if (ended || has_workers || CondVar::Deadline::clock::now() >= wait.deadline) return ended;
  }
}

std::string RunEnd::report_done() {
  std::string failure;
  std::string workers;
  {
    MutexLock lock(mutex_);
    workers = workers_then_;
    if (failure_) failure = net::wire_text(failure_->kind, failure_->text);
  }
  if (notes_.is_first())
    add_done(0, stop_.last_started(), workers);
  else
    notes_.tell(0, NoteKind::Done, stop_.last_started(), failure, workers);
  return workers;
}

RunOutcome RunEnd::finish(Wait& wait) {
  const std::string workers = report_done();
  if (!wait_for_end(wait)) {
    const std::string text =
        listed("another rank has not finished its run; the workers are:", reports_.all());
    fail(std::make_exception_ptr(TimeoutError(text)));
    throw TimeoutError(text);
  }
  MutexLock lock(mutex_);
  if (!outcome_) {
    // Rank 0 is lost: this rank's own view is all there is.
    raise({Failure::Kind::Transport,
           listed(failure_ ? failure_->text
                           : reports_.name_of(0) + " is lost; this rank's workers are:",
                  workers)});
  }
  if (outcome_->failure) {
    if (exception_ && failure_->text == outcome_->failure->text) std::rethrow_exception(exception_);
    raise(*outcome_->failure);
  }
  return {.mini_batches = outcome_->mini_batches,
          .num_mini_batches = static_cast<int64_t>(outcome_->mini_batches.size())};
}

}  // namespace penstock::runtime
