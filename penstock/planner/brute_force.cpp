#include "penstock/planner/brute_force.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "penstock/util/error.h"

namespace penstock::planner {

namespace {

using Mask = uint32_t;

class Enumeration {
 public:
  Enumeration(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers, const CostModel& model, const MemoryModel& memory,
              int workers, bool straight, bool at_least_two_stages)
      : graph_(graph),
        layers_(layers),
        model_(model),
        memory_(memory),
        workers_(workers),
        straight_(straight),
        everything_((Mask{1} << layers.size()) - 1),
        at_least_two_stages_(at_least_two_stages && workers > 1 && layers.size() > 1) {
    for (size_t l = 0; l < layers.size(); ++l) {
      Mask before = 0;
      for (const LayerId p : graph.predecessors(LayerId{static_cast<int32_t>(l)})) before |= Mask{1} << p.index();
      predecessors_.push_back(before);
    }
  }

  std::optional<BruteForceResult> run() {
    extend(0, 0);
    return best_;
  }

 private:
  bool closed(Mask set) const {
    for (size_t l = 0; l < layers_.size(); ++l) {
      if ((set >> l & 1) != 0 && (predecessors_[l] & ~set) != 0) return false;
    }
    return true;
  }

  void extend(Mask done, int used) {
    if (done == everything_) {
      judge(used);
      return;
    }
    for (Mask next = done + 1; next <= everything_; ++next) {
      if ((next & done) != done || !closed(next)) continue;
      for (int replicas = 1; replicas <= (straight_ ? std::min(1, workers_ - used) : workers_ - used); ++replicas) {
        ends_.push_back(next);
        replicas_.push_back(replicas);
        extend(next, used + replicas);
        ends_.pop_back();
        replicas_.pop_back();
      }
    }
  }

  LayerSums sums_of(Mask set) const {
    LayerSums sums;
    for (size_t l = 0; l < layers_.size(); ++l) {
      if ((set >> l & 1) == 0) continue;
      sums.compute_ns += layers_[l].compute_ns;
      sums.step_ns += layers_[l].step_ns;
      sums.weight_bytes += layers_[l].weight_bytes;
      sums.stash_bytes += layers_[l].stash_bytes;
    }
    return sums;
  }

  int64_t cut_bytes(Mask set) const {
    std::set<graph::ValueRef> crossing;
    for (size_t l = 0; l < layers_.size(); ++l) {
      if ((set >> l & 1) != 0) continue;
      for (const graph::ValueRef& input : graph_.layers()[l].inputs) {
        if (!input.is_model_input() && (set >> input.layer.index() & 1) != 0) crossing.insert(input);
      }
    }
    int64_t bytes = 0;
    for (const graph::ValueRef& value : crossing) bytes += layers_[value.layer.index()].output_bytes[static_cast<size_t>(value.output)];
    return bytes;
  }

  void judge(int used) {
    const auto stages = static_cast<int>(ends_.size());
    if (at_least_two_stages_ && stages < 2) return;
    if (straight_ && stages != std::min<int>(workers_, static_cast<int>(layers_.size()))) return;
    double bottleneck_ns = 0;
    int from_here = used;
    for (size_t k = 0; k < ends_.size(); ++k) {
      const LayerSums sums = sums_of(ends_[k] & ~(k == 0 ? 0 : ends_[k - 1]));
      if (!memory_.fits(sums, replicas_[k], from_here)) return;
      from_here -= replicas_[k];
      const SegmentCost segment{sums.compute_ns, sums.step_ns, sums.weight_bytes};
      bottleneck_ns = std::max(bottleneck_ns, model_.stage_ns(segment, replicas_[k], memory_.micro_batches));
      if (k + 1 < ends_.size()) bottleneck_ns = std::max(bottleneck_ns, model_.cut_ns(cut_bytes(ends_[k])));
    }
    if (best_ && std::tie(best_->bottleneck_ns, best_->workers, best_->stages) <= std::tie(bottleneck_ns, used, stages)) return;
    best_ = BruteForceResult{bottleneck_ns, used, stages, {}, replicas_};
    for (size_t k = 0; k < ends_.size(); ++k) {
      const Mask set = ends_[k] & ~(k == 0 ? 0 : ends_[k - 1]);
      best_->layers.emplace_back();
      for (size_t l = 0; l < layers_.size(); ++l) {
        if ((set >> l & 1) != 0) best_->layers.back().push_back(LayerId{static_cast<int32_t>(l)});
      }
    }
  }

  const graph::ModelGraph& graph_;
  const std::vector<PlannedLayer>& layers_;
  const CostModel& model_;
  const MemoryModel& memory_;
  const int workers_;
  const bool straight_;
  const Mask everything_;
  const bool at_least_two_stages_;
  std::vector<Mask> predecessors_;
  std::vector<Mask> ends_;
  std::vector<int> replicas_;
  std::optional<BruteForceResult> best_;
};

}  // namespace

std::optional<BruteForceResult> brute_force(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers, const CostModel& model,
                                            const MemoryModel& memory, int workers, bool straight, bool at_least_two_stages) {
  if (layers.size() > 16) throw ConfigError("brute force is for at most 16 layers");
  return Enumeration(graph, layers, model, memory, workers, straight, at_least_two_stages).run();
}

}  // namespace penstock::planner
