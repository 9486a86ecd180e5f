#include "tools/penstock/schedule/schedule_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/units.h"

namespace penstock::tool {

namespace {

using Values = std::vector<int64_t>;
using Parse = int64_t (*)(std::string_view);

struct Row {
  const char* option;
  std::string ScheduleCostOptions::*text;
  const char* help;
  bool makes_order = false;
};

constexpr Row kRows[] = {
    {"--forward", &ScheduleCostOptions::forward,
     "Time of F and R: 1ms for all stages, or one per stage: 1ms,2ms,1ms (default: 1ms)", true},
    {"--backward", &ScheduleCostOptions::backward, "Time of B (default: I and W together)", true},
    {"--backward-input", &ScheduleCostOptions::backward_input, "Time of I (default: that of F)",
     true},
    {"--backward-weight", &ScheduleCostOptions::backward_weight, "Time of W (default: that of F)",
     true},
    {"--step", &ScheduleCostOptions::step, "Time of STEP (default: 0)", true},
    {"--sync", &ScheduleCostOptions::sync, "Time of SYNC (default: 0)", true},
    {"--latency", &ScheduleCostOptions::latency, "Latency of each message, e.g. 20us (default: 0)",
     true},
    {"--bandwidth", &ScheduleCostOptions::bandwidth,
     "Bandwidth of each worker's link per direction, e.g. 10Gbps (default: unlimited)", true},
    {"--message-bytes", &ScheduleCostOptions::message_bytes,
     "Bytes of each message, e.g. 4MB (default: 0)", true},
    {"--move", &ScheduleCostOptions::move,
     "Time that OFFLOAD takes to arrive, and LOAD (default: 0)"},
    {"--stash-bytes", &ScheduleCostOptions::stash_bytes,
     "Bytes kept from forward to backward for each micro-batch (default: 0)"},
    {"--weight-bytes", &ScheduleCostOptions::weight_bytes,
     "Bytes of one version of a stage's weights (default: 0)"},
};

/// One value per stage; nothing when the option is not given.
Values values_of(const ScheduleCostOptions& options, const char* name, Parse parse,
                 size_t num_stages) {
  std::string text;
  for (const Row& row : kRows) {
    if (std::string_view(row.option) == name) text = options.*row.text;
  }
  Values values;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    values.push_back(parse_option(name, text.substr(begin, end - begin), parse));
    begin = end + 1;
  }
  if (values.size() == 1) values.resize(num_stages, values[0]);
  if (!values.empty() && values.size() != num_stages) {
    throw ConfigError(
        fmt::format("{} names {} values, expected one or one for each of the {} stages", name,
                    values.size(), num_stages));
  }
  return values;
}

int64_t value_of(const std::string& name, const std::string& text, Parse parse) {
  return text.empty() ? 0 : parse_option(name, text, parse);
}

/// B and W of one stage from what is given of B, I and W.
void set_backward(simulate::StageCost& stage, const int64_t* whole, const int64_t* input,
                  const int64_t* weight) {
  if (whole == nullptr) {
    stage.backward_weight_ns = weight != nullptr ? *weight : stage.forward_ns;
    stage.backward_ns =
        saturating_add(input != nullptr ? *input : stage.forward_ns, stage.backward_weight_ns);
    return;
  }
  stage.backward_ns = *whole;
  stage.backward_weight_ns = weight != nullptr  ? *weight
                             : input != nullptr ? *whole - *input
                                                : *whole / 2;
  const int64_t input_ns = stage.backward_ns - stage.backward_weight_ns;
  if (input_ns < 0 || stage.backward_weight_ns < 0 || (input != nullptr && *input != input_ns)) {
    throw ConfigError(
        fmt::format("--backward {} is not the sum of --backward-input and --backward-weight: leave "
                    "one of them out",
                    format_duration(*whole)));
  }
}

std::vector<simulate::LinkCost> links_of(const schedule::Schedule& schedule, int64_t bytes) {
  std::set<std::pair<StageId, StageId>> pairs;
  for (const auto& actions : schedule.workers) {
    for (const schedule::Action& action : actions) {
      if (action.op == schedule::Op::SendForward) pairs.emplace(action.stage, action.peer);
      if (action.op == schedule::Op::SendBackward) pairs.emplace(action.peer, action.stage);
    }
  }
  std::vector<simulate::LinkCost> links;
  links.reserve(pairs.size());
  for (const auto& [from, to] : pairs) links.push_back({from, to, bytes});
  return links;
}

/// The stages that no other worker sends to, and which share a worker with the stage before.
std::vector<size_t> fed_by_own_worker(const schedule::Schedule& schedule) {
  const size_t num_stages = schedule.shape.replicas.size();
  std::vector<bool> is_sent_to(num_stages, false);
  std::vector<std::set<size_t>> workers_of(num_stages);
  for (size_t w = 0; w < schedule.workers.size(); ++w) {
    for (const schedule::Action& action : schedule.workers[w]) {
      if (action.stage.value < 0 || action.stage.index() >= num_stages) continue;
      if (action.op == schedule::Op::Forward) workers_of[action.stage.index()].insert(w);
      if (action.op == schedule::Op::RecvForward) is_sent_to[action.stage.index()] = true;
    }
  }
  std::vector<size_t> stages;
  for (size_t s = 1; s < num_stages; ++s) {
    const bool shared = std::any_of(workers_of[s].begin(), workers_of[s].end(),
                                    [&](size_t w) { return workers_of[s - 1].contains(w); });
    if (shared && !is_sent_to[s]) stages.push_back(s);
  }
  return stages;
}

}  // namespace

std::string ScheduleCostOptions::given() const {
  for (const Row& row : kRows) {
    if (!(this->*row.text).empty()) return row.option;
  }
  return "";
}

void add_schedule_cost_options(CLI::App& app, ScheduleCostOptions& options) {
  for (const Row& row : kRows)
    app.add_option(row.option, options.*row.text, row.help)
        ->group("Costs of --schedule without --plan");
}

void add_order_cost_options(CLI::App& app, ScheduleCostOptions& options) {
  for (const Row& row : kRows) {
    if (row.makes_order)
      app.add_option(row.option, options.*row.text, row.help)
          ->group("Costs from which zb-auto and zb-auto-v make their order, without --plan");
  }
}

std::vector<schedule::StepCosts> step_costs_of(const ScheduleCostOptions& options,
                                               const schedule::ScheduleShape& shape) {
  const simulate::Costs costs = costs_of(options, {.kind = "", .shape = shape, .workers = {}});
  const int64_t bytes = value_of("--message-bytes", options.message_bytes, parse_bytes);
  const int64_t bandwidth = costs.bandwidth_bytes_per_s;
  const int64_t travel_ns = bandwidth > 0 ? ceil_mul_div(bytes, 1'000'000'000, bandwidth) : 0;
  std::vector<schedule::StepCosts> steps;
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const simulate::StageCost& stage = costs.stages[s];
    const bool again = shape.recomputes(StageId{static_cast<int32_t>(s)});
    steps.push_back(
        {.forward = stage.forward_ns,
         .input = saturating_add(stage.backward_ns - stage.backward_weight_ns,
                                 again ? stage.forward_ns : 0),
         .again = again ? stage.forward_ns : 0,
         .weight = stage.backward_weight_ns,
         .message = saturating_add(costs.latency_ns, travel_ns),
         .busy = {travel_ns},
         .finish = saturating_add(stage.step_ns, shape.replicas[s] > 1 ? stage.sync_ns : 0)});
  }
  return steps;
}

simulate::Costs costs_of(const ScheduleCostOptions& options, const schedule::Schedule& schedule) {
  const size_t num_stages = schedule.shape.replicas.size();
  const auto times = [&](const char* name) {
    return values_of(options, name, parse_duration, num_stages);
  };
  const auto sizes = [&](const char* name) {
    return values_of(options, name, parse_bytes, num_stages);
  };
  const auto at = [](const Values& values, size_t s) {
    return values.empty() ? nullptr : &values[s];
  };
  const Values forward = times("--forward");
  const Values whole = times("--backward");
  const Values input = times("--backward-input");
  const Values weight = times("--backward-weight");
  const Values step = times("--step");
  const Values sync = times("--sync");
  const Values move = times("--move");
  const Values stash = sizes("--stash-bytes");
  const Values weights = sizes("--weight-bytes");

  simulate::Costs costs;
  costs.latency_ns = value_of("--latency", options.latency, parse_duration);
  costs.bandwidth_bytes_per_s = value_of("--bandwidth", options.bandwidth, parse_bandwidth);
  costs.links = links_of(schedule, value_of("--message-bytes", options.message_bytes, parse_bytes));
  costs.stages.resize(num_stages);
  for (size_t s = 0; s < num_stages; ++s) {
    constexpr int64_t kUnitNs = 1'000'000;
    simulate::StageCost& stage = costs.stages[s];
    stage.forward_ns = forward.empty() ? kUnitNs : forward[s];
    set_backward(stage, at(whole, s), at(input, s), at(weight, s));
    if (!step.empty()) stage.step_ns = step[s];
    if (!sync.empty()) stage.sync_ns = sync[s];
    if (!move.empty()) stage.move_ns = move[s];
    if (!stash.empty()) stage.stash_bytes = stash[s];
    if (!weights.empty()) stage.weight_bytes = weights[s];
  }
  for (const simulate::LinkCost& link : costs.links) {
    const bool known = link.from.value >= 0 && link.to.value >= 0 && link.to.index() < num_stages;
    if (!known) continue;  // simulate() says so
    int64_t& input_bytes = costs.stages[link.to.index()].input_bytes;
    input_bytes = saturating_add(input_bytes, link.bytes);
  }
  // A stage behind one on its own worker gets no message, and keeps its inputs all the same.
  const int64_t bytes = value_of("--message-bytes", options.message_bytes, parse_bytes);
  for (const size_t stage : fed_by_own_worker(schedule)) costs.stages[stage].input_bytes = bytes;
  return costs;
}

}  // namespace penstock::tool
