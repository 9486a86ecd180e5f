#include "penstock/planner/pricing/traffic.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "penstock/plan/boundaries.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

using cluster::WorkerRange;

namespace {

// Residues modulo g that both windows hold: each is `length` < g consecutive residues from `begin`
// on, going round.
int64_t common_residues(int64_t begin_a, int64_t length_a, int64_t begin_b, int64_t length_b,
                        int64_t g) {
  int64_t common = 0;
  for (const int64_t shift : {-g, int64_t{0}, g}) {
    common += std::max<int64_t>(0, std::min(begin_a + length_a, begin_b + shift + length_b) -
                                       std::max(begin_a, begin_b + shift));
  }
  return common;
}

// How the workers of a stage are spread over the units of `unit_size` workers.
struct Spread {
  int64_t units = 0;
  double pairs = 0;  ///< ordered pairs of workers in different units
};

double square(int64_t n) { return static_cast<double>(n) * static_cast<double>(n); }

Spread spread_of(const WorkerRange& range, int64_t unit_size) {
  const int64_t head =
      std::min<int64_t>((unit_size - range.first % unit_size) % unit_size, range.count);
  const int64_t whole = (range.count - head) / unit_size;
  const int64_t tail = range.count - head - whole * unit_size;
  return {(range.end() - 1) / unit_size - range.first / unit_size + 1,
          square(range.count) - square(head) - static_cast<double>(whole) * square(unit_size) -
              square(tail)};
}

Spread spread_of(const std::vector<int>& workers, int64_t unit_size) {
  std::map<int64_t, int64_t> counts;
  for (const int worker : workers) ++counts[worker / unit_size];
  Spread spread{static_cast<int64_t>(counts.size()), square(static_cast<int64_t>(workers.size()))};
  for (const auto& [unit, count] : counts) spread.pairs -= square(count);
  return spread;
}

// The workers of a stage: a range, or those of `list` where workers hold several stages.
struct Seats {
  WorkerRange range;
  const std::vector<int>* list = nullptr;

  int count() const { return list == nullptr ? range.count : static_cast<int>(list->size()); }
  int level(const cluster::Topology& topology) const {
    if (list == nullptr) return topology.level_of(range);
    const auto [least, most] = std::minmax_element(list->begin(), list->end());
    return topology.level_between(*least, *most);
  }
  Spread spread(int64_t unit_size) const {
    return list == nullptr ? spread_of(range, unit_size) : spread_of(*list, unit_size);
  }
};

// The part of the weights that a synchronisation keeps on the cluster's CPU machines, as the cost
// model shares them out (cost_model.h); the rest is spread over the members of the sum: replicas,
// or machines of them. Nothing means a ring.
std::optional<double> share_on_cpu_machines(const CostModel& model,
                                            const cluster::CpuMachines& machines,
                                            const Seats& place, int members, int64_t weight_bytes) {
  if (model.sync() == GradientSync::Ring) return std::nullopt;
  if (!model.uses_servers(weight_bytes, place.count(), place.level(model.topology()))) return 0;
  if (all_on_servers(model.sync())) return 1.0;
  const auto n = static_cast<double>(members);
  const double k = machines.count * static_cast<double>(machines.bandwidth_bytes_per_s) /
                   static_cast<double>(model.network_bytes_per_s());
  const double all = n * n + k * (n - 2);
  return k >= n ? 1 : 2 * k * (n - 1) / all;
}

// The machines of `size` workers that a stage has workers on; `list` keeps them where it is used.
Seats machines_of(const Seats& place, int size, std::vector<int>& list) {
  if (place.list == nullptr) {
    const int first = place.range.first / size;
    return {{first, (place.range.end() - 1) / size - first + 1}};
  }
  for (const int worker : *place.list) list.push_back(worker / size);
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return {{}, &list};
}

// Ordered pairs of replicas of one machine in different units, each pair counted as the part of the
// weights that one of them keeps: what `ordered` sends inside machines of `size` workers, over 2 W.
double shares_inside(const Seats& place, int size, int64_t unit_size) {
  if (place.list != nullptr) {
    std::map<int, std::vector<int>> machines;
    for (const int worker : *place.list) machines[worker / size].push_back(worker);
    double shares = 0;
    for (const auto& [machine, workers] : machines)
      shares += spread_of(workers, unit_size).pairs / static_cast<double>(workers.size());
    return shares;
  }
  const auto shares_of = [&](int first, int count) {
    return count == 0 ? 0 : spread_of(WorkerRange{first, count}, unit_size).pairs / count;
  };
  const WorkerRange& range = place.range;
  const int head = std::min((size - range.first % size) % size, range.count);
  const int whole = (range.count - head) / size;
  const int tail = range.count - head - whole * size;
  return shares_of(range.first, head) + whole * shares_of(0, size) + shares_of(0, tail);
}

// Bytes that one synchronisation of a stage moves through the links of `level`, in all.
double sync_bytes(const CostModel& model, const cluster::CpuMachines& machines, const Seats& place,
                  int64_t weight_bytes, int level) {
  if (place.count() < 2) return 0;
  const auto weights = static_cast<double>(model.wire_bytes(weight_bytes, level));
  const auto replicas = static_cast<double>(place.count());
  const int64_t unit_size = model.topology().unit_size(level - 1);
  const int size = model.machine_size();
  if (unit_size < size) return shares_inside(place, size, unit_size) * 2 * weights;
  std::vector<int> list;
  const Seats members = machines_of(place, size, list);
  if (members.count() < 2) return 0;
  const auto remote = share_on_cpu_machines(model, machines, place, members.count(), weight_bytes);
  if (!remote) {
    // One hop leaves each unit, the last one back to the first.
    const int64_t units = place.spread(unit_size).units;
    return units < 2 ? 0 : static_cast<double>(units) * 2 * (replicas - 1) / replicas * weights;
  }
  // Every member pushes and pulls: all that the CPU machines keep, and of the rest what each other
  // member keeps.
  const auto n = static_cast<double>(members.count());
  return 2 * n * *remote * weights +
         members.spread(unit_size / size).pairs * 2 * (1 - *remote) * weights / n;
}

// The same for replica k of one stage and replica k of the other, where workers hold several
// stages.
double share_within_unit(const std::vector<int>& from, const std::vector<int>& to, int unit_size) {
  size_t within = 0;
  const size_t pairs = std::min(from.size(), to.size());
  for (size_t k = 0; k < pairs; ++k) within += from[k] / unit_size == to[k] / unit_size ? 1 : 0;
  return pairs == 0 ? 1 : static_cast<double>(within) / static_cast<double>(pairs);
}

// Whether gradients go back to a layer's outputs: it has weights, or one that it reads from has.
std::vector<bool> layers_with_gradients(const profile::Profile& profile) {
  std::vector<bool> result(profile.costs.size());
  for (size_t l = 0; l < result.size(); ++l) {
    result[l] = profile.costs[l].weight_bytes > 0;
    for (const graph::ValueRef& input : profile.graph.layers()[l].inputs)
      result[l] = result[l] || (!input.is_model_input() && result[input.layer.index()]);
  }
  return result;
}

bool joins(const cluster::Topology& topology, int level) {
  return topology.unit_size(level) > topology.unit_size(level - 1);
}

}  // namespace

int cut_level(const cluster::Topology& topology, const WorkerRange& a, const WorkerRange& b) {
  return topology.level_between(std::min(a.first, b.first), std::max(a.end(), b.end()) - 1);
}

double share_within_unit(const WorkerRange& from, const WorkerRange& to, int unit_size) {
  const WorkerRange& first = from.first < to.first ? from : to;
  const WorkerRange& second = from.first < to.first ? to : from;
  // Only the unit of the first range's last worker can hold workers of both.
  const int64_t unit = (first.end() - 1) / unit_size;
  const int64_t begin = std::max<int64_t>(first.first, unit * unit_size) - first.first;
  const int64_t near = first.count - begin;
  const int64_t far = std::clamp<int64_t>((unit + 1) * unit_size - second.first, 0, second.count);
  if (far == 0) return 0;
  // Replicas x and y meet when they are equal modulo g, each such pair equally often.
  const int64_t g = std::gcd(first.count, second.count);
  const int64_t met = g * (near / g) * (far / g) + near / g * (far % g) + far / g * (near % g) +
                      common_residues(begin % g, near % g, 0, far % g, g);
  return static_cast<double>(met) / (static_cast<double>(first.count) *
                                     static_cast<double>(second.count) / static_cast<double>(g));
}

Traffic traffic_of(const Context& context, const std::vector<StageId>& stage_of_layer,
                   size_t num_stages) {
  struct Bytes {
    int64_t there = 0;
    int64_t back = 0;
  };
  const std::vector<bool> has_gradient = layers_with_gradients(context.profile);
  std::map<std::pair<StageId, StageId>, Bytes> link_bytes;
  std::map<graph::ValueRef, std::pair<StageId, StageId>> reach;
  const auto bytes_of = [&](const graph::ValueRef& value) {
    return context.layers[value.layer.index()].output_bytes[static_cast<size_t>(value.output)];
  };
  for (const graph::CrossingValue& crossing :
       graph::crossing_values(context.profile.graph, stage_of_layer)) {
    Bytes& sum = link_bytes[{crossing.from, crossing.to}];
    sum.there += bytes_of(crossing.value);
    if (has_gradient[crossing.value.layer.index()]) sum.back += bytes_of(crossing.value);
    auto& span = reach.try_emplace(crossing.value, crossing.from, crossing.to).first->second;
    span.second = std::max(span.second, crossing.to);
  }
  Traffic traffic;
  for (const auto& [stages, bytes] : link_bytes) {
    traffic.links.push_back({stages.first, stages.second, bytes.there});
    if (bytes.back != bytes.there) traffic.links.back().gradient_bytes = bytes.back;
  }
  traffic.cut_bytes.assign(num_stages - 1, 0);
  for (const auto& [value, span] : reach) {
    for (size_t k = span.first.index(); k < span.second.index(); ++k)
      traffic.cut_bytes[k] += bytes_of(value);
  }
  return traffic;
}

double coded_cut_ns(const Context& context, const plan::Plan& plan, size_t stage, int64_t bytes,
                    int level) {
  if (context.options.given_boundaries.empty()) return context.model->cut_ns(bytes, level);
  const std::vector<std::vector<int>> workers = plan::workers_by_stage(plan);
  std::optional<double> slowest;
  for (const plan::Link& link : plan.links) {
    if (link.from.index() > stage || link.to.index() <= stage) continue;
    if (!workers.empty() && workers.at(link.from.index()) == workers.at(link.to.index())) continue;
    const double ns = context.model->cut_ns(bytes, level, link.coding, link.width);
    slowest = std::max(slowest.value_or(ns), ns);
  }
  return slowest ? *slowest : context.model->cut_ns(bytes, level);
}

std::vector<double> bytes_per_sample(const plan::Plan& plan, const CostModel& model) {
  const cluster::Topology& topology = model.topology();
  const auto samples = static_cast<double>(plan.micro_batch_size);
  const double samples_per_sum =
      samples * static_cast<double>(plan.micro_batches) * static_cast<double>(plan.sync_every);
  const std::vector<std::vector<int>> worker_of_replica = plan::workers_by_stage(plan);
  const auto range_of = [&](size_t stage) {
    return WorkerRange{plan.stages[stage].first_worker, plan.stages[stage].replicas};
  };
  const auto seats_of = [&](size_t stage) {
    return worker_of_replica.empty() ? Seats{range_of(stage)}
                                     : Seats{{}, &worker_of_replica[stage]};
  };
  const auto within = [&](const plan::Link& link, int unit_size) {
    const size_t from = link.from.index();
    const size_t to = link.to.index();
    return worker_of_replica.empty()
               ? share_within_unit(range_of(from), range_of(to), unit_size)
               : share_within_unit(worker_of_replica[from], worker_of_replica[to], unit_size);
  };
  std::vector<double> result;
  for (int level = 1; level <= topology.num_levels(); ++level) {
    double bytes = 0;
    if (joins(topology, level)) {
      for (const plan::Link& link : plan.links) {
        const double across = 1 - within(link, topology.unit_size(level - 1));
        const plan::SentOver sent = plan::sent_over(link, plan.precision);
        bytes += across * (static_cast<double>(sent.bytes) + static_cast<double>(sent.bytes_back)) /
                 samples;
      }
      for (size_t s = 0; s < plan.stages.size(); ++s) {
        bytes += sync_bytes(model, plan.cluster.cpu_machines, seats_of(s),
                            plan.stages[s].weight_bytes, level) /
                 samples_per_sum;
      }
    }
    result.push_back(bytes);
  }
  return result;
}

}  // namespace penstock::planner
