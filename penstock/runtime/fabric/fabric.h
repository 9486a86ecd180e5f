// The seam: everything that crosses workers during one run goes through a Fabric, whether the
// workers are threads of one process, processes of one machine, or machines. Workers know schedules
// and tensors; only a fabric knows transports.
//
//   std::unique_ptr<Fabric> fabric = world.open(setup);                      // on every rank
//   if (fabric->begin(worker, mini_batch)) ...                               // the stop gate
//   fabric->send({.from = StageId{0}, .to = StageId{1}, ...}, tensors, wait)     // SEND
//   fabric->receive(message, tensors, wait)                                      // RECV
//   fabric->start_sum(stage, replica, bucket, std::move(partials))               // before SYNC
//   fabric->finish_sum(stage, replica, bucket, sums, wait)                       // SYNC, or later
//   fabric->combine(share, totals, wait)                                         // NORM
//   const RunOutcome outcome = fabric->finish(wait);                             // on every rank
//
// Ownership: a fabric holds a reference to every tensor that it was given until nobody on the other
// side can still read it. So a tensor whose only reference is the caller's is the caller's alone
// (is_exclusive()), whatever the transport: reference counts decide everywhere whether memory may
// be written to.
//
// Failures: the first fail() on any rank closes the fabric: every blocked call returns Closed, all
// later ones do at once, and finish() throws that first failure on every rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/runtime/fabric/message.h"
#include "penstock/runtime/fabric/mini_batch_stats.h"
#include "penstock/runtime/fabric/norm_exchange.h"
#include "penstock/runtime/fabric/partials.h"
#include "penstock/runtime/fabric/site.h"
#include "penstock/runtime/fabric/status_board.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/schedule/schedule.h"

namespace penstock::runtime {

/// The weights of a stage: a flat list, layer by layer.
struct StageWeights {
  std::vector<model::Shape> shapes;
  std::vector<size_t> layer_ends;  ///< the weight behind the last one of each layer
};

/// Whether the replicas of a stage share out the optimiser's state (weight_shares.h).
enum class StateSharing : uint8_t {
  None,       ///< each has all of it
  WholeSums,  ///< shared out; every replica gets the sums of all gradients
  OwnSums,    ///< shared out; between ranks a replica gets the sums of its share alone
};

/// What a fabric has to know of a run. Everything but `stop` and `on_mini_batch` is the same on
/// every rank. References must outlive the fabric.
struct RunSetup {
  const schedule::Schedule& schedule;  ///< lowered and verified
  std::vector<StageWeights> weights;   ///< per stage
  plan::GradientSync sync = plan::GradientSync::Ordered;
  FloatType gradient_precision =
      FloatType::Float32;                        ///< in which gradients travel between replicas
  int64_t staleness = 0;                         ///< rounds; asynchronous
  std::vector<StateSharing> state_sharing = {};  ///< per stage; empty: none
  std::vector<TieGroup> ties = {};
  size_t num_model_weights = 0;  ///< length of the flat list that NormShare numbers
  MessageLayout layout = {};
  std::function<int64_t(MiniBatchId)> mini_batch_samples = {};
  /// Called on rank 0 when all samples of a mini-batch have gone through the loss, one call at a
  /// time, from any thread. False ends the run early, on every rank. Empty: go on.
  std::function<bool(MiniBatchId, const MiniBatchStats&)> on_mini_batch = {};
  StateSharing sharing_of(size_t stage) const {
    return stage < state_sharing.size() ? state_sharing[stage] : StateSharing::None;
  }
  /// Set to true, on whichever rank, it ends the run early. May be null.
  const std::atomic<bool>* stop = nullptr;
  int64_t credits = 4;  ///< messages per channel that are sent before a send may wait
  /// The schedule goes on for ever: `schedule` is its sample, and no statistics are kept.
  bool endless = false;
};

/// How a run ended; the same on every rank.
struct RunOutcome {
  /// Those that were run, in order. All workers have finished the same ones. Of an endless run:
  /// none.
  std::vector<MiniBatchStats> mini_batches;
  int64_t num_mini_batches = 0;
};

/// The sum of a bucket over the replicas of its stage.
struct BucketSum {
  model::Tensors sums;  ///< must not be written to unless they are exclusive
  /// When its last part was on this rank (steady_clock, ns), where sums travel while the workers
  /// compute; otherwise 0.
  int64_t complete_ns = 0;
};

/// One run. Thread-safe: the workers of the rank call it at the same time; calls for one worker
/// come from one thread. Blocking calls return TimedOut at the deadline; then the run cannot go on.
class Fabric {
 public:
  virtual ~Fabric() = default;
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  /// When the run began, on this rank's clock (steady_clock, ns): 0 of the timelines of all ranks.
  virtual int64_t origin_ns() const = 0;

  /// Hands a message over. Blocks while the channel (from worker to worker, per direction) is full.
  /// The tensors must not be written to afterwards.
  virtual WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) = 0;
  /// Blocks until the message is there. The tensors must not be written to unless they are
  /// exclusive. Order and number are those of send(); undefined tensors arrive undefined.
  virtual WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait) = 0;

  // The sums over the replicas of a stage, bucket by bucket: the gradients of some consecutive
  // weights. Under the method `ordered` (and every other one but `ring`) over the gradient groups
  // of all replicas, ascending, so that results depend neither on timing nor on the transport nor
  // on the number of replicas; undefined tensors count as zero and stay undefined if undefined
  // everywhere. With 16 bits every group's gradients are rounded, and the sum once more
  // (plan/sync_precision.h), also where replicas share memory.
  //
  // Under `asynchronous` what is summed are updates of weights (delayed_sum.h): one group per
  // replica and round; a sum has what the replica lacks, without the parts of replicas that are up
  // to `staleness` rounds behind. The group kLastUpdate, without tensors, ends the run's rounds.

  /// The weight behind the last one of each bucket; the same on every rank.
  virtual const std::vector<size_t>& bucket_ends(StageId stage) const = 0;
  /// Whether the sums are added without the workers' help. Then finish_sum() may be left until the
  /// sums are needed, and buckets may be started while the backward pass goes on; otherwise all
  /// replicas must start and finish all buckets in their order, in SYNC.
  virtual bool adds_in_background(StageId stage) const = 0;
  /// Gives the replica's part of the next sum of a bucket: the partials of its weights, which must
  /// be exclusive to the caller (GradientBuffer::take_exclusive) and are used up. Never blocks.
  virtual void start_sum(StageId stage, int replica, size_t bucket, Partials partials) = 0;
  /// The sum of a bucket that has been started. Blocks until all replicas have started it. To be
  /// called before it is started again.
  virtual WaitResult finish_sum(StageId stage, int replica, size_t bucket, BucketSum& sum,
                                Wait& wait) = 0;

  // Where replicas share out the optimiser's state: the stepped weights, bucket by bucket. Each
  // replica gathers every bucket once after each of its sums, in their order, and before it starts
  // the bucket's next sum.

  /// Gives the replica's share (weight_shares.h) of the bucket's weights, which these tensors hold:
  /// contiguous float32, whose other parts are to be filled in. Never blocks.
  virtual void start_gather(StageId stage, int replica, size_t bucket, model::Tensors weights) = 0;
  /// Blocks until the tensors given to start_gather() have the shares of all replicas.
  virtual WaitResult finish_gather(StageId stage, int replica, size_t bucket, Wait& wait) = 0;

  /// Adds up tied gradients and the norm over all workers (norm_exchange.h). Blocks until every
  /// worker of the job has called it. Between calls nothing of the share is kept.
  virtual WaitResult combine(NormShare share, NormTotals& totals, Wait& wait) = 0;

  /// Whether the worker may begin the mini-batch. After an early stop no worker begins a later one
  /// than any other has begun. Cheap; to be called when a worker meets a mini-batch for the first
  /// time.
  virtual bool begin(WorkerId worker, MiniBatchId mini_batch) = 0;

  /// The loss of one micro-batch, from the stage that makes it. Those of a mini-batch are added up
  /// in the order of its micro-batches.
  virtual void report(MiniBatchId mini_batch, MicroBatchId micro_batch,
                      const MiniBatchStats& part) = 0;

  /// Whether the run has failed, on whichever rank: for waits outside the fabric.
  virtual bool failed() const = 0;
  /// Keeps the first failure and closes the fabric on every rank. Never throws.
  virtual void fail(std::exception_ptr failure) noexcept = 0;

  /// What this rank's workers are doing; they note it themselves.
  virtual StatusBoard& board() = 0;
  /// One line per worker, of all ranks that can be reached: who waits for what, or what else it
  /// does.
  virtual std::string who_waits() = 0;

  /// Ends the run on this rank, when all of its workers are done or have failed; blocks until the
  /// other ranks have. Throws the first failure; TimeoutError when a rank does not answer.
  virtual RunOutcome finish(Wait& wait) = 0;
};

}  // namespace penstock::runtime
