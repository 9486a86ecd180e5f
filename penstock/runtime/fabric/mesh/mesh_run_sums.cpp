#include "penstock/runtime/fabric/mesh/mesh_run_sums.h"

#include <algorithm>
#include <utility>

#include "penstock/runtime/fabric/mesh/delayed_mesh_sum.h"
#include "penstock/runtime/fabric/mesh/hierarchical_sum.h"
#include "penstock/runtime/fabric/mesh/mesh_sum.h"
#include "penstock/runtime/fabric/mesh/ring_sum.h"
#include "penstock/runtime/fabric/weight_shares.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

namespace {

/// Bytes of gradients that are on their way: enough for any network, few enough that what is more
/// urgent comes soon. Fewer where servers add: a server waits for the slowest replica, and the
/// window limits how far the others can be ahead.
constexpr int64_t kSendWindow = int64_t{4} << 20;
constexpr int64_t kServerSendWindow = int64_t{1} << 20;

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

/// The ranks of a stage's replicas, by replica.
std::vector<int> ranks_of_replicas(const schedule::WorkerTable& table, const Site& site,
                                   size_t stage, int replicas) {
  std::vector<int> ranks;
  for (int r = 0; r < replicas; ++r) {
    const WorkerId worker = table.worker_of_replica(StageId{static_cast<int32_t>(stage)}, r);
    ranks.push_back(site.rank_of_worker[worker.index()]);
  }
  return ranks;
}

}  // namespace

MeshRunSums::MeshRunSums(net::Mesh& mesh, uint32_t run, uint32_t first_channel, const Site& site,
                         const RunSetup& setup, std::function<void(std::exception_ptr)> fail)
    : mesh_(mesh),
      run_(run),
      next_channel_(first_channel),
      site_(site),
      servers_add_(site.servers > 0 && setup.sync != plan::GradientSync::Ordered &&
                   setup.sync != plan::GradientSync::Ring),
      fail_(std::move(fail)) {
  const schedule::ScheduleShape& shape = setup.schedule.shape;
  const schedule::WorkerTable table(shape);
  for (size_t s = 0; s < setup.weights.size(); ++s)
    stages_.push_back(make_stage(s, ranks_of_replicas(table, site, s, shape.replicas[s]), setup));
  if (shape.global_norm && !site.own_workers().empty())
    norm_ = std::make_unique<MeshNorm>(mesh, run, next_channel_, site, setup);
}

void MeshRunSums::stop() {
  if (window_) window_->close();
  if (service_) service_->stop();
}

uint32_t MeshRunSums::take_channels(uint32_t count) {
  return std::exchange(next_channel_, next_channel_ + count);
}

MeshRunSums::Stage MeshRunSums::make_stage(size_t index, std::vector<int> ranks,
                                           const RunSetup& setup) {
  const StageWeights& weights = setup.weights[index];
  const StateSharing sharing = setup.sharing_of(index);
  const size_t replicas = ranks.size();
  Stage stage{.bucket_ends = {weights.shapes.size()}};
  if (replicas == 1) return stage;
  if (std::count(ranks.begin(), ranks.end(), ranks.front()) == std::ssize(ranks)) {
    if (ranks.front() == site_.rank) make_local(stage, index, static_cast<int>(replicas), setup);
    return stage;
  }
  stage.bucket_ends = weights.bucket_ends;
  if (stage.bucket_ends.empty())
    stage.bucket_ends = make_buckets(numbers_of(weights.shapes), weights.layer_ends);
  if (!service_) {
    service_ = std::make_shared<SumService>(fail_);
    window_ = std::make_shared<SendWindow>(servers_add_ ? kServerSendWindow : kSendWindow);
  }
  StageSumSetup sum{.mesh = mesh_,
                    .service = service_,
                    .window = window_,
                    .run = run_,
                    .first_channel = 0,
                    .rank_of_replica = std::move(ranks),
                    .rank_of_server = site_.server_ranks(),
                    .shapes = weights.shapes,
                    .bucket_ends = stage.bucket_ends,
                    .most_numbers = servers_add_ ? kServerShardNumbers : kShardNumbers,
                    .precision = setup.gradient_precision};
  if (sharing != StateSharing::None) {
    sum.first_channel = take_channels(StageSum::channels(replicas));
    stage.gather = std::make_shared<MeshGather>(sum);
  }
  stage.sum = make_sum(std::move(sum), sharing, setup);
  return stage;
}

void MeshRunSums::make_local(Stage& stage, size_t index, int replicas, const RunSetup& setup) {
  const StageWeights& weights = setup.weights[index];
  stage.local_sum = make_local_sum(setup.sync, replicas, weights.shapes.size(), setup.staleness,
                                   setup.gradient_precision);
  if (setup.sharing_of(index) == StateSharing::None) return;
  stage.local_gather =
      std::make_unique<LocalGather>(weight_shares(weights.shapes, weights.layer_ends, replicas));
}

std::shared_ptr<StageSum> MeshRunSums::make_sum(StageSumSetup sum, StateSharing sharing,
                                                const RunSetup& setup) {
  const size_t replicas = sum.rank_of_replica.size();
  if (setup.sync == plan::GradientSync::Hierarchical) {
    sum.first_channel = take_channels(HierarchicalSum::channels(replicas));
    return make_hierarchical_sum(std::move(sum), site_);
  }
  sum.first_channel = take_channels(StageSum::channels(replicas));
  if (setup.sync == plan::GradientSync::Ring) return std::make_shared<RingSum>(std::move(sum));
  std::vector<double> shares = shares_of(setup.sync, replicas, site_.servers);
  if (sharing == StateSharing::OwnSums && setup.sync == plan::GradientSync::Ordered) {
    sum.own_shards_only = true;
    shares = even_shares(static_cast<int>(replicas), site_.servers);
  }
  if (setup.sync == plan::GradientSync::Asynchronous)
    return std::make_shared<DelayedMeshSum>(std::move(sum), shares, setup.staleness);
  return std::make_shared<MeshSum>(std::move(sum), shares);
}

void MeshRunSums::start() {
  for (const Stage& stage : stages_) {
    if (stage.sum) stage.sum->begin();
  }
  if (norm_) norm_->start();
}

void MeshRunSums::close() {
  for (const Stage& stage : stages_) {
    if (stage.local_sum) stage.local_sum->close();
    if (stage.sum) stage.sum->close();
    if (stage.local_gather) stage.local_gather->close();
    if (stage.gather) stage.gather->close();
  }
  if (norm_) norm_->close();
}

// ---- what the workers call

void MeshRunSums::start_sum(StageId id, int replica, size_t bucket, Partials partials) {
  const Stage& stage = stages_[id.index()];
  if (stage.local_sum) return stage.local_sum->start(replica, std::move(partials));
  PENSTOCK_CHECK(stage.sum != nullptr, "stage", id, "has one replica: there is nothing to sum");
  if (stage.gather) stage.gather->post(replica, bucket);
  stage.sum->start(replica, bucket, std::move(partials));
}

WaitResult MeshRunSums::finish_sum(StageId id, int replica, size_t bucket, BucketSum& sum,
                                   Wait& wait) {
  const Stage& stage = stages_[id.index()];
  if (stage.local_sum) return stage.local_sum->finish(replica, sum.sums, wait);
  return stage.sum->finish(replica, bucket, sum, wait);
}

void MeshRunSums::start_gather(StageId id, int replica, size_t bucket, model::Tensors weights) {
  const Stage& stage = stages_[id.index()];
  if (stage.local_gather) return stage.local_gather->start(replica, std::move(weights));
  PENSTOCK_CHECK(stage.gather != nullptr, "stage", id, "does not share out the optimiser's state");
  stage.gather->start(replica, bucket, {{.group = 0, .sums = std::move(weights)}});
}

WaitResult MeshRunSums::finish_gather(StageId id, int replica, size_t bucket, Wait& wait) {
  const Stage& stage = stages_[id.index()];
  if (stage.local_gather) return stage.local_gather->finish(replica, wait);
  BucketSum filled;
  return stage.gather->finish(replica, bucket, filled, wait);
}

WaitResult MeshRunSums::combine(NormShare share, NormTotals& totals, Wait& wait) {
  PENSTOCK_CHECK(norm_ != nullptr, "the schedule has no NORM");
  return norm_->run(std::move(share), totals, wait);
}

}  // namespace penstock::runtime
