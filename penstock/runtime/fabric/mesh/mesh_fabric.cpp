#include "penstock/runtime/fabric/mesh/mesh_fabric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "penstock/net/wire.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::runtime {

namespace {

enum class Note : uint8_t {
  Loss,        ///< to rank 0: the loss of a micro-batch
  Fail,        ///< to all: the first failure of a rank
  AskStop,     ///< to rank 0
  Freeze,      ///< from rank 0
  Frozen,      ///< to rank 0: the last mini-batch that was begun
  Limit,       ///< from rank 0: the last mini-batch of the run
  Done,        ///< to rank 0: this rank's workers have ended
  End,         ///< from rank 0: how the run ended
  AskWorkers,  ///< what are your workers doing?
  Workers,     ///< this
};

/// How often a rank without workers looks at the stop flag.
constexpr std::chrono::milliseconds kLookAgain{100};
/// How long who_waits() waits for the other ranks.
constexpr std::chrono::seconds kAnswers{2};

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
struct MeshRun::Outcome {
  std::optional<Failure> failure;
  std::vector<MiniBatchStats> mini_batches;
};

MeshRun::MeshRun(std::shared_ptr<MeshHub> hub, Site site, const RunSetup& setup)
    : hub_(std::move(hub)),
      site_(std::move(site)),
      table_(setup.schedule.shape),
      labels_(worker_labels(setup.schedule.shape)),
      run_(hub_->next_run()),
      exchange_(setup.schedule, setup.credits),
      board_(labels_),
      gate_(setup.stop),
      stop_round_(hub_->ranks()),
      losses_(setup.schedule.shape.num_mini_batches(), setup.mini_batch_samples,
              [this, go_on = setup.on_mini_batch](MiniBatchId t, const MiniBatchStats& stats) {
                if (go_on && !go_on(t, stats)) ask_for_stop();
              }) {
  hub_->begin_run(run_, *this);
}

MeshRun::~MeshRun() {
  hub_->end_run(run_);
  if (sums_) sums_->stop();
}

void MeshRun::open(const RunSetup& setup, Wait& wait) {
  net::Mesh& mesh = hub_->mesh();
  channels_ = std::make_unique<MeshChannels>(mesh, run_, site_, setup);
  sums_ = std::make_unique<MeshRunSums>(
      mesh, run_, channels_->channels(), site_, setup,
      [this](std::exception_ptr failure) { fail(std::move(failure)); });
  channels_->start();
  sums_->start();
  bool failed = false;
  {
    MutexLock lock(mutex_);
    is_open_ = true;
    failed = failure_.has_value();
  }
  if (failed) close_all();
  check_same_run(setup, wait);
}

void MeshRun::check_same_run(const RunSetup& setup, Wait& wait) {
  size_t actions = 0;
  for (const auto& of_worker : setup.schedule.workers) actions += of_worker.size();
  // And the run begins, on rank 0's clock, when the last rank has come.
  const int64_t offset = hub_->mesh().clock_offset(0).ns;
  net::WireWriter out;
  out.text(
      fmt::format("{} stages on {} workers, {} micro-batches, {} actions, {} credits, {} in {}",
                  setup.schedule.shape.num_stages(), setup.schedule.workers.size(),
                  setup.schedule.shape.micro_batches, actions, setup.credits,
                  plan::to_string(setup.sync), to_string(setup.gradient_precision)));
  out.put<int64_t>(steady_ns() + offset);
  const std::vector<std::string> texts = hub_->all_gather(out.take(), wait);
  net::WireReader first(texts.front());
  const std::string_view expected = first.text();
  int64_t begin = 0;
  for (size_t r = 0; r < texts.size(); ++r) {
    net::WireReader other(texts[r]);
    const std::string_view found = other.text();
    if (found != expected) {
      throw RuntimeError(fmt::format("the ranks run different schedules: rank 0 has {}, rank {} {}",
                                     expected, r, found));
    }
    begin = std::max(begin, other.get<int64_t>());
  }
  origin_ns_ = begin - offset;
}

// ---- what the workers call

bool MeshRun::is_local(const Message& message) const {
  return site_.holds(table_.worker_of(message.from, message.micro_batch)) &&
         site_.holds(table_.worker_of(message.to, message.micro_batch));
}

WaitResult MeshRun::send(const Message& message, model::Tensors tensors, Wait& wait) {
  return is_local(message) ? exchange_.send(message, std::move(tensors), wait)
                           : channels_->send(message, std::move(tensors), wait);
}

WaitResult MeshRun::receive(const Message& message, model::Tensors& tensors, Wait& wait) {
  return is_local(message) ? exchange_.receive(message, tensors, wait)
                           : channels_->receive(message, tensors, wait);
}

WaitResult MeshRun::combine(NormShare share, NormTotals& totals, Wait& wait) {
  const MiniBatchId mini_batch = share.mini_batch;
  const WaitResult result = sums_->combine(std::move(share), totals, wait);
  if (result == WaitResult::Ready && is_first()) losses_.set_norm(mini_batch, totals.norm);
  return result;
}

// ---- the stop

bool MeshRun::begin(WorkerId, MiniBatchId mini_batch) {
  while (true) {
    switch (gate_.enter(mini_batch)) {
      case MeshGate::Entry::Enters:
        return true;
      case MeshGate::Entry::Stays:
        return false;
      case MeshGate::Entry::Asks:
        ask_for_stop();
    }
  }
}

void MeshRun::ask_for_stop() {
  if (is_first()) {
    freeze_all();
    return;
  }
  hub_->tell(0, run_, net::wire_text(Note::AskStop));
}

void MeshRun::freeze_all() {
  if (!stop_round_.begin()) return;
  tell_all(net::wire_text(Note::Freeze));
  on_frozen(gate_.freeze());
}

void MeshRun::on_frozen(int64_t started) {
  int64_t limit = 0;
  if (!stop_round_.on_frozen(started, limit)) return;
  tell_all(net::wire_text(Note::Limit, limit));
  gate_.set_limit(limit);
}

// ---- losses

void MeshRun::report(MiniBatchId mini_batch, MicroBatchId micro_batch, const MiniBatchStats& part) {
  if (is_first())
    losses_.add(mini_batch, micro_batch, part);
  else
    hub_->tell(0, run_, net::wire_text(Note::Loss, mini_batch, micro_batch, part));
}

// ---- failures

bool MeshRun::failed() const {
  MutexLock lock(mutex_);
  return failure_.has_value();
}

bool MeshRun::close(Failure failure, std::exception_ptr exception) {
  const std::string workers = own_workers();
  {
    MutexLock lock(mutex_);
    if (failure_) return false;
    workers_then_ = workers;
    failure_ = std::move(failure);
    exception_ = std::move(exception);
    changed_.notify_all();
    // Not open yet: open() closes what it makes.
    if (!is_open_) return true;
  }
  close_all();
  return true;
}

void MeshRun::close_all() {
  exchange_.close();
  if (sums_) sums_->close();
  gate_.close();
  hub_->mesh().close_run(run_);
}

void MeshRun::fail(std::exception_ptr exception) noexcept {
  try {
    const Failure failure = describe(exception);
    if (close(failure, std::move(exception))) tell_failure(failure);
  } catch (...) {
    // No memory for the message: closing needs none, and finish() tells the others.
    close_all();
  }
}

void MeshRun::tell_failure(const Failure& failure) {
  tell_all(net::wire_text(Note::Fail, failure.kind, failure.text));
}

void MeshRun::tell_all(const std::string& note) {
  for (int r = 0; r < hub_->ranks(); ++r) {
    if (r != site_.rank) hub_->tell(r, run_, note);
  }
}

std::string MeshRun::name_of(int rank) const {
  std::vector<std::string> workers;
  for (size_t w = 0; w < site_.rank_of_worker.size(); ++w) {
    if (site_.rank_of_worker[w] == rank)
      workers.push_back(fmt::format("worker {}: {}", w, labels_[w]));
  }
  if (workers.empty()) return fmt::format("rank {} (adds gradients)", rank);
  return fmt::format("rank {} ({})", rank, fmt::join(workers, "; "));
}

void MeshRun::on_lost(int peer, const std::string& why) {
  {
    MutexLock lock(mutex_);
    lost_[peer] = why;
    changed_.notify_all();
    if (outcome_) return;
  }
  const std::string text =
      fmt::format("{} {}; the workers that can be reached are:", name_of(peer), why);
  const Failure failure{Failure::Kind::Transport, text};
  // Told to all, so that nobody takes a rank for the cause that only gives up because of this one.
  if (close(failure, nullptr)) tell_failure(failure);
  MutexLock lock(mutex_);
  end_if_all_done();
}

std::string MeshRun::who_waits() {
  {
    MutexLock lock(mutex_);
    answers_.clear();
    answers_[site_.rank] = own_workers();
  }
  tell_all(net::wire_text(Note::AskWorkers));
  MutexLock lock(mutex_);
  changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kAnswers,
                      [this]() NO_THREAD_SAFETY_ANALYSIS {
                        return static_cast<int>(answers_.size() + lost_.size()) >= hub_->ranks();
                      });
  std::string text;
  for (int r = 0; r < hub_->ranks(); ++r) {
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

// ---- the end

void MeshRun::on_done(int rank, int64_t started, const std::string& failure,
                      const std::string& workers) {
  if (!failure.empty()) {
    net::WireReader in(failure);
    close(get_failure(in), nullptr);
  }
  MutexLock lock(mutex_);
  workers_of_done_[rank] = workers;
  last_started_ = std::max(last_started_, started);
  end_if_all_done();
}

void MeshRun::end_if_all_done() {
  if (!is_first() || outcome_) return;
  for (int r = 0; r < hub_->ranks(); ++r) {
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
    note = net::wire_text(Note::End, true, outcome_->failure->kind, outcome_->failure->text);
  } else {
    outcome_->mini_batches = losses_.take(last_started_ + 1);
    note = net::wire_text(Note::End, false, outcome_->mini_batches);
  }
  changed_.notify_all();
  for (int r = 1; r < hub_->ranks(); ++r) {
    if (!lost_.contains(r)) hub_->tell(r, run_, note);
  }
}

bool MeshRun::wait_for_end(Wait& wait) {
  const bool has_workers = !site_.own_workers().empty();
  while (true) {
    // Workers look at the stop flag; where there are none, this thread does.
    if (!has_workers && gate_.wants_stop()) ask_for_stop();
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

std::string MeshRun::report_done() {
  std::string failure;
  std::string workers;
  {
    MutexLock lock(mutex_);
    workers = workers_then_;
    if (failure_) failure = net::wire_text(failure_->kind, failure_->text);
  }
  if (is_first())
    on_done(0, gate_.last_started(), {}, workers);
  else
    hub_->tell(0, run_, net::wire_text(Note::Done, gate_.last_started(), failure, workers));
  return workers;
}

RunOutcome MeshRun::finish(Wait& wait) {
  const std::string workers = report_done();
  if (!wait_for_end(wait)) {
    const std::string text =
        listed("another rank has not finished its run; the workers are:", who_waits());
    fail(std::make_exception_ptr(TimeoutError(text)));
    throw TimeoutError(text);
  }
  MutexLock lock(mutex_);
  if (!outcome_) {
    // Rank 0 is lost: this rank's own view is all there is.
    raise({Failure::Kind::Transport,
           listed(failure_ ? failure_->text : name_of(0) + " is lost; this rank's workers are:",
                  workers)});
  }
  if (outcome_->failure) {
    if (exception_ && failure_->text == outcome_->failure->text) std::rethrow_exception(exception_);
    raise(*outcome_->failure);
  }
  return {.mini_batches = outcome_->mini_batches,
          .num_mini_batches = static_cast<int64_t>(outcome_->mini_batches.size())};
}

// ---- notes

void MeshRun::on_note(int peer, const std::string& note) {
  net::WireReader in(note);
  switch (in.get<Note>()) {
    case Note::Loss:
      return on_loss(in);
    case Note::Fail:
      close(get_failure(in), nullptr);
      return;
    case Note::AskStop:
      return freeze_all();
    case Note::Freeze:
      return hub_->tell(0, run_, net::wire_text(Note::Frozen, gate_.freeze()));
    case Note::Frozen:
      return on_frozen(in.get<int64_t>());
    case Note::Limit:
      return gate_.set_limit(in.get<int64_t>());
    case Note::Done: {
      const auto started = in.get<int64_t>();
      const std::string failure(in.text());
      return on_done(peer, started, failure, std::string(in.text()));
    }
    case Note::End:
      return on_end(in);
    case Note::AskWorkers:
      return hub_->tell(peer, run_, net::wire_text(Note::Workers, own_workers()));
    case Note::Workers: {
      MutexLock lock(mutex_);
      answers_[peer] = in.text();
      changed_.notify_all();
      return;
    }
  }
}

void MeshRun::on_loss(net::WireReader& in) {
  const auto mini_batch = in.get<MiniBatchId>();
  const auto micro_batch = in.get<MicroBatchId>();
  try {
    losses_.add(mini_batch, micro_batch, in.get<MiniBatchStats>());
  } catch (...) {
    fail(std::current_exception());
  }
}

void MeshRun::on_end(net::WireReader& in) {
  auto outcome = std::make_unique<Outcome>();
  if (in.get<bool>())
    outcome->failure = get_failure(in);
  else
    outcome->mini_batches = in.list<MiniBatchStats>();
  MutexLock lock(mutex_);
  outcome_ = std::move(outcome);
  changed_.notify_all();
}

}  // namespace penstock::runtime
