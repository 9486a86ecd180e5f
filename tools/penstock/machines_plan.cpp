#include "tools/penstock/machines_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "penstock/options/rows.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/what_if.h"
#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/units.h"
#include "tools/penstock/plan_tables.h"
#include "tools/penstock/train/training_part.h"

namespace penstock::tool {

namespace fs = std::filesystem;

namespace {

using planner::MachineKind;
using planner::Machines;
using planner::OtherWay;

/// How far estimates from data sheets were off for whole models: 21 % at most (docs/profiles.md),
/// and what predictions miss besides (plan::kModelError).
constexpr double kEstimateError = 0.25;
constexpr int kMostMoreMachines = 8;
constexpr int64_t kFastNetwork = 1'250'000'000;  // 10 Gbps

/// A folder that goes with its files.
class ScratchFolder {
 public:
  ScratchFolder() : path_(made()) {}
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  fs::path file(const std::string& name) const { return path_ / name; }

 private:
  static fs::path made() {
    std::string name = (fs::temp_directory_path() / "penstock-plan-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw RuntimeError(fmt::format("cannot make {}: {}", name, std::strerror(errno)));
    return name;
  }

  fs::path path_;
};

/// The rows of the model as the user gave them, for `penstock profile`, which has the same.
std::vector<std::string> model_words(const options::SearchRequest& request) {
  std::vector<std::string> words;
  const options::SearchRequest usual;
  for (const auto& row : options::rows_of<options::SearchRequest>()) {
    if (row.section != options::Section::Model) continue;
    const std::string text = options::text_of(row, request);
    if (text == options::text_of(row, usual)) continue;
    words.emplace_back(row.name);
    if (!options::is_flag(row)) words.push_back(text);
  }
  return words;
}

profile::Profile estimated(const options::SearchRequest& request, int64_t batch_size,
                           const profile::DeviceSpec& device) {
  const ScratchFolder scratch;
  const fs::path sheet = scratch.file("device.toml");
  const fs::path made = scratch.file("profile.json");
  write_file_atomic(sheet, profile::to_toml(device));
  std::vector<std::string> words{"profile",      "--analytic",   "--device",
                                 sheet.string(), "--batch-size", fmt::to_string(batch_size),
                                 "--output",     made.string()};
  for (const std::string& word : model_words(request)) words.push_back(word);
  for (const auto& row : options::rows_of<options::SearchRequest>()) {
    if (row.name != "--optimizer") continue;
    words.insert(words.end(), {"--optimizer", options::text_of(row, request)});
  }
  run_training_part(words);
  return profile::load_profile(made);
}

double matmul_rate(const profile::DeviceSpec& device) {
  return static_cast<double>(device.flops_per_s) * device.efficiency.matmul;
}

std::string kind_text(const MachineKind& kind) {
  std::string text = kind.count == 1 ? kind.name : fmt::format("{} x {}", kind.count, kind.name);
  std::vector<std::string> parts;
  if (kind.devices > 1 || kind.device.name != kind.name) {
    parts.push_back(kind.devices == 1 ? kind.device.name
                                      : fmt::format("{} {}", kind.devices, kind.device.name));
  }
  if (kind.memory_bytes > 0) {
    parts.push_back(format_bytes(kind.memory_bytes) + (kind.devices > 1 ? " each" : ""));
  }
  return parts.empty() ? text : fmt::format("{} ({})", text, fmt::join(parts, ", "));
}

/// As networks are sold: "1 Gbps".
std::string network_text(int64_t bytes_per_s) {
  const double bits = 8 * static_cast<double>(bytes_per_s);
  return bits < 1e9 ? fmt::format("{:.3g} Mbps", bits / 1e6)
                    : fmt::format("{:.3g} Gbps", bits / 1e9);
}

/// Places of the sequences of a sample; 0: samples are no sequences.
double tokens_per_sample(const profile::Profile& profile) {
  double tokens = 0;
  for (const profile::LengthGroup& group : profile.lengths)
    if (!group.input_shapes.empty() && !group.input_shapes.front().empty())
      tokens += group.share * static_cast<double>(group.input_shapes.front().front());
  return tokens;
}

/// In tokens where the samples are sequences.
struct Rate {
  double per_sample = 1;
  const char* unit = "samples/s";

  explicit Rate(const profile::Profile& profile) {
    if (const double tokens = tokens_per_sample(profile); tokens > 0) {
      per_sample = tokens;
      unit = "tokens/s";
    }
  }
  std::string text(double samples_per_s) const { return format_rate(samples_per_s * per_sample); }
};

Machines with_more(const Machines& machines, size_t kind, int more) {
  Machines changed = machines;
  changed.kinds[kind].count += more;
  return changed;
}

/// The same machines at other numbers: the speeds are those of the cluster.
std::vector<double> speeds_of(const PlannedFor& there) {
  std::vector<double> speeds;
  int first = 0;
  for (const MachineKind& kind : there.machines->kinds) {
    speeds.push_back(there.cluster.device_of(first).speed);
    first += kind.count * kind.devices;
  }
  return speeds;
}

class Changes {
 public:
  Changes(const PlannedFor& there, planner::PlanOptions options, const planner::PlanResult& result)
      : there_(there), options_(std::move(options)), result_(result), speeds_(speeds_of(there)) {
    options_.compare = false;
  }

  plan::WhatIfResult answer(std::string name, const Machines& machines) const {
    plan::WhatIfResult change{.change = std::move(name)};
    planner::PlanResult found;
    try {
      found = planner::make_plan(there_.profile, planner::cluster_of(machines, speeds_), options_);
    } catch (const ConfigError& error) {  // such as teams of two on an odd number of machines
      found.reason = error.what();
    }
    if (!found.plan) {
      change.feasible = false;
      change.reason = found.reason;
      return change;
    }
    // The plan of today does as well with more machines or a faster network.
    if (result_.plan && found.plan->prediction.throughput_samples_per_s <
                            result_.plan->prediction.throughput_samples_per_s)
      found = result_;
    change.strategy = found.plan->strategy;
    change.config = found.plan->config();
    change.throughput_samples_per_s = found.plan->prediction.throughput_samples_per_s;
    if (result_.plan) {
      change.speedup =
          change.throughput_samples_per_s / result_.plan->prediction.throughput_samples_per_s;
    }
    for (const plan::Stage& stage : found.plan->stages)
      change.memory_bytes = std::max(change.memory_bytes, stage.memory_bytes);
    return change;
  }

  /// The fewest more of a kind with which the model fits; what is said of eight where it does not.
  plan::WhatIfResult enough(size_t kind) const {
    const std::string& name = there_.machines->kinds[kind].name;
    plan::WhatIfResult change;
    for (int more = 1; more <= kMostMoreMachines; more *= 2) {
      change =
          answer(fmt::format("{} more of {}", more, name), with_more(*there_.machines, kind, more));
      if (change.feasible) break;
    }
    return change;
  }

 private:
  const PlannedFor& there_;
  planner::PlanOptions options_;
  const planner::PlanResult& result_;
  std::vector<double> speeds_;
};

std::string memory_cell(const OtherWay& way, const PlannedFor& there) {
  if (!way.possible) return "-";
  const std::string bytes = format_bytes(way.memory_bytes);
  if (way.first_without_room < 0) return bytes;
  const MachineKind& kind =
      there.machines->kinds[planner::kind_of_worker(*there.machines, way.first_without_room)];
  return fmt::format("{}, {} has {}", bytes, kind.name, format_bytes(kind.memory_bytes));
}

std::string name_of(const OtherWay& way) {
  if (way.name == "ddp") return "DDP";
  if (way.name == "fsdp") return "FSDP";
  return "tensor parallel";
}

std::string others_table(const PlannedFor& there, const std::vector<OtherWay>& others) {
  if (others.empty()) return "";
  const Rate rate(there.profile);
  report::Table table({{"way", report::Align::Left},
                       {"memory of a device", report::Align::Left, 60},
                       {"sends per step"},
                       {"compute"},
                       {"wire"},
                       {fmt::format("{} by formula", rate.unit)},
                       {"simulated"}});
  std::string notes;
  for (const OtherWay& way : others) {
    if (!way.possible) {
      notes += fmt::format("  {}: {}\n", name_of(way), way.note);
      continue;
    }
    table.add({name_of(way), memory_cell(way, there), format_bytes(way.bytes),
               format_duration(way.compute_ns), format_duration(way.wire_ns),
               way.low_samples_per_s == way.high_samples_per_s
                   ? rate.text(way.low_samples_per_s)
                   : fmt::format("{} to {}", rate.text(way.low_samples_per_s),
                                 rate.text(way.high_samples_per_s)),
               rate.text(way.simulated_samples_per_s)});
  }
  return "\nthe same machines in other ways, for steps as long\n" + table.text(2) + notes;
}

std::string changes_table(const PlannedFor& there, const std::vector<plan::WhatIfResult>& changes) {
  if (changes.empty()) return "";
  const Rate rate(there.profile);
  report::Table table({{"change", report::Align::Left, 60},
                       {"plan", report::Align::Left},
                       {rate.unit},
                       {"against now"},
                       {"memory"}});
  for (const plan::WhatIfResult& change : changes) {
    if (!change.feasible) {
      table.add({change.change, "does not fit", "-", "-", "-"});
      continue;
    }
    table.add(
        {change.change,
         fmt::format("{} {}", to_string(change.strategy), report::short_config(change.config, 24)),
         rate.text(change.throughput_samples_per_s),
         change.speedup > 0 ? fmt::format("{:.2f}x", change.speedup) : "fits",
         format_bytes(change.memory_bytes)});
  }
  return "\nwhat would help\n" + table.text(2);
}

bool is_estimate(const PlannedFor& there) { return there.profile.source == "analytic"; }

std::pair<double, double> interval_of(const PlannedFor& there, const plan::Plan& plan) {
  const plan::Prediction& expected = plan.prediction;
  if (!is_estimate(there))
    return {expected.throughput_low_samples_per_s, expected.throughput_high_samples_per_s};
  return {expected.throughput_samples_per_s * (1 - kEstimateError),
          expected.throughput_samples_per_s * (1 + kEstimateError)};
}

/// The workers of a stage, as machines: "2 x desk", "laptop".
std::string places_text(const PlannedFor& there, const plan::Plan& plan, const plan::Stage& stage) {
  if (stage.first_worker < 0 || plan.shares_workers()) return "-";
  std::vector<int> of_kind(there.machines->kinds.size(), 0);
  for (int w = 0; w < stage.replicas * stage.tensor; ++w)
    ++of_kind[planner::kind_of_worker(*there.machines, stage.first_worker + w)];
  std::vector<std::string> parts;
  for (size_t k = 0; k < of_kind.size(); ++k) {
    if (of_kind[k] == 0) continue;
    const std::string& name = there.machines->kinds[k].name;
    parts.push_back(of_kind[k] == 1 ? name : fmt::format("{} x {}", of_kind[k], name));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Room of the tightest worker of a stage.
std::string room_text(const PlannedFor& there, const plan::Plan& plan, const plan::Stage& stage) {
  if (stage.first_worker < 0 || plan.shares_workers()) return "-";
  int64_t least = 0;
  for (int w = 0; w < stage.replicas * stage.tensor; ++w) {
    const int64_t limit = there.cluster.device_of(stage.first_worker + w).memory_bytes;
    if (limit > 0 && (least == 0 || limit < least)) least = limit;
  }
  return least == 0 ? "no limit" : format_bytes(least);
}

std::string fits_table(const PlannedFor& there, const plan::Plan& plan) {
  report::Table table({{"stage"},
                       {"layers", report::Align::Left},
                       {"on", report::Align::Left},
                       {"needs"},
                       {"has"}});
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::Stage& stage = plan.stages[s];
    table.add({fmt::to_string(s), report::layers_text(stage.layers, 40),
               places_text(there, plan, stage), format_bytes(stage.memory_bytes),
               room_text(there, plan, stage)});
  }
  return table.text(2);
}

}  // namespace

PlannedFor on_machines(const std::string& machines_file, const options::SearchRequest& request,
                       const std::string& profile_file, int64_t batch_size,
                       std::optional<int64_t> memory_limit_bytes) {
  PlannedFor there;
  there.machines = planner::load_machines(machines_file);
  for (MachineKind& kind : there.machines->kinds)
    kind.memory_bytes = memory_limit_bytes.value_or(kind.memory_bytes);
  const std::vector<MachineKind>& kinds = there.machines->kinds;
  std::vector<double> speeds;
  if (!profile_file.empty()) {
    there.profile = profile::load_profile(profile_file);
    for (const MachineKind& kind : kinds)
      speeds.push_back(matmul_rate(kind.device) / matmul_rate(kinds.front().device));
  } else {
    there.profile = estimated(request, batch_size, kinds.front().device);
    const auto own = static_cast<double>(profile::total_compute_ns(there.profile));
    for (size_t k = 0; k < kinds.size(); ++k) {
      const auto same =
          std::find_if(kinds.begin(), kinds.begin() + static_cast<int64_t>(k),
                       [&](const auto& one) { return one.device == kinds[k].device; });
      if (k == 0) {
        speeds.push_back(1);
      } else if (same != kinds.begin() + static_cast<int64_t>(k)) {
        speeds.push_back(speeds[static_cast<size_t>(same - kinds.begin())]);
      } else {
        const auto other = static_cast<double>(
            profile::total_compute_ns(estimated(request, batch_size, kinds[k].device)));
        speeds.push_back(own / std::max(other, 1.0));
      }
    }
  }
  there.cluster = planner::cluster_of(*there.machines, speeds);
  return there;
}

std::vector<plan::WhatIfResult> what_would_help(
    const PlannedFor& there, const planner::PlanOptions& options, const planner::PlanResult& result,
    const std::function<void(int done, int total)>& progress) {
  const Changes changes(there, options, result);
  const Machines& machines = *there.machines;
  const int total = static_cast<int>(machines.kinds.size()) + (machines.num_machines() > 1 ? 1 : 0);
  std::vector<plan::WhatIfResult> answers;
  for (size_t k = 0; k < machines.kinds.size(); ++k) {
    // One machine alone has no network to join another one to.
    if (machines.num_machines() == 1) break;
    answers.push_back(result.plan
                          ? changes.answer(fmt::format("one more {}", machines.kinds[k].name),
                                           with_more(machines, k, 1))
                          : changes.enough(k));
    progress(static_cast<int>(answers.size()), total);
  }
  if (!result.plan || machines.num_machines() == 1) return answers;
  Machines faster = machines;
  const bool is_slow = machines.bandwidth_bytes_per_s < kFastNetwork;
  faster.bandwidth_bytes_per_s =
      is_slow ? kFastNetwork : saturating_mul(machines.bandwidth_bytes_per_s, 2);
  answers.push_back(changes.answer(
      fmt::format("a network of {}", is_slow ? "10Gbps" : "twice the speed"), faster));
  progress(total, total);
  return answers;
}

std::string machines_text(const PlannedFor& there, const planner::PlanResult& result,
                          const MachinesAnswer& answer) {
  std::vector<std::string> kinds;
  for (const MachineKind& kind : there.machines->kinds) kinds.push_back(kind_text(kind));
  std::string text = fmt::format("\nmachines: {}", fmt::join(kinds, "; "));
  if (there.machines->num_machines() > 1)
    text += fmt::format("; network {}", network_text(there.machines->bandwidth_bytes_per_s));
  text += '\n';
  const Rate rate(there.profile);
  if (result.plan) {
    text += "the model fits\n" + fits_table(there, *result.plan);
    const auto [low, high] = interval_of(there, *result.plan);
    text += fmt::format("{} {}", rate.text(result.plan->prediction.throughput_samples_per_s),
                        rate.unit);
    if (high > 0) text += fmt::format(", {} to {}", rate.text(low), rate.text(high));
    text += is_estimate(there) ? ": an estimate from data sheets, nothing was run\n" : "\n";
  } else {
    text += fmt::format("the model does not fit: {}\n", result.reason);
  }
  return text + changes_table(there, answer.changes) + others_table(there, answer.others);
}

Json machines_json(const PlannedFor& there, const planner::PlanResult& result,
                   const MachinesAnswer& answer) {
  Json others = Json::array();
  for (const OtherWay& way : answer.others) {
    Json entry{{"way", way.name}, {"possible", way.possible}};
    if (!way.note.empty()) entry["note"] = way.note;
    if (way.possible) {
      entry["fits"] = way.first_without_room < 0;
      entry["memory_bytes"] = way.memory_bytes;
      entry["bytes_per_step"] = way.bytes;
      entry["compute_ns"] = way.compute_ns;
      entry["wire_ns"] = way.wire_ns;
      entry["low_samples_per_s"] = way.low_samples_per_s;
      entry["high_samples_per_s"] = way.high_samples_per_s;
      entry["simulated_samples_per_s"] = way.simulated_samples_per_s;
    }
    others.push_back(std::move(entry));
  }
  Json document{{"fits", result.plan.has_value()},
                {"what_would_help", what_if_json(answer.changes)},
                {"other_ways", std::move(others)}};
  if (const double tokens = tokens_per_sample(there.profile); tokens > 0)
    document["tokens_per_sample"] = tokens;
  if (!result.plan) return document;
  const auto [low, high] = interval_of(there, *result.plan);
  document["low_samples_per_s"] = low;
  document["high_samples_per_s"] = high;
  return document;
}

}  // namespace penstock::tool
