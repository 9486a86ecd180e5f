#include "penstock/planner/testing/testing_brute_force.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "penstock/util/error.h"

namespace penstock::planner {

namespace {

using Mask = uint32_t;

// From the output end, where the workers at and after a stage are known. A pipeline is given up
// only once it is slower than the best so far.
class Enumeration {
 public:
  Enumeration(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers,
              const PartitionProblem& problem)
      : graph_(graph),
        layers_(layers),
        problem_(problem),
        everything_((Mask{1} << layers.size()) - 1) {
    for (size_t l = 0; l < layers.size(); ++l) {
      Mask before = 0;
      for (const LayerId p : graph.predecessors(LayerId{static_cast<int32_t>(l)}))
        before |= Mask{1} << p.index();
      predecessors_.push_back(before);
    }
  }

  std::optional<BruteForceResult> run() {
    extend(everything_, problem_.workers, 0, 0, 0);
    if (best_) {
      std::reverse(best_->layers.begin(), best_->layers.end());
      std::reverse(best_->places.begin(), best_->places.end());
      std::reverse(best_->recompute.begin(), best_->recompute.end());
    }
    return best_;
  }

 private:
  struct Stage {
    Mask layers = 0;
    cluster::WorkerRange place;
    bool recompute = false;
  };

  bool closed(Mask set) const {
    for (size_t l = 0; l < layers_.size(); ++l) {
      if ((set >> l & 1) != 0 && (predecessors_[l] & ~set) != 0) return false;
    }
    return true;
  }

  // `left` are the layers before the stages chosen so far, which use `used` of the workers from
  // `free` on.
  void extend(Mask left, int free, int used, double slowest_ns, int64_t cut_bytes) {
    if (left == 0) {
      judge(free, used, slowest_ns, cut_bytes);
      return;
    }
    for (Mask before = 0; before < left; ++before) {
      if ((before & left) != before || !closed(before)) continue;
      for (int end = free; end >= 1; --end) {
        for (int count = 1; count <= (problem_.straight ? 1 : end); ++count) {
          for (const bool recompute : {false, true}) {
            if (problem_.recompute == (recompute ? Choice::Never : Choice::Always)) continue;
            add({left & ~before, {.first = end - count, .count = count}, recompute}, before, used,
                slowest_ns, cut_bytes);
          }
        }
      }
    }
  }

  void add(const Stage& stage, Mask before, int used, double slowest_ns, int64_t cut_so_far) {
    const int64_t bytes_in = cut_bytes(before);
    const int64_t bytes_out = cut_bytes(before | stage.layers);
    const LayerSums sums = sums_of(stage.layers);
    const int now_used = used + stage.place.count;
    double speed = problem_.cluster.device_of(stage.place.first).speed;
    for (int worker = stage.place.first; worker < stage.place.end(); ++worker) {
      const cluster::Device& device = problem_.cluster.device_of(worker);
      speed = std::min(speed, device.speed);
      const int64_t limit =
          problem_.memory.limit_bytes > 0 ? problem_.memory.limit_bytes : device.memory_bytes;
      if (!problem_.memory.fits({sums, bytes_in, bytes_out, stage.recompute}, stage.place.count,
                                now_used, limit))
        return;
    }
    const SegmentCost segment{sums.compute_ns + (stage.recompute ? sums.forward_ns : 0),
                              sums.step_ns, sums.weight_bytes, sums.accumulate_ns,
                              sums.compute_ns + sums.step_ns};
    const cluster::Topology& topology = problem_.model.topology();
    slowest_ns =
        std::max(slowest_ns, problem_.model.stage_ns(on_device(segment, speed), stage.place.count,
                                                     topology.level_of(stage.place),
                                                     problem_.memory.micro_batches));
    if (!stages_.empty()) {
      const cluster::WorkerRange& after = stages_.back().place;
      const cluster::WorkerRange both{stage.place.first, after.end() - stage.place.first};
      slowest_ns = std::max(slowest_ns, problem_.cut_ns(bytes_out, topology.level_of(both)));
    }
    if (best_ && slowest_ns > best_->bottleneck_ns) return;
    stages_.push_back(stage);
    extend(before, stage.place.first, now_used, slowest_ns, cut_so_far + bytes_out);
    stages_.pop_back();
  }

  LayerSums sums_of(Mask set) const {
    LayerSums sums;
    for (size_t l = 0; l < layers_.size(); ++l) {
      if ((set >> l & 1) == 0) continue;
      sums.add(layers_[l]);
    }
    return sums;
  }

  int64_t cut_bytes(Mask set) const {
    std::set<graph::ValueRef> crossing;
    for (size_t l = 0; l < layers_.size(); ++l) {
      if ((set >> l & 1) != 0) continue;
      for (const graph::ValueRef& input : graph_.layers()[l].inputs) {
        if (!input.is_model_input() && (set >> input.layer.index() & 1) != 0)
          crossing.insert(input);
      }
    }
    int64_t bytes = 0;
    for (const graph::ValueRef& value : crossing)
      bytes += layers_[value.layer.index()].output_bytes[static_cast<size_t>(value.output)];
    return bytes;
  }

  void judge(int free, int used, double bottleneck_ns, int64_t cut_bytes) {
    const auto stages = static_cast<int>(stages_.size());
    const auto num_layers = static_cast<int>(layers_.size());
    if (problem_.at_least_two_stages && problem_.workers > 1 && num_layers > 1 && stages < 2)
      return;
    if (problem_.straight && stages != std::min(problem_.workers, num_layers)) return;
    if (problem_.use_all_workers && !problem_.straight && (free != 0 || used != problem_.workers))
      return;
    if (best_ && std::tie(best_->bottleneck_ns, best_->workers, best_->stages, best_->cut_bytes) <=
                     std::tie(bottleneck_ns, used, stages, cut_bytes)) {
      return;
    }
    best_ = BruteForceResult{
        .bottleneck_ns = bottleneck_ns, .workers = used, .stages = stages, .cut_bytes = cut_bytes};
    for (const Stage& stage : stages_) {
      best_->layers.emplace_back();
      for (size_t l = 0; l < layers_.size(); ++l) {
        if ((stage.layers >> l & 1) != 0)
          best_->layers.back().push_back(LayerId{static_cast<int32_t>(l)});
      }
      best_->places.push_back(stage.place);
      best_->recompute.push_back(stage.recompute);
    }
  }

  const graph::ModelGraph& graph_;
  const std::vector<PlannedLayer>& layers_;
  const PartitionProblem& problem_;
  const Mask everything_;
  std::vector<Mask> predecessors_;
  std::vector<Stage> stages_;  ///< from the output end
  std::optional<BruteForceResult> best_;
};

}  // namespace

std::optional<BruteForceResult> brute_force(const graph::ModelGraph& graph,
                                            const std::vector<PlannedLayer>& layers,
                                            const PartitionProblem& problem) {
  if (layers.size() > 16) throw ConfigError("brute force is for at most 16 layers");
  PartitionProblem normalised = problem;
  normalised.memory.max_workers = problem.workers;
  return Enumeration(graph, layers, normalised).run();
}

}  // namespace penstock::planner
