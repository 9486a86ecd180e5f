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
//   fabric->start_exchange(exchange, tensors, expected)                          // inside F and B
//   fabric->finish_exchange(exchange, member, expected[member], tensor, wait)
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
#include <functional>
#include <string>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/runtime/fabric/channels.h"
#include "penstock/runtime/fabric/run_control.h"
#include "penstock/runtime/fabric/site.h"
#include "penstock/runtime/fabric/sums.h"
#include "penstock/runtime/fabric/teams.h"
#include "penstock/schedule/schedule.h"

namespace penstock::runtime {

/// The weights of a stage: a flat list, layer by layer.
struct StageWeights {
  std::vector<model::Shape> shapes;
  std::vector<size_t> layer_ends;  ///< the weight behind the last one of each layer
  /// The weight behind the last one of each bucket between ranks; empty: gradient_shards.h says.
  std::vector<size_t> bucket_ends = {};
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
      FloatType::Float32;    ///< in which gradients travel between replicas
  std::string codings = {};  ///< of messages, which `layout` knows: "int8 from stage 0 to 1"
  int64_t staleness = 0;     ///< rounds; asynchronous
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

/// One run: what its workers call. Thread-safe: the workers of the rank call it at the same time;
/// calls for one worker come from one thread. Blocking calls return TimedOut at the deadline; then
/// the run cannot go on. Who needs one part takes that part.
class Fabric : public Channels, public Sums, public Teams, public RunControl {};

}  // namespace penstock::runtime
