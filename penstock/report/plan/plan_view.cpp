#include "penstock/report/plan/plan_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "penstock/plan/boundaries.h"
#include "penstock/plan/sum_wait.h"
#include "penstock/report/text/text.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/units.h"

namespace penstock::report {

namespace {

using cluster::WorkerRange;

constexpr size_t kLevelNameWidth = 16;

std::optional<cluster::Topology> topology_of(const plan::Plan& plan) {
  try {
    return cluster::Topology(plan.cluster);
  } catch (const ConfigError&) {
    return std::nullopt;  // a plan made by hand: its stages can be shown all the same
  }
}

// The plan's own places; stage after stage from worker 0 when it names none; nothing when they are
// not in the cluster.
std::vector<WorkerRange> places_of(const plan::Plan& plan, int num_workers) {
  std::vector<WorkerRange> places;
  int64_t next = 0;
  const bool placed = std::all_of(plan.stages.begin(), plan.stages.end(),
                                  [](const plan::Stage& stage) { return stage.first_worker >= 0; });
  for (const plan::Stage& stage : plan.stages) {
    const int64_t first = placed ? stage.first_worker : next;
    const int64_t count = saturating_mul(stage.replicas, stage.tensor);
    if (stage.replicas < 1 || stage.tensor < 1 || first + count > num_workers) return {};
    places.push_back({static_cast<int>(first), static_cast<int>(count)});
    next = first + count;
  }
  return places;
}

/// The worker of the first member of each team, where workers hold several stages.
std::vector<int> first_members(const plan::Plan& plan,
                               const std::vector<std::vector<int>>& teams_by_stage) {
  std::vector<int> sizes(plan.worker_of_replica.size() + 1, 1);
  for (size_t s = 0; s < teams_by_stage.size(); ++s) {
    for (const int team : teams_by_stage[s])
      sizes[static_cast<size_t>(team)] = plan.stages[s].tensor;
  }
  std::vector<int> first{0};
  for (const int size : sizes) first.push_back(first.back() + size);
  return first;
}

std::string numbers(int first, int last) {
  return first == last ? fmt::to_string(first) : fmt::format("{}-{}", first, last);
}

// "0, 3, 5-8": a few numbers.
std::string list_of(const std::vector<int>& values) {
  constexpr size_t kMost = 6;
  std::string text;
  for (size_t begin = 0, parts = 0; begin < values.size(); ++parts) {
    size_t end = begin + 1;
    while (end < values.size() && values[end] == values[end - 1] + 1) ++end;
    if (parts == kMost) return text + ", ...";
    text += fmt::format("{}{}", parts == 0 ? "" : ", ", numbers(values[begin], values[end - 1]));
    begin = end;
  }
  return text;
}

void keep_least(std::optional<int64_t>& least, std::optional<int64_t> other) {
  if (other && (!least || *other < *least)) least = other;
}

std::optional<int64_t> memory_limit(const cluster::Cluster& cluster, WorkerRange range) {
  std::optional<int64_t> least;
  const auto take = [&](const cluster::Device& device) {
    if (device.memory_bytes > 0) keep_least(least, device.memory_bytes);
  };
  int common = range.count;
  for (const cluster::DeviceGroup& group : cluster.groups) {
    const int shared =
        std::min(group.first + group.count, range.end()) - std::max(group.first, range.first);
    if (shared <= 0) continue;
    common -= shared;
    take(group.device);
  }
  if (common > 0) take(cluster.device);
  return least;
}

// Of activations and the gradients that come back.
double mean_bytes(const plan::SentOver& sent) {
  return (static_cast<double>(sent.bytes) + static_cast<double>(sent.bytes_back)) / 2;
}

// Per micro-batch: activations one way, gradients back, latency once.
double there_and_back_ns(double bytes, const cluster::Path& path) {
  const auto latency_ns = static_cast<double>(path.latency_ns);
  return path.by_reference
             ? latency_ns
             : latency_ns + 2e9 * bytes / static_cast<double>(path.bandwidth_bytes_per_s);
}

}  // namespace

PlanView::PlanView(const plan::Plan& described, std::optional<int64_t> memory_limit_bytes)
    : plan(described), topology(topology_of(described)) {
  const std::vector<WorkerRange> places = topology && !plan.shares_workers()
                                              ? places_of(plan, topology->num_workers())
                                              : std::vector<WorkerRange>();
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    add_stage(plan.stages[s], places.empty() ? std::nullopt : std::optional(places[s]),
              memory_limit_bytes);
    const double time_ns = stages.back().time_ns();
    if (bottleneck.kind == Bottleneck::Kind::None || time_ns > bottleneck.time_ns)
      bottleneck = {.kind = Bottleneck::Kind::Stage, .index = s, .time_ns = time_ns};
  }
  if (plan.shares_workers()) add_workers(memory_limit_bytes);
  for (const plan::Link& link : plan.links) add_link(link);
  if (!places.empty()) find_slowest_boundary();
  if (!workers.empty()) find_slowest_link();
}

// The plan may be made by hand: a worker_of_replica that is too short, or names workers outside the
// cluster, is shown as none.
void PlanView::add_workers(std::optional<int64_t> memory_limit_bytes) {
  workers_by_stage_ = plan::workers_by_stage(plan);
  const int most = topology ? topology->num_workers() : 0;
  const auto outside = [&](int worker) { return worker < 0 || worker >= most; };
  const bool complete = workers_by_stage_.size() == plan.stages.size() &&
                        std::none_of(workers_by_stage_.begin(), workers_by_stage_.end(),
                                     [](const auto& of_stage) { return of_stage.empty(); });
  const auto named = static_cast<int>(plan.worker_of_replica.size());
  if (!complete || plan.num_workers() > most ||
      std::any_of(plan.worker_of_replica.begin(), plan.worker_of_replica.end(),
                  [&](int worker) { return worker >= named; }) ||
      std::any_of(plan.stages.begin(), plan.stages.end(),
                  [](const plan::Stage& stage) { return stage.tensor < 1; }) ||
      std::any_of(plan.worker_of_replica.begin(), plan.worker_of_replica.end(), outside))
    return workers_by_stage_.clear();
  workers.resize(static_cast<size_t>(plan.num_workers()));
  const std::vector<int> first = first_members(plan, workers_by_stage_);
  for (size_t s = 0; s < workers_by_stage_.size(); ++s) {
    std::vector<int> of_stage;
    for (int& team : workers_by_stage_[s]) {
      team = first[static_cast<size_t>(team)];
      for (int m = 0; m < plan.stages[s].tensor; ++m) of_stage.push_back(team + m);
    }
    const auto [least, last] = std::minmax_element(of_stage.begin(), of_stage.end());
    stages[s].where = where({*least, *last - *least + 1});
    stages[s].workers = list_of(of_stage);
    for (const int w : of_stage) {
      WorkerView& worker = workers[static_cast<size_t>(w)];
      worker.stages.push_back(s);
      worker.time_ns += stages[s].time_ns();
      worker.memory_bytes = std::max(worker.memory_bytes, plan.stages[s].memory_bytes);
      worker.memory_limit_bytes =
          memory_limit_bytes ? memory_limit_bytes : memory_limit(plan.cluster, {w, 1});
      keep_least(stages[s].memory_limit_bytes, worker.memory_limit_bytes);
      keep_least(least_memory_limit_bytes, worker.memory_limit_bytes);
    }
  }
  const auto slowest =
      std::max_element(workers.begin(), workers.end(),
                       [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  bottleneck = {.kind = Bottleneck::Kind::Worker,
                .index = static_cast<size_t>(slowest - workers.begin()),
                .time_ns = slowest->time_ns,
                .stages = slowest->stages};
}

void PlanView::add_stage(const plan::Stage& stage, std::optional<WorkerRange> place,
                         std::optional<int64_t> memory_limit_bytes) {
  const int64_t step = std::max<int64_t>(plan.micro_batches, 1);
  const auto rounds = static_cast<double>(ceil_div(step, std::max(stage.replicas, 1)));
  const auto per_step = static_cast<double>(step);
  StageView view;
  view.forward_ns = rounds * static_cast<double>(stage.forward_ns) / per_step;
  const double again_ns = stage.recompute ? static_cast<double>(stage.forward_ns) : 0;
  view.backward_ns = rounds * (static_cast<double>(stage.backward_ns) + again_ns) / per_step;
  view.sync_ns = static_cast<double>(saturating_add(plan::sum_wait_ns(plan, stage),
                                                    plan::sum_processor_ns(stage))) /
                 per_step;
  view.step_ns = static_cast<double>(stage.step_ns) / per_step;
  view.place = place;
  view.workers = place ? numbers(place->first, place->end() - 1) : "-";
  view.where = place ? where(*place) : "";
  view.memory_limit_bytes =
      memory_limit_bytes || !place ? memory_limit_bytes : memory_limit(plan.cluster, *place);
  keep_least(least_memory_limit_bytes, view.memory_limit_bytes);
  stages.push_back(std::move(view));
}

std::string PlanView::processor_text() const {
  std::string levels;
  for (size_t l = 0; l < plan.cluster.levels.size(); ++l) {
    const int64_t ns_per_gb = plan.cluster.levels[l].processor_ns_per_gb;
    if (ns_per_gb == 0) continue;
    levels += fmt::format("{}{} {} per GB", levels.empty() ? "" : ", ",
                          level_name(static_cast<int>(l) + 1), format_duration(ns_per_gb));
  }
  if (levels.empty()) return "";
  size_t most = 0;
  for (size_t s = 1; s < plan.stages.size(); ++s) {
    if (plan::sum_processor_ns(plan.stages[s]) > plan::sum_processor_ns(plan.stages[most]))
      most = s;
  }
  const int64_t most_ns = plan.stages.empty() ? 0 : plan::sum_processor_ns(plan.stages[most]);
  if (most_ns == 0) return "";
  return fmt::format("sums take processor time: {}, up to {} per step (stage {})", levels,
                     format_duration(most_ns), most);
}

void PlanView::add_link(const plan::Link& link) {
  LinkView view{.level = "-"};
  if (exists(link) && stages[link.from.index()].place && stages[link.to.index()].place) {
    const int level =
        level_between(*stages[link.from.index()].place, *stages[link.to.index()].place);
    view.level = level_name(level);
    view.by_reference = topology->path(level).by_reference;
    view.time_ns = there_and_back_ns(sent_bytes(link, level), topology->path(level));
  } else if (exists(link) && !workers_by_stage_.empty()) {
    const int level =
        level_between(workers_by_stage_[link.from.index()], workers_by_stage_[link.to.index()]);
    view.level = level == 0 ? "one worker" : level_name(level);
    view.by_reference = level == 0 || topology->path(level).by_reference;
    if (level > 0) view.time_ns = there_and_back_ns(sent_bytes(link, level), topology->path(level));
  }
  links.push_back(std::move(view));
}

// As the cost models see it: everything that passes from stages up to k to later ones goes through
// one link. A value that two later stages read counts twice here, so the time in the plan is used
// where it is lower.
void PlanView::find_slowest_boundary() {
  // Members of teams that span a boundary share its link (sent_bytes()).
  std::vector<double> begins(stages.size() + 1, 0.0);
  std::vector<int64_t> counts(stages.size() + 1, 0);
  for (const plan::Link& link : plan.links) {
    if (!exists(link)) continue;
    const double bytes = sent_bytes(
        link, level_between(*stages[link.from.index()].place, *stages[link.to.index()].place));
    begins[link.from.index()] += bytes;
    begins[link.to.index()] -= bytes;
    ++counts[link.from.index()];
    --counts[link.to.index()];
  }
  double bytes = 0;
  int64_t crossing = 0;
  bool found = false;
  for (size_t k = 0; k + 1 < stages.size(); ++k) {
    bytes += begins[k];
    crossing += counts[k];
    if (crossing == 0) continue;
    const int level = level_between(*stages[k].place, *stages[k + 1].place);
    const double time_ns = there_and_back_ns(std::max(bytes, 0.0), topology->path(level));
    if (!(time_ns > bottleneck.time_ns)) continue;
    bottleneck = {.kind = Bottleneck::Kind::Link,
                  .time_ns = time_ns,
                  .boundary = static_cast<int64_t>(k),
                  .crossing = crossing};
    found = true;
  }
  if (!found) return;
  int64_t most_bytes = -1;
  for (size_t l = 0; l < plan.links.size(); ++l) {
    const plan::Link& link = plan.links[l];
    if (!exists(link) || link.from.value > bottleneck.boundary ||
        link.to.value <= bottleneck.boundary || link.bytes <= most_bytes)
      continue;
    most_bytes = link.bytes;
    bottleneck.index = l;
  }
  const auto priced = static_cast<double>(plan.prediction.bottleneck_ns);
  if (bottleneck.crossing > 1 && plan.explanation.cost_model == "penstock" && priced > 0)
    bottleneck.time_ns = std::min(bottleneck.time_ns, priced);
}

// All messages between two workers share their link.
void PlanView::find_slowest_link() {
  struct Shared {
    double time_ns = 0;
    size_t largest = 0;
    int64_t crossing = 0;
  };
  std::map<std::pair<int, int>, Shared> between;
  for (size_t l = 0; l < plan.links.size(); ++l) {
    const plan::Link& link = plan.links[l];
    if (!exists(link)) continue;
    const std::vector<int>& from = workers_by_stage_[link.from.index()];
    const std::vector<int>& to = workers_by_stage_[link.to.index()];
    for (size_t k = 0; k < std::min(from.size(), to.size()); ++k) {
      if (from[k] == to[k]) continue;
      Shared& shared = between[std::minmax(from[k], to[k])];
      const int level = topology->level_between(std::min(from[k], to[k]), std::max(from[k], to[k]));
      shared.time_ns += there_and_back_ns(sent_bytes(link, level), topology->path(level)) /
                        static_cast<double>(from.size());
      if (shared.crossing++ == 0 || link.bytes > plan.links[shared.largest].bytes)
        shared.largest = l;
      if (!(shared.time_ns > bottleneck.time_ns)) continue;
      bottleneck = {.kind = Bottleneck::Kind::Link,
                    .index = shared.largest,
                    .time_ns = shared.time_ns,
                    .boundary = link.from.value,
                    .crossing = shared.crossing};
    }
  }
}

// Each member of a team sends a message of its own, over the one link of its unit.
double PlanView::sent_bytes(const plan::Link& link, int level) const {
  const int members =
      std::max(plan.stages[link.from.index()].tensor, plan.stages[link.to.index()].tensor);
  return mean_bytes(plan::sent_over(link, plan.precision)) * (level > 1 ? members : 1);
}

bool PlanView::exists(const plan::Link& link) const {
  return link.from.value >= 0 && link.from < link.to && link.to.index() < stages.size();
}

int PlanView::level_between(const std::vector<int>& a, const std::vector<int>& b) const {
  int level = 0;
  for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
    if (a[k] != b[k])
      level = std::max(level, topology->level_between(std::min(a[k], b[k]), std::max(a[k], b[k])));
  }
  return level;
}

int PlanView::level_between(const WorkerRange& a, const WorkerRange& b) const {
  const int first = std::min(a.first, b.first);
  return topology->level_of({first, std::max(a.end(), b.end()) - first});
}

std::string PlanView::gradient_method() const {
  const std::string method = to_string(plan.sync_method());
  return plan.gradient_precision == FloatType::Float32
             ? method
             : fmt::format("{} in {}", method, to_string(plan.gradient_precision));
}

std::string PlanView::bottleneck_name() const {
  if (bottleneck.kind == Bottleneck::Kind::None) return "none";
  if (bottleneck.kind == Bottleneck::Kind::Stage) {
    return fmt::format("stage {} ({})", bottleneck.index,
                       layers_text(plan.stages[bottleneck.index].layers, 40));
  }
  if (bottleneck.kind == Bottleneck::Kind::Worker) {
    std::vector<int> numbers;
    for (const size_t s : bottleneck.stages) numbers.push_back(static_cast<int>(s));
    return fmt::format("worker {} ({} {})", bottleneck.index,
                       numbers.size() == 1 ? "stage" : "stages", list_of(numbers));
  }
  if (!workers.empty() && bottleneck.crossing > 1) {
    const plan::Link& link = plan.links[bottleneck.index];
    return fmt::format("the link between the workers of stages {} and {}, for {} pairs of stages",
                       link.from.value, link.to.value, bottleneck.crossing);
  }
  if (bottleneck.crossing > 1) {
    return fmt::format("the {} links that pass from stage {} to later ones", bottleneck.crossing,
                       bottleneck.boundary);
  }
  const plan::Link& link = plan.links[bottleneck.index];
  return fmt::format("the link from stage {} to stage {}", link.from.value, link.to.value);
}

std::string PlanView::level_name(int level) const {
  if (level < 1 || static_cast<size_t>(level) > plan.cluster.levels.size()) return "-";
  const std::string& name = plan.cluster.levels[static_cast<size_t>(level) - 1].name;
  return name.empty() ? fmt::format("level {}", level) : shortened(name, kLevelNameWidth);
}

std::string PlanView::where(WorkerRange range, int least_level) const {
  std::string text;
  if (!topology) return text;
  for (int level = topology->num_levels() - 1; level >= least_level; --level) {
    const int unit = topology->unit_size(level);
    const int units = topology->unit_size(level + 1) / unit;
    if (units == 1) continue;
    const int first = range.first / unit;
    const int last = (range.end() - 1) / unit;
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", level_name(level),
                        numbers(first % units, last % units));
    if (first != last) break;
  }
  return text;
}

std::string bytes_text(const plan::Link& link, Precision precision) {
  const plan::SentOver sent = plan::sent_over(link, precision);
  std::string text = format_bytes(sent.bytes);
  if (link.gradient_bytes) text += fmt::format(", {} back", format_bytes(sent.bytes_back));
  return link.coding.is_exact() ? text : fmt::format("{} in {}", text, to_string(link.coding));
}

}  // namespace penstock::report
