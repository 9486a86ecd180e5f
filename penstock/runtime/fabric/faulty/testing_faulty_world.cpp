#include "penstock/runtime/fabric/faulty/testing_faulty_world.h"

#include <fmt/format.h>

#include <set>
#include <thread>
#include <utility>

#include "penstock/runtime/fabric/forwarding.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

namespace {

using schedule::Action;
using schedule::Op;

bool blocks(const Action& action) {
  return schedule::is_receive(action.op) || action.op == Op::SyncGradients ||
         action.op == Op::NormGradients;
}

/// Messages whose sender sends another one in the same mini-batch before it waits for anybody.
std::set<Message> overtakable(const schedule::Schedule& schedule) {
  std::set<Message> messages;
  for (const std::vector<Action>& actions : schedule.workers) {
    const Action* last = nullptr;
    for (const Action& action : actions) {
      if (blocks(action)) last = nullptr;
      if (!schedule::is_send(action.op)) continue;
      if (last != nullptr && last->mini_batch == action.mini_batch)
        messages.insert(message_of(*last));
      last = &action;
    }
  }
  return messages;
}

class FaultyFabric : public ForwardingFabric {
 public:
  FaultyFabric(std::unique_ptr<Fabric> inner, const RunSetup& setup, const Faults& faults)
      : ForwardingFabric(std::move(inner)),
        faults_(faults),
        table_(setup.schedule.shape),
        overtakable_(overtakable(setup.schedule)) {
    for (int32_t w = 0; w < table_.num_workers(); ++w)
      workers_.push_back({.rng = Rng(derive_seed(faults.seed, w)), .late = {}});
  }

  WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) override;
  WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait) override {
    if (!passes(table_.worker_of(message.to, message.micro_batch))) return WaitResult::Closed;
    return inner().receive(message, tensors, wait);
  }
  WaitResult finish_sum(StageId stage, int replica, size_t bucket, BucketSum& sum,
                        Wait& wait) override {
    if (!passes(table_.worker_of_replica(stage, replica))) return WaitResult::Closed;
    return inner().finish_sum(stage, replica, bucket, sum, wait);
  }
  WaitResult finish_exchange(const TeamExchange& exchange, int from, const TensorLayout& expected,
                             at::Tensor& part, Wait& wait) override {
    if (!passes(table_.worker_of_replica(exchange.stage(), exchange.replica)))
      return WaitResult::Closed;
    return inner().finish_exchange(exchange, from, expected, part, wait);
  }
  WaitResult combine(NormShare share, NormTotals& totals, Wait& wait) override {
    if (!passes(share.worker)) return WaitResult::Closed;
    return inner().combine(std::move(share), totals, wait);
  }
  void fail(std::exception_ptr failure) noexcept override;

 private:
  /// Touched by the worker's own thread only.
  struct Worker {
    Rng rng;
    int64_t calls = 0;
    std::optional<std::pair<Message, model::Tensors>> late;  ///< overtaken by the next message
  };
  /// Delays or kills the worker where it is its turn; false when it stopped answering and the
  /// fabric has been closed since.
  bool passes(WorkerId worker);
  void stop_answering();

  Faults faults_;
  schedule::WorkerTable table_;
  std::set<Message> overtakable_;
  std::vector<Worker> workers_;
  Mutex mutex_;
  CondVar changed_;
  bool closed_ GUARDED_BY(mutex_) = false;
};

void FaultyFabric::stop_answering() {
  MutexLock lock(mutex_);
  // As long as the run lasts: the others' deadlines end it.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
  changed_.wait_until(mutex_, deadline, [&]() NO_THREAD_SAFETY_ANALYSIS { return closed_; });
}

bool FaultyFabric::passes(WorkerId id) {
  Worker& worker = workers_[id.index()];
  const int64_t call = worker.calls++;
  if (faults_.kill && faults_.kill->worker == id && faults_.kill->call == call) {
    if (!faults_.kill->silent)
      throw RuntimeError(fmt::format("worker {} was killed on purpose in call {}", id.value, call));
    stop_answering();
    return false;
  }
  if (worker.rng.uniform() < faults_.delay_share) {
    const double share = worker.rng.uniform();
    std::this_thread::sleep_for(faults_.max_delay * share);
  }
  return true;
}

WaitResult FaultyFabric::send(const Message& message, model::Tensors tensors, Wait& wait) {
  const WorkerId id = table_.worker_of(message.from, message.micro_batch);
  if (!passes(id)) return WaitResult::Closed;
  Worker& worker = workers_[id.index()];
  std::optional<std::pair<Message, model::Tensors>> late = std::exchange(worker.late, {});
  const bool dropped = worker.rng.uniform() < faults_.drop_share;
  const bool overtaken =
      worker.rng.uniform() < faults_.reorder_share && overtakable_.contains(message);
  WaitResult result = WaitResult::Ready;
  if (!dropped && overtaken && !late)
    worker.late.emplace(message, std::move(tensors));
  else if (!dropped)
    result = inner().send(message, std::move(tensors), wait);
  if (late && result == WaitResult::Ready)
    result = inner().send(late->first, std::move(late->second), wait);
  return result;
}

void FaultyFabric::fail(std::exception_ptr failure) noexcept {
  inner().fail(std::move(failure));
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

class FaultyWorld : public ForwardingWorld {
 public:
  FaultyWorld(std::unique_ptr<World> inner, const Faults& faults)
      : ForwardingWorld(std::move(inner)), faults_(faults) {}

  std::unique_ptr<Fabric> open(const RunSetup& setup, Wait& wait) override {
    RunSetup with_room = setup;
    ++with_room.credits;
    Faults faults = faults_;
    faults.seed = derive_seed(faults_.seed, runs_++);
    return std::make_unique<FaultyFabric>(ForwardingWorld::open(with_room, wait), setup, faults);
  }

 private:
  Faults faults_;
  int64_t runs_ = 0;
};

}  // namespace

std::unique_ptr<World> make_faulty_world(std::unique_ptr<World> inner, const Faults& faults) {
  return std::make_unique<FaultyWorld>(std::move(inner), faults);
}

}  // namespace penstock::runtime
