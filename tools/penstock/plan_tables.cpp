#include "tools/penstock/plan_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/units.h"

namespace penstock::tool {

namespace {

std::string inside_text(const plan::MachineSum& inside) {
  switch (inside.way) {
    case plan::MachineWay::Ring:
      return "around a ring of its devices";
    case plan::MachineWay::CpuAssisted:
      return "under each PCIe switch, then by the CPU";
    case plan::MachineWay::Nvlink:
      return "over NVLink, each device its part";
    case plan::MachineWay::NvlinkRoot:
      return fmt::format("over NVLink to device {}, which alone exchanges with the host",
                         inside.root);
  }
  return "";
}

}  // namespace

Json pytorch_json(const planner::PytorchSplit& split, const plan::Plan& plan,
                  const std::string& schedule_path) {
  Json document{{"format", "penstock-pytorch-split"}, {"version", 1}, {"model", plan.model}};
  document["strategy"] = to_string(plan.strategy);
  document["split_spec"] = Json::object();
  document["moved"] = Json::array();
  for (const planner::PytorchCut& cut : split.cuts) {
    document["split_spec"][cut.module] = "beginning";
    document["moved"].push_back(cut.moved);
  }
  document["stages"] = Json::array();
  for (const plan::Stage& stage : split.plan.stages) document["stages"].push_back(stage.layers);
  const size_t slash = schedule_path.rfind('/');
  document["schedule"] = schedule_path.substr(slash == std::string::npos ? 0 : slash + 1);
  document["micro_batches"] = plan.micro_batches;
  document["throughput_samples_per_s"] = split.plan.prediction.throughput_samples_per_s;
  document["plan_throughput_samples_per_s"] = plan.prediction.throughput_samples_per_s;
  return document;
}

std::string pytorch_text(const planner::PytorchSplit& split, const plan::Plan& plan,
                         const std::string& cut_at) {
  report::Table table({{"stage"}, {"begins with", report::Align::Left}, {"layers"}, {"moved"}});
  for (size_t s = 0; s < split.plan.stages.size(); ++s) {
    const int moved = s == 0 ? 0 : split.cuts[s - 1].moved;
    table.add({fmt::to_string(s), s == 0 ? "the inputs" : split.cuts[s - 1].module,
               fmt::to_string(split.plan.stages[s].layers.size()),
               moved == 0 ? ""
                          : fmt::format("{} by {}", moved > 0 ? "later" : "earlier",
                                        report::plural(std::abs(moved), "layer"))});
  }
  const double share =
      split.plan.prediction.throughput_samples_per_s / plan.prediction.throughput_samples_per_s;
  return fmt::format(
      "\nfor torch.distributed.pipelining, cut before {}\n{}  predicted {:.1f} samples/s, {:.1f} % "
      "of "
      "the {:.1f} of the plan's own cuts\n",
      cut_at.empty() ? "blocks and modules outside of them"
                     : fmt::format("modules that fit '{}'", cut_at),
      table.text(2), split.plan.prediction.throughput_samples_per_s, 100 * share,
      plan.prediction.throughput_samples_per_s);
}

namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Json search_json(const planner::PlanResult& result) {
  Json improvements = Json::array();
  for (const planner::FoundPlan& found : result.improvements) {
    improvements.push_back({{"after_s", seconds(found.after)},
                            {"strategy", to_string(found.strategy)},
                            {"throughput_samples_per_s", found.samples_per_s}});
  }
  return {{"searched_s", seconds(result.searched)},
          {"found_after_s", seconds(result.found_after)},
          {"improvements", std::move(improvements)}};
}

std::string search_text(const planner::PlanResult& result) {
  return fmt::format("found after {:.2f} s of {:.2f} s searched\n", seconds(result.found_after),
                     seconds(result.searched));
}

Json what_if_json(const std::vector<plan::WhatIfResult>& changes) {
  Json list = Json::array();
  for (const plan::WhatIfResult& change : changes) {
    Json entry{{"change", change.change}, {"feasible", change.feasible}};
    if (!change.feasible) {
      entry["reason"] = change.reason;
    } else {
      entry["strategy"] = to_string(change.strategy);
      entry["config"] = change.config;
      entry["throughput_samples_per_s"] = change.throughput_samples_per_s;
      entry["speedup"] = change.speedup;
      entry["memory_bytes"] = change.memory_bytes;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json sync_json(const std::vector<planner::SyncPrice>& prices) {
  Json list = Json::array();
  for (const planner::SyncPrice& price : prices) {
    list.push_back({{"sync", to_string(price.sync)},
                    {"throughput_samples_per_s", price.throughput_samples_per_s},
                    {"sync_ns", price.sync_ns},
                    {"wait_ns", price.wait_ns},
                    {"processor_ns", price.processor_ns}});
    if (!price.inside) continue;
    Json& inside = list.back()["inside_machine"];
    inside["way"] = to_string(price.inside->way);
    inside["ns_per_byte"] = price.inside->ns();
    inside["network_card_share"] = price.inside->card_share;
    if (price.inside->root >= 0) inside["root"] = price.inside->root;
  }
  return list;
}

std::string sync_table(const std::vector<planner::SyncPrice>& prices, plan::GradientSync chosen) {
  const bool takes_time =
      std::any_of(prices.begin(), prices.end(),
                  [](const planner::SyncPrice& price) { return price.processor_ns > 0; });
  std::vector<report::Column> columns{
      {"method", report::Align::Left}, {"samples/s"}, {"sum"}, {"not hidden"}};
  if (takes_time) columns.push_back({"processor time"});
  report::Table table(std::move(columns));
  for (const planner::SyncPrice& price : prices) {
    const std::string name(to_string(price.sync));
    std::vector<std::string> cells{name + (price.sync == chosen ? " *" : ""),
                                   format_rate(price.throughput_samples_per_s),
                                   format_duration(price.sync_ns), format_duration(price.wait_ns)};
    if (takes_time) cells.push_back(format_duration(price.processor_ns));
    table.add(std::move(cells));
  }
  std::string text = table.text(2);
  for (const planner::SyncPrice& price : prices) {
    if (price.inside)
      text += fmt::format("  {} inside a machine: {}\n", to_string(price.sync),
                          inside_text(*price.inside));
  }
  return text;
}

}  // namespace penstock::tool
