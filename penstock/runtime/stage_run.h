// One replica of one stage during one run: what a worker does for each of the stages that it holds.
// Only computation and gradients; the worker moves the tensors (stage_worker.h). Internal to
// runtime. It implements the pseudo-code of schedule/action.h; read both together.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "penstock/model/device/layout.h"
#include "penstock/runtime/device/device_sum.h"
#include "penstock/runtime/device/host_stash.h"
#include "penstock/runtime/device/worker_device.h"
#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/run_context.h"
#include "penstock/runtime/stage_graphs.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/stage_tape.h"
#include "penstock/runtime/tied_weights.h"
#include "penstock/runtime/value_gradients.h"
#include "penstock/runtime/weight_store.h"
#include "penstock/schedule/timeline.h"

namespace penstock::runtime {

/// State that exists as long as the pipeline: the replica's own weights and buffers.
struct Replica {
  WorkerId worker;
  int replica = 0;
  const StageModule* module = nullptr;
  const StageTies* ties = nullptr;
  WorkerDevice* device = nullptr;  ///< of its worker
  WeightStore weights;
  model::Tensors buffers;
  bool has_trained = false;  ///< since the replicas' buffers were last made equal
  /// The replicas of the stage share out the optimiser's state: `weights` has a share.
  bool shares_state = false;
  std::unique_ptr<StageGraphs> graphs = {};  ///< null: none are wanted
};

/// Runs a call that may block, for the worker: until it is Ready; throws otherwise.
using Blocking = std::function<void(const std::function<WaitResult(Wait&)>& call)>;

/// Not thread-safe: its worker owns it.
///
/// Where the fabric adds gradients in the background, they leave bucket by bucket during the last
/// backward pass of a mini-batch, and SYNC and STEP only note that they are due: the next forward
/// pass takes each bucket's sum and steps its weights when it comes to its first layer. Without a
/// norm, and without weights that the stage uses twice: those need all gradients at once.
///
/// Where the replicas share out the optimiser's state, STEP takes all sums and steps the replica's
/// share of the weights; the other shares come in the background, and the next forward pass waits
/// for each bucket when it comes to its first layer, where it would wait for its sum otherwise.
///
/// Where the GPUs of all replicas are joined, gradients and shares go from GPU to GPU instead,
/// within SYNC and STEP and all at once (device/device_sum.h).
///
/// Under `asynchronous` each replica steps its own optimiser and gives what that would change; what
/// it takes are the changes of all replicas that it lacks.
class StageRun {
 public:
  /// `block`: what waits for sums. `loss_scale`: the worker's; null: the loss is not scaled.
  StageRun(Replica& replica, const RunContext& run, Blocking block,
           const LossScale* loss_scale = nullptr);

  StageId stage() const { return replica_.module->stage(); }
  const StageModule& module() const { return *replica_.module; }
  int replica() const { return replica_.replica; }

  // Tensors that arrive or leave. Each call once per micro-batch and peer.
  void take_inputs(MicroBatchId micro_batch, StageId from, model::Tensors values);
  /// After F.
  model::Tensors give_outputs(MicroBatchId micro_batch, StageId to);
  void take_gradients(MicroBatchId micro_batch, StageId from, model::Tensors parts);
  /// After B or I.
  model::Tensors give_gradients(MicroBatchId micro_batch, StageId to);

  // Actions.
  void forward(const schedule::Action& action);
  /// Starts to bring the model's inputs of a later micro-batch to the device; nothing on the CPU.
  void prefetch(MicroBatchId micro_batch);
  /// Reports the losses that a GPU has computed by now; with `all`, waits for the others.
  void report_losses(bool all);
  void recompute(const schedule::Action& action);
  void backward(const schedule::Action& action);
  void backward_inputs(const schedule::Action& action);
  void backward_weights(const schedule::Action& action);
  /// OFFLOAD. Its memory is there until drop(); nothing on the host.
  std::shared_ptr<HostStash> offload(const schedule::Action& action);
  void load(const schedule::Action& action);
  void sync(const schedule::Action& action);
  void step(const schedule::Action& action);
  /// Takes the step that is due; after the last action.
  void complete();
  /// Under `asynchronous`, takes all that other replicas have given; after complete().
  void catch_up();
  void free_weights(const schedule::Action& action) { replica_.weights.release(action.version); }

  // The stage's part of NORM.
  /// Adds its tied gradients and its squares to the worker's part.
  void contribute(MiniBatchId mini_batch, NormShare& share);
  void take_tied_sums(const NormTotals& totals);
  /// Multiplies the gradients of the next step by this.
  void scale_gradients(double factor);
  /// The next step changes nothing.
  void skip_step();

  int64_t peak_versions() const { return peak_versions_; }
  /// The sums that travelled while the worker computed, as they came: each from the time that the
  /// replica gave its part; on steady_clock. At most as many as the run keeps events.
  const std::vector<schedule::SumEvent>& sum_events() const { return sum_events_; }

 private:
  /// What a micro-batch keeps between its actions (the activation stash).
  struct InFlight {
    explicit InFlight(const StageModule& module)
        : inputs(module.inputs().size()), gradients(module) {}
    model::Tensors inputs;   ///< until F; where the stage recomputes until R
    model::Tensors buffers;  ///< as they were before F, until R; only where the stage recomputes
    model::Tensors outputs;  ///< plain tensors, until all readers have them
    std::optional<StageTape> tape;          ///< from F, or R, to B or W
    std::vector<WeakStorage> moving = {};   ///< what OFFLOAD may move: F has made it, or got it
    std::shared_ptr<HostStash> moved = {};  ///< from OFFLOAD to B or I
    StorageSet stays = {};                  ///< memory that OFFLOAD leaves where it is
    ValueGradients gradients;
    StageGraph* graph = nullptr;   ///< instead of a tape; with it the next three
    LossTape loss;                 ///< of the graph's output
    ByStage received;              ///< gradients from later stages, which the graph adds
    ByStage messages;              ///< what the graph made for earlier stages
    size_t missing_inputs = 0;     ///< stages whose outputs have not arrived
    size_t missing_gradients = 0;  ///< stages whose gradients have not arrived
    size_t outputs_to_give = 0;
    size_t gradients_to_give = 0;
    bool done = false;  ///< nothing more will be computed
  };

  /// Under WeightPolicy::Current: the micro-batch that backward passes go through.
  struct Newest {
    MicroBatchId micro_batch;
    MiniBatchId mini_batch;
    model::Tensors inputs;
    model::Tensors buffers;  ///< as they were before F
    /// From F, or R, to B. The stream's last micro-batch may see several B; each but the first runs
    /// F again.
    std::optional<StageTape> tape;
    StageGraph* graph = nullptr;  ///< instead of a tape
  };

  /// A loss that is still on the GPU, or on its way from there.
  struct UnreadLoss {
    schedule::Action action;
    Parcel numbers;
  };

  WorkerDevice& device() const { return *replica_.device; }
  void report(const schedule::Action& action, model::LossResult loss);
  void report(const schedule::Action& action, double loss_sum, int64_t correct);
  Partials partials_on_host(Partials partials);
  InFlight& in_flight(MicroBatchId micro_batch);
  void drop_if_done(MicroBatchId micro_batch);
  /// Values as the stage's device computes them.
  at::Tensor laid_out(at::Tensor value) const {
    return channels_last_ ? model::channels_last(std::move(value)) : value;
  }
  void load_batch(MicroBatchId micro_batch, InFlight& record);
  /// The stage's outputs (and loss) of a micro-batch on a tape.
  model::ForwardContext forward_context(const schedule::Action& action) const;
  model::LossResult record_tape(const schedule::Action& action, InFlight& record,
                                model::MutableTensorSpan buffers, const BeforeLayer& before_layer,
                                bool with_loss = true);
  /// Waits for what LOAD brings.
  void take_back(InFlight& record);
  /// Runs F of the newest micro-batch again, on the newest weights.
  void record_newest(bool with_loss);
  /// The graph that B of the micro-batch goes through; null: a tape.
  StageGraph*& graph_of(InFlight& record) { return newest_ ? newest_->graph : record.graph; }
  /// The tape that B of the micro-batch goes through.
  std::optional<StageTape>& tape_of(InFlight& record) {
    return newest_ ? newest_->tape : record.tape;
  }
  model::LossResult loss_without_tape(const schedule::Action& action, const InFlight& record) const;
  at::Tensor targets(MicroBatchId micro_batch) const {
    return device().staged(run_.source.targets(micro_batch));
  }
  /// By how much the micro-batch's loss is scaled; not before its loss is computed.
  double loss_scale_of(MicroBatchId micro_batch) const;
  /// F by a graph, if there is one for it: false otherwise.
  bool forward_by_graph(const schedule::Action& action, InFlight& record, model::LossResult& loss);
  /// False: the micro-batch has left its graph.
  bool backward_by_graph(const schedule::Action& action, InFlight& record);
  /// The micro-batch goes on with a tape: its B cannot be recorded.
  void leave_graph(const schedule::Action& action, InFlight& record);
  /// Gradients that came for a graph, where there is none any more.
  static void receive_late(InFlight& record);
  /// Under WeightPolicy::Current: the newest micro-batch goes on without its graph.
  void drop_newest_graph();
  /// Under WeightPolicy::Current: F of a new newest micro-batch. `buffers`: as they are before it.
  void begin_newest(const schedule::Action& action, const InFlight& record, model::Tensors buffers);
  bool makes_output() const { return !replica_.module->model_outputs().empty(); }
  /// Gradients of the mini-batch, summed over micro-batches and tied weights of the stage, into
  /// ready_.
  void make_ready(MiniBatchId mini_batch);
  bool is_replicated() const { return bucket_ends_.size() > 0; }
  size_t first_weight(size_t bucket) const { return bucket == 0 ? 0 : bucket_ends_[bucket - 1]; }
  /// Whether the sums are only taken when a forward pass needs them.
  bool sums_late() const;
  /// Why this run makes its passes without graphs; empty: it need not.
  std::string graph_obstacle() const;
  /// Adds what a backward pass makes to the buffers; buckets leave when they are complete, if it is
  /// the mini-batch's last pass on this replica and the fabric adds in the background.
  template <class Run>
  void collect(const schedule::Action& action, Run&& backward);
  void add_bucket(MicroBatchId micro_batch, size_t bucket, Tensors& gradients);
  void start_sum(MiniBatchId mini_batch, size_t bucket);
  model::Tensors finish_sum(size_t bucket);
  /// Takes the step that is due for the weights below `end`.
  void step_below(size_t end);
  /// Steps the replica's share of all weights and gives it to the other replicas.
  void step_share();
  /// The own share of the bucket's stepped weights for the other replicas, and theirs here. On a
  /// GPU without a device_sum_ through the memory of the host.
  void start_gather(size_t bucket);
  void finish_gather(size_t bucket);
  /// Adds gradients through the memory of GPUs, if the stage's replicas do.
  void make_device_sum(const Grouping& grouping);
  model::StepContext step_context(int64_t step) const;
  /// The group's sums become what they would change in the weights.
  Partials updates_of(MiniBatchId mini_batch, size_t bucket, Partials partials);
  int64_t num_micro_batches(MiniBatchId mini_batch) const;
  void add_inner_ties();

  Replica& replica_;
  const RunContext& run_;
  bool recomputes_;
  bool offloads_;
  bool owns_inputs_;  ///< their memory is nobody else's
  bool channels_last_;
  bool on_one_gpu_;     ///< with all other workers of the run
  size_t num_sources_;  ///< stages whose outputs we read
  size_t num_targets_;  ///< stages that read our outputs
  Blocking block_;
  const LossScale* loss_scale_;            ///< null: none
  StageGraphs* graphs_ = nullptr;          ///< the replica's; null: none
  SegmentEnds segment_ends_;               ///< of the tapes
  std::vector<size_t> bucket_ends_;        ///< of the fabric; empty for the only replica
  std::vector<size_t> bucket_of_;          ///< by weight
  std::vector<bool> rounded_;              ///< by weight; empty: none
  std::vector<GradientBuffer> gradients_;  ///< by bucket; one for the only replica
  std::unique_ptr<DeviceSum> device_sum_;  ///< null: the fabric adds, and gathers shares
  std::vector<WeightShare> shares_;        ///< with a device_sum_, where the state is shared out
  bool in_background_ = false;             ///< the fabric adds while the worker computes
  std::map<MiniBatchId, int64_t> passes_;  ///< backward passes that the replica has made
  std::vector<bool> started_;              ///< by bucket: since the last SYNC
  std::vector<schedule::SumEvent> given_;  ///< by bucket: since when, and of which mini-batch
  bool sums_are_due_ = false;              ///< between SYNC and STEP, where sums are taken late
  size_t next_bucket_ = 0;                 ///< of the step that is due; behind the last: none is
  std::optional<model::Tensors> ready_;    ///< gradients between SYNC or NORM and STEP
  std::unordered_map<MicroBatchId, InFlight> in_flight_;
  std::optional<Newest> newest_;  ///< under WeightPolicy::Current, while training
  std::map<MicroBatchId, model::Tensors> prefetched_;
  std::vector<model::Tensors> gathered_;  ///< by bucket, on the host, on a GPU that shares state
  std::deque<UnreadLoss> unread_losses_;
  std::vector<schedule::SumEvent> sum_events_;
  int64_t peak_versions_ = 1;
};

}  // namespace penstock::runtime
