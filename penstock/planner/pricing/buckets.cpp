#include "penstock/planner/pricing/buckets.h"

#include <algorithm>

namespace penstock::planner {

namespace {

bool holds(const std::vector<LayerId>& layers, LayerId layer) {
  return std::binary_search(layers.begin(), layers.end(), layer);
}

bool uses_a_weight_twice(const graph::ModelGraph& graph, const std::vector<LayerId>& layers) {
  const std::vector<graph::TieGroup> groups = graph::tie_groups(graph);
  return std::any_of(groups.begin(), groups.end(), [&](const graph::TieGroup& group) {
    return std::count_if(group.begin(), group.end(), [&](const graph::ParameterRef& use) {
             return holds(layers, use.layer);
           }) > 1;
  });
}

}  // namespace

void add_buckets(const Context& context, std::vector<LayerId> layers, int level, double speed,
                 plan::Stage& stage) {
  const CostModel& model = *context.model;
  // The changes of a round are known only after its last step, and factors in SYNC.
  if (stage.replicas == 1 || stage.weight_bytes == 0 || model.topology().path(level).sums_wait ||
      model.sync() == GradientSync::DiLoCo || model.sync() == GradientSync::PowerSgd)
    return;
  std::sort(layers.begin(), layers.end());
  std::vector<int64_t> weight_bytes;
  weight_bytes.reserve(layers.size());
  for (const LayerId layer : layers)
    weight_bytes.push_back(context.layers[layer.index()].weight_bytes);
  const bool servers = model.uses_servers(stage.weight_bytes, stage.replicas, level);
  // All sums are taken from the first layer on, so that rounding leaves their total alone.
  LayerSums done;
  int64_t backward_weight_ns = 0;  // of the same layers as `done`
  int64_t stepped_ns = 0;
  int64_t wire_ns = 0;
  int64_t server_ns = 0;
  int64_t processor_ns = 0;
  size_t next = 0;
  for (const size_t end : plan::bucket_ends(weight_bytes)) {
    plan::GradientBucket bucket;
    const int64_t bytes_before = done.weight_bytes;
    for (; next < end; ++next) {
      const PlannedLayer& layer = context.layers[layers[next].index()];
      if (done.weight_bytes == bytes_before) {
        // Until the first layer with weights: what the passes have before it, or behind.
        bucket.forward_ns = std::min(on_device_ns(done.forward_ns, speed), stage.forward_ns);
        bucket.backward_ns = std::max<int64_t>(
            0, stage.backward_ns - on_device_ns(done.compute_ns - done.forward_ns, speed));
        bucket.backward_weight_ns = std::max<int64_t>(
            0, stage.backward_weight_ns - on_device_ns(backward_weight_ns, speed));
      }
      done.add(layer);
      backward_weight_ns += layer.backward_weight_ns;
    }
    bucket.weight_bytes = done.weight_bytes - bytes_before;
    const bool last = done.weight_bytes == stage.weight_bytes;
    const int64_t step_ns =
        last ? stage.step_ns : std::min(on_device_ns(done.step_ns, speed), stage.step_ns);
    bucket.step_ns = step_ns - stepped_ns;
    stepped_ns = step_ns;
    const int64_t wire_now_ns = model.wire_ns(done.weight_bytes, stage.replicas, level, servers);
    const int64_t server_now_ns = servers ? model.server_ns(done.weight_bytes, stage.replicas) : 0;
    bucket.wire_ns = wire_now_ns - wire_ns;
    bucket.server_ns = server_now_ns - server_ns;
    const int64_t processor_now_ns =
        model.processor_ns(done.weight_bytes, stage.replicas, level, servers);
    bucket.processor_ns = saturating_add(
        processor_now_ns - processor_ns,
        model.short_messages_ns(bucket.weight_bytes, stage.replicas, level, servers));
    wire_ns = wire_now_ns;
    server_ns = server_now_ns;
    processor_ns = processor_now_ns;
    stage.buckets.push_back(bucket);
  }
  stage.sync_latency_ns = model.sync_latency_ns(level, servers);
  stage.waits_for_sums = uses_a_weight_twice(context.profile.graph, layers);
}

}  // namespace penstock::planner
