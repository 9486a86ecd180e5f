#include "penstock/runtime/fabric/mesh/mesh_fabric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/mesh/delayed_mesh_sum.h"
#include "penstock/runtime/fabric/mesh/hierarchical_sum.h"
#include "penstock/runtime/fabric/mesh/mesh_sum.h"
#include "penstock/runtime/fabric/mesh/ring_sum.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/steady_ns.h"

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

/// Bytes of gradients that are on their way: enough for any network, few enough that what is more
/// urgent comes soon. Fewer where servers add: a server waits for the slowest replica, and the
/// window limits how far the others can be ahead.
constexpr int64_t kSendWindow = int64_t{4} << 20;
constexpr int64_t kServerSendWindow = int64_t{1} << 20;
/// How often a rank without workers looks at the stop flag.
constexpr std::chrono::milliseconds kLook{100};
/// How long who_waits() waits for the other ranks.
constexpr std::chrono::seconds kAnswers{2};

void put_failure(net::WireWriter& out, const Failure& failure) {
  out.put(failure.kind);
  out.text(failure.text);
}

Failure get_failure(net::WireReader& in) {
  const auto kind = in.get<Failure::Kind>();
  return {kind, std::string(in.text())};
}

/// Per owner: the share of a replica, or of a machine, then that of a server.
std::vector<double> shares_of(plan::GradientSync sync, size_t replicas, int servers) {
  const plan::SumShares shares = plan::sum_shares(sync, static_cast<int>(replicas), servers);
  std::vector<double> share_of(replicas, shares.replica);
  share_of.resize(share_of.size() + static_cast<size_t>(servers), shares.server);
  return share_of;
}

std::shared_ptr<StageSum> make_hierarchical_sum(StageSumSetup setup, const Site& site) {
  std::vector<int> hosts;
  for (int rank = 0; rank < site.num_ranks(); ++rank) hosts.push_back(site.host_of(rank));
  Machines machines = machines_of(setup.rank_of_replica, hosts);
  const std::vector<double> shares =
      shares_of(plan::GradientSync::Hierarchical, machines.ranks.size(), site.servers);
  return std::make_shared<HierarchicalSum>(std::move(setup), std::move(machines), shares);
}

}  // namespace

/// What rank 0 tells all ranks at the end.
struct MeshRun::Outcome {
  std::optional<Failure> failure;
  std::vector<MiniBatchStats> mini_batches;
};

MeshRun::MeshRun(std::shared_ptr<MeshHub> hub, uint32_t run, Site site, const RunSetup& setup)
    : hub_(std::move(hub)),
      site_(std::move(site)),
      table_(setup.schedule.shape),
      labels_(worker_labels(setup.schedule.shape)),
      run_(run),
      exchange_(setup.schedule, setup.credits),
      board_(labels_),
      gate_(setup.stop),
      stop_round_(hub_->ranks()),
      losses_(setup.schedule.shape.num_mini_batches(), setup.mini_batch_samples,
              [this, go_on = setup.on_mini_batch](MiniBatchId t, const MiniBatchStats& stats) {
                if (go_on && !go_on(t, stats)) ask_for_stop();
              }) {}

MeshRun::~MeshRun() {
  if (window_) window_->close();
  if (service_) service_->stop();
}

void MeshRun::open(const RunSetup& setup, Wait& wait) {
  net::Mesh& mesh = hub_->mesh();
  channels_ = std::make_unique<MeshChannels>(mesh, run_, site_, setup);
  uint32_t next = channels_->channels();
  open_sums(setup, next);
  if (setup.schedule.shape.global_norm && !site_.own_workers().empty())
    norm_ = std::make_unique<MeshNorm>(mesh, run_, next, site_, setup);
  channels_->start();
  for (const auto& sum : sums_) {
    if (sum) sum->begin();
  }
  if (norm_) norm_->start();
  bool failed = false;
  {
    MutexLock lock(mutex_);
    is_open_ = true;
    failed = failure_.has_value();
  }
  if (failed) close_all();
  check_same_run(setup, wait);
}

void MeshRun::open_sums(const RunSetup& setup, uint32_t& next_channel) {
  const schedule::ScheduleShape& shape = setup.schedule.shape;
  const bool servers_add = site_.servers > 0 && setup.sync != plan::GradientSync::Ordered &&
                           setup.sync != plan::GradientSync::Ring;
  for (size_t s = 0; s < setup.weights.size(); ++s) {
    const StageWeights& weights = setup.weights[s];
    reduces_.push_back(nullptr);
    sums_.push_back(nullptr);
    local_gathers_.push_back(nullptr);
    gathers_.push_back(nullptr);
    bucket_ends_.push_back({weights.shapes.size()});
    const int replicas = shape.replicas[s];
    if (replicas == 1) continue;
    std::vector<int> ranks;
    for (int r = 0; r < replicas; ++r) {
      const WorkerId worker = table_.worker_of_replica(StageId{static_cast<int32_t>(s)}, r);
      ranks.push_back(site_.rank_of_worker[worker.index()]);
    }
    const StateSharing sharing = setup.sharing_of(s);
    if (std::set<int>(ranks.begin(), ranks.end()).size() == 1) {
      if (ranks.front() != site_.rank) continue;
      reduces_.back() = make_local_sum(setup.sync, replicas, weights.shapes.size(), setup.staleness,
                                       setup.gradient_precision);
      if (sharing != StateSharing::None) {
        local_gathers_.back() = std::make_unique<LocalGather>(
            weight_shares(weights.shapes, weights.layer_ends, replicas));
      }
      continue;
    }
    bucket_ends_.back() = make_buckets(numbers_of(weights.shapes), weights.layer_ends);
    if (!service_) {
      service_ = std::make_shared<SumService>(
          [this](std::exception_ptr failure) { fail(std::move(failure)); });
      window_ = std::make_shared<SendWindow>(servers_add ? kServerSendWindow : kSendWindow);
    }
    StageSumSetup sum{.mesh = hub_->mesh(),
                      .service = service_,
                      .window = window_,
                      .run = run_,
                      .first_channel = next_channel,
                      .rank_of_replica = std::move(ranks),
                      .rank_of_server = site_.server_ranks(),
                      .shapes = weights.shapes,
                      .bucket_ends = bucket_ends_.back(),
                      .most_numbers = servers_add ? kServerShardNumbers : kShardNumbers,
                      .precision = setup.gradient_precision};
    if (sharing != StateSharing::None) {
      gathers_.back() = std::make_shared<MeshGather>(sum);
      next_channel += StageSum::channels(static_cast<size_t>(replicas));
      sum.first_channel = next_channel;
    }
    if (setup.sync == plan::GradientSync::Hierarchical) {
      sums_.back() = make_hierarchical_sum(std::move(sum), site_);
      next_channel += HierarchicalSum::channels(static_cast<size_t>(replicas));
      continue;
    }
    next_channel += StageSum::channels(static_cast<size_t>(replicas));
    if (setup.sync == plan::GradientSync::Ring) {
      sums_.back() = std::make_shared<RingSum>(std::move(sum));
      continue;
    }
    std::vector<double> share_of =
        shares_of(setup.sync, static_cast<size_t>(replicas), site_.servers);
    if (sharing == StateSharing::OwnSums && setup.sync == plan::GradientSync::Ordered) {
      sum.own_shards_only = true;
      share_of = even_shares(replicas, site_.servers);
    }
    if (setup.sync == plan::GradientSync::Asynchronous)
      sums_.back() = std::make_shared<DelayedMeshSum>(std::move(sum), share_of, setup.staleness);
    else
      sums_.back() = std::make_shared<MeshSum>(std::move(sum), share_of);
  }
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

void MeshRun::start_sum(StageId stage, int replica, size_t bucket, Partials partials) {
  if (reduces_[stage.index()]) {
    reduces_[stage.index()]->start(replica, std::move(partials));
    return;
  }
  PENSTOCK_CHECK(sums_[stage.index()] != nullptr, "stage", stage,
                 "has one replica: there is nothing to sum");
  if (gathers_[stage.index()]) gathers_[stage.index()]->post(replica, bucket);
  sums_[stage.index()]->start(replica, bucket, std::move(partials));
}

WaitResult MeshRun::finish_sum(StageId stage, int replica, size_t bucket, BucketSum& sum,
                               Wait& wait) {
  if (reduces_[stage.index()]) return reduces_[stage.index()]->finish(replica, sum.sums, wait);
  return sums_[stage.index()]->finish(replica, bucket, sum, wait);
}

void MeshRun::start_gather(StageId stage, int replica, size_t bucket, model::Tensors weights) {
  if (local_gathers_[stage.index()])
    return local_gathers_[stage.index()]->start(replica, std::move(weights));
  PENSTOCK_CHECK(gathers_[stage.index()] != nullptr, "stage", stage,
                 "does not share out the optimiser's state");
  gathers_[stage.index()]->start(replica, bucket, {{.group = 0, .sums = std::move(weights)}});
}

WaitResult MeshRun::finish_gather(StageId stage, int replica, size_t bucket, Wait& wait) {
  if (local_gathers_[stage.index()]) return local_gathers_[stage.index()]->finish(replica, wait);
  BucketSum filled;
  return gathers_[stage.index()]->finish(replica, bucket, filled, wait);
}

WaitResult MeshRun::combine(NormShare share, NormTotals& totals, Wait& wait) {
  PENSTOCK_CHECK(norm_ != nullptr, "the schedule has no NORM");
  const MiniBatchId mini_batch = share.mini_batch;
  const WaitResult result = norm_->run(std::move(share), totals, wait);
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
  net::WireWriter out;
  out.put(Note::AskStop);
  hub_->tell(0, run_, out.take());
}

void MeshRun::freeze_all() {
  if (!stop_round_.begin()) return;
  net::WireWriter out;
  out.put(Note::Freeze);
  tell_all(out.take());
  on_frozen(gate_.freeze());
}

void MeshRun::on_frozen(int64_t started) {
  int64_t limit = 0;
  if (!stop_round_.on_frozen(started, limit)) return;
  net::WireWriter out;
  out.put(Note::Limit);
  out.put(limit);
  tell_all(out.take());
  gate_.set_limit(limit);
}

// ---- losses

void MeshRun::report(MiniBatchId mini_batch, MicroBatchId micro_batch, const MiniBatchStats& part) {
  if (is_first()) {
    losses_.add(mini_batch, micro_batch, part);
    return;
  }
  net::WireWriter out;
  out.put(Note::Loss);
  out.put(mini_batch);
  out.put(micro_batch);
  out.put(part);
  hub_->tell(0, run_, out.take());
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
  for (const auto& reduce : reduces_) {
    if (reduce) reduce->close();
  }
  for (const auto& sum : sums_) {
    if (sum) sum->close();
  }
  for (const auto& gather : local_gathers_) {
    if (gather) gather->close();
  }
  for (const auto& gather : gathers_) {
    if (gather) gather->close();
  }
  if (norm_) norm_->close();
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
  net::WireWriter out;
  out.put(Note::Fail);
  put_failure(out, failure);
  tell_all(out.take());
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
  net::WireWriter out;
  out.put(Note::AskWorkers);
  {
    MutexLock lock(mutex_);
    answers_.clear();
    answers_[site_.rank] = own_workers();
  }
  tell_all(out.take());
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
  net::WireWriter out;
  out.put(Note::End);
  out.put<bool>(failure_.has_value());
  if (failure_) {
    outcome_->failure = failure_;
    if (failure_->kind == Failure::Kind::Transport) {
      for (const auto& [rank, workers] : workers_of_done_) outcome_->failure->text += workers;
    }
    put_failure(out, *outcome_->failure);
  } else {
    outcome_->mini_batches = losses_.take(last_started_ + 1);
    out.list(outcome_->mini_batches);
  }
  changed_.notify_all();
  const std::string note = out.take();
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
                    : std::min(wait.deadline, CondVar::Deadline::clock::now() + kLook);
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

RunOutcome MeshRun::finish(Wait& wait) {
  std::string failure;
  std::string workers;
  {
    MutexLock lock(mutex_);
    workers = workers_then_;
    if (failure_) {
      net::WireWriter text;
      put_failure(text, *failure_);
      failure = text.take();
    }
  }
  if (is_first()) {
    on_done(0, gate_.last_started(), {}, workers);
  } else {
    net::WireWriter out;
    out.put(Note::Done);
    out.put<int64_t>(gate_.last_started());
    out.text(failure);
    out.text(workers);
    hub_->tell(0, run_, out.take());
  }
  if (!wait_for_end(wait)) {
    const std::string text =
        fmt::format("another rank has not finished its run; the workers are:{}", who_waits());
    fail(std::make_exception_ptr(TimeoutError(text)));
    throw TimeoutError(text);
  }
  MutexLock lock(mutex_);
  if (!outcome_) {
    // Rank 0 is lost: this rank's own view is all there is.
    raise({Failure::Kind::Transport,
           (failure_ ? failure_->text : name_of(0) + " is lost:") + workers});
  }
  if (outcome_->failure) {
    if (exception_ && failure_->text == outcome_->failure->text) std::rethrow_exception(exception_);
    raise(*outcome_->failure);
  }
  return {.mini_batches = outcome_->mini_batches,
          .num_mini_batches = static_cast<int64_t>(outcome_->mini_batches.size())};
}

// ---- notes

void MeshRun::tell_all(const std::string& note) {
  for (int r = 0; r < hub_->ranks(); ++r) {
    if (r != site_.rank) hub_->tell(r, run_, note);
  }
}

void MeshRun::on_note(int peer, const std::string& note) {
  net::WireReader in(note);
  switch (in.get<Note>()) {
    case Note::Loss: {
      const auto mini_batch = in.get<MiniBatchId>();
      const auto micro_batch = in.get<MicroBatchId>();
      try {
        losses_.add(mini_batch, micro_batch, in.get<MiniBatchStats>());
      } catch (...) {
        fail(std::current_exception());
      }
      return;
    }
    case Note::Fail:
      close(get_failure(in), nullptr);
      return;
    case Note::AskStop:
      freeze_all();
      return;
    case Note::Freeze: {
      net::WireWriter out;
      out.put(Note::Frozen);
      out.put<int64_t>(gate_.freeze());
      hub_->tell(0, run_, out.take());
      return;
    }
    case Note::Frozen:
      on_frozen(in.get<int64_t>());
      return;
    case Note::Limit:
      gate_.set_limit(in.get<int64_t>());
      return;
    case Note::Done: {
      const auto started = in.get<int64_t>();
      const std::string failure(in.text());
      on_done(peer, started, failure, std::string(in.text()));
      return;
    }
    case Note::End: {
      auto outcome = std::make_unique<Outcome>();
      if (in.get<bool>())
        outcome->failure = get_failure(in);
      else
        outcome->mini_batches = in.list<MiniBatchStats>();
      MutexLock lock(mutex_);
      outcome_ = std::move(outcome);
      changed_.notify_all();
      return;
    }
    case Note::AskWorkers: {
      net::WireWriter out;
      out.put(Note::Workers);
      out.text(own_workers());
      hub_->tell(peer, run_, out.take());
      return;
    }
    case Note::Workers: {
      MutexLock lock(mutex_);
      answers_[peer] = in.text();
      changed_.notify_all();
      return;
    }
  }
}

}  // namespace penstock::runtime
