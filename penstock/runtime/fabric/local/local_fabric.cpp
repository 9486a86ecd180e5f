#include "penstock/runtime/fabric/local/local_fabric.h"

#include <fmt/format.h>

#include <chrono>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::runtime {

namespace {

std::vector<const std::atomic<bool>*> stops_of(const std::vector<const RunSetup*>& setups) {
  std::vector<const std::atomic<bool>*> stops;
  for (const RunSetup* setup : setups) stops.push_back(setup->stop);
  return stops;
}

}  // namespace

LocalRun::LocalRun(const std::vector<const RunSetup*>& setups)
    : origin_ns(steady_ns()),
      exchange(setups.front()->schedule, setups.front()->credits),
      teams(setups.front()->schedule.shape),
      board(setups.front()->schedule.shape),
      gate(stops_of(setups)),
      losses(setups.front()->endless ? 0 : setups.front()->schedule.shape.num_mini_batches(),
             setups.front()->mini_batch_samples,
             [this, go_on = setups.front()->on_mini_batch](MiniBatchId mini_batch,
                                                           const MiniBatchStats& stats) {
               if (go_on && !go_on(mini_batch, stats)) gate.stop();
             }),
      end(static_cast<int>(setups.size())) {
  const RunSetup& setup = *setups.front();
  const schedule::ScheduleShape& shape = setup.schedule.shape;
  for (size_t s = 0; s < setup.weights.size(); ++s) {
    const int replicas = shape.replicas[s];
    sums.push_back(replicas > 1
                       ? make_local_sum(setup.sync, replicas, setup.weights[s].shapes.size(),
                                        setup.staleness, setup.gradient_precision)
                       : nullptr);
    gathers.push_back(setup.sharing_of(s) == StateSharing::None
                          ? nullptr
                          : std::make_unique<LocalGather>(weight_shares(
                                setup.weights[s].shapes, setup.weights[s].layer_ends, replicas)));
  }
  if (shape.global_norm) {
    norms = std::make_unique<NormTable>(static_cast<int>(setup.schedule.workers.size()), setup.ties,
                                        setup.num_model_weights);
  }
}

void LocalRun::fail(int rank, std::exception_ptr exception) noexcept {
  {
    MutexLock lock(mutex_);
    if (!failure_) {
      rank_ = rank;
      failure_ = describe(exception);
      exception_ = std::move(exception);
    }
  }
  exchange.close();
  for (const auto& sum : sums) {
    if (sum) sum->close();
  }
  for (const auto& gather : gathers) {
    if (gather) gather->close();
  }
  if (norms) norms->close();
  teams.close();
}

bool LocalRun::failed() const {
  MutexLock lock(mutex_);
  return failure_.has_value();
}

void LocalRun::raise_failure(int rank) {
  std::exception_ptr own;
  Failure failure;
  {
    MutexLock lock(mutex_);
    if (!failure_) return;
    failure = *failure_;
    // Taken out, so that its rank ends it, too.
    if (rank == rank_) own = std::move(exception_);
  }
  if (own) std::rethrow_exception(std::move(own));
  raise(failure);
}

LocalSum& LocalRun::sum(StageId stage) const {
  const auto& sum = sums[stage.index()];
  PENSTOCK_CHECK(sum != nullptr, "stage", stage, "has one replica: there is nothing to sum");
  return *sum;
}

LocalGather& LocalRun::gather(StageId stage) const {
  const auto& gather = gathers[stage.index()];
  PENSTOCK_CHECK(gather != nullptr, "stage", stage, "does not share out the optimiser's state");
  return *gather;
}

WaitResult LocalFabric::combine(NormShare share, NormTotals& totals, Wait& wait) {
  PENSTOCK_CHECK(run_->norms != nullptr, "the schedule has no NORM");
  const WorkerId worker = share.worker;
  const MiniBatchId mini_batch = share.mini_batch;
  const WaitResult result = run_->norms->combine(std::move(share), totals, wait);
  if (result == WaitResult::Ready && worker.value == 0)
    run_->losses.set_norm(mini_batch, totals.norm);
  return result;
}

RunOutcome LocalFabric::finish(Wait& wait) {
  const WaitResult result = run_->end.wait(wait);
  run_->raise_failure(rank_);
  if (result != WaitResult::Ready) {
    throw TimeoutError(
        fmt::format("another rank has not finished its run; the workers are:{}", who_waits()));
  }
  const int64_t count = run_->gate.last_started() + 1;
  return {.mini_batches = run_->losses.take(count), .num_mini_batches = count};
}

}  // namespace penstock::runtime
