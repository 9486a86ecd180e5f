// penstock verify: proves a schedule sound or says what is wrong with it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "penstock/report/report.h"
#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/teams.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/units.h"
#include "penstock/verify/verify.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/schedule/schedule_file.h"

namespace penstock::tool {

namespace {

struct VerifyOptions : CommonOptions {
  std::string schedule;
  int64_t credits = 1;
  bool rendezvous = false;
  std::string memory_limit;
  std::string stash;
  std::string weight_bytes;
  std::string input_bytes;
  std::string gradient_bytes;
};

/// What was found out about one file.
struct Findings {
  schedule::Schedule judged;  ///< lowered if it could be
  std::vector<std::string> notes;
  std::vector<verify::Violation> violations;
  std::optional<verify::Counterexample> deadlock;
  int64_t min_credits = -1;
  std::vector<verify::WorkerPeaks> peaks;
};

/// Without any size every worker would need nothing.
void check_memory_options(const VerifyOptions& options) {
  if (options.memory_limit.empty()) return;
  for (const std::string* size :
       {&options.stash, &options.weight_bytes, &options.input_bytes, &options.gradient_bytes}) {
    if (!size->empty()) return;
  }
  throw ConfigError(
      "--memory-limit needs sizes to compare with: at least one of --stash-bytes, --weight-bytes, "
      "--input-bytes, --gradient-bytes");
}

verify::Options rules_of(const VerifyOptions& options, size_t num_stages) {
  if (options.credits < 0)
    throw ConfigError(
        fmt::format("--credits must be at least 0 (rendezvous), found {}", options.credits));
  verify::Options rules{.credits = options.rendezvous ? 0 : options.credits};
  const auto per_stage = [&](const std::string& name, const std::string& text) {
    return text.empty() ? std::vector<int64_t>()
                        : std::vector<int64_t>(num_stages, parse_option(name, text, parse_bytes));
  };
  if (!options.memory_limit.empty()) {
    const int64_t limit = parse_option("--memory-limit", options.memory_limit, parse_bytes);
    if (limit > 0) rules.memory_limit_bytes = limit;
  }
  rules.stash_bytes = per_stage("--stash-bytes", options.stash);
  rules.weight_bytes = per_stage("--weight-bytes", options.weight_bytes);
  rules.input_bytes = per_stage("--input-bytes", options.input_bytes);
  rules.gradient_bytes = per_stage("--gradient-bytes", options.gradient_bytes);
  return rules;
}

/// Compute actions that break no rule by themselves are judged with messages, syncs and steps as
/// lowering adds them.
void judge(Findings& found, const verify::Options& rules) {
  found.violations = verify::verify(found.judged, rules);
  if (!found.judged.lowered && found.violations.empty()) {
    const schedule::ScheduleShape& shape = found.judged.shape;
    const size_t stages = shape.teams.empty() ? shape.replicas.size() : shape.teams.size();
    found.judged = schedule::lower(
        found.judged,
        schedule::links_of_members(schedule::chain_links(static_cast<int>(stages)), shape.teams));
    found.notes.push_back(
        "the file holds compute actions only: judged as lowered, each stage sending to the next");
    found.violations = verify::verify(found.judged, rules);
  }
  const auto is_deadlock = [](const verify::Violation& v) { return v.rule == "deadlock"; };
  if (std::any_of(found.violations.begin(), found.violations.end(), is_deadlock)) {
    found.deadlock = verify::find_deadlock(found.judged, rules.credits);
  }
  found.min_credits = verify::min_credits(found.judged);
  found.peaks = verify::peaks(found.judged, rules);
}

std::string action_at(const Findings& found, WorkerId worker, int64_t position) {
  return to_text(found.judged.workers[worker.index()][static_cast<size_t>(position)]);
}

Json to_json(const Findings& found) {
  Json list = Json::array();
  for (const auto& v : found.violations)
    list.push_back({{"rule", v.rule},
                    {"worker", v.worker.value},
                    {"action", v.action},
                    {"message", v.message}});
  Json workers = Json::array();
  for (const auto& p : found.peaks) {
    workers.push_back({{"weight_versions", p.versions},
                       {"stashed_micro_batches", p.stashed_micro_batches},
                       {"bytes", p.bytes}});
  }
  Json document{{"ok", found.violations.empty()},
                {"violations", list},
                {"min_credits", found.min_credits},
                {"workers", workers},
                {"notes", found.notes}};
  if (!found.deadlock) return document;
  const auto place = [&](WorkerId worker, int64_t position) {
    return Json{{"worker", worker.value},
                {"position", position},
                {"action", action_at(found, worker, position)}};
  };
  document["blocked"] = Json::array();
  for (const auto& stop : found.deadlock->blocked)
    document["blocked"].push_back(place(stop.worker, stop.position));
  document["cycle"] = Json::array();
  for (const auto& wait : found.deadlock->cycle) {
    Json entry = place(wait.worker, wait.position);
    entry["waits_for"] = wait.waits_for.value;
    document["cycle"].push_back(std::move(entry));
  }
  return document;
}

/// Where every worker stands; the violation's message tells the cycle.
std::string deadlock_text(const Findings& found) {
  std::vector<report::BlockedAction> blocked;
  for (const auto& stop : found.deadlock->blocked) {
    const auto is_here = [&](const auto& wait) { return wait.worker == stop.worker; };
    const bool in_cycle =
        std::any_of(found.deadlock->cycle.begin(), found.deadlock->cycle.end(), is_here);
    blocked.push_back({stop.worker, stop.position, in_cycle});
  }
  const std::string title = found.deadlock->cycle.empty()
                                ? "stuck at the actions in brackets:\n"
                                : "stuck at the actions in brackets, * in the cycle of waits:\n";
  return title + report::blocked_grid(found.judged, blocked);
}

std::string peaks_text(const Findings& found) {
  constexpr size_t kMost = 64;
  constexpr size_t kMostStages = 8;
  const bool has_bytes = std::any_of(found.peaks.begin(), found.peaks.end(),
                                     [](const auto& p) { return p.bytes > 0; });
  const schedule::WorkerTable workers(found.judged.shape);
  const bool has_teams = !found.judged.shape.teams.empty();
  // Each stage has versions of its own weights.
  bool shared = false;
  for (size_t w = 0; w < found.peaks.size(); ++w)
    shared = shared || workers.held_by(WorkerId{static_cast<int32_t>(w)}).size() > 1;
  std::vector<report::Column> columns{
      {"worker"},
      {"stages"},
      {shared ? "weight versions, all stages" : "weight versions"},
      {shared ? "stashed micro-batches, all stages" : "stashed micro-batches"}};
  if (has_bytes) columns.push_back({"bytes"});
  report::Table table(std::move(columns));
  for (size_t w = 0; w < std::min(found.peaks.size(), kMost); ++w) {
    const auto held = workers.held_by(WorkerId{static_cast<int32_t>(w)});
    std::string stages;
    for (size_t i = 0; i < std::min(held.size(), kMostStages); ++i) {
      const StageId whole = schedule::place_in_team(found.judged.shape, held[i].stage).whole;
      stages += fmt::format("{}{}", i == 0 ? "" : " ", whole.value);
    }
    if (held.size() > kMostStages) stages += " ..";
    if (has_teams) {
      const auto place = schedule::place_in_team(found.judged.shape, held.front().stage);
      stages += fmt::format(", member {}", place.member);
    }
    const verify::WorkerPeaks& peak = found.peaks[w];
    std::vector<std::string> cells{fmt::format("{}", w), stages, fmt::format("{}", peak.versions),
                                   fmt::format("{}", peak.stashed_micro_batches)};
    if (has_bytes) cells.push_back(format_bytes(peak.bytes));
    table.add(std::move(cells));
  }
  std::string text = table.text();
  if (found.peaks.size() > kMost)
    text += fmt::format("... and {} more workers\n", found.peaks.size() - kMost);
  return text;
}

std::string to_text(const Findings& found, const std::string& file) {
  constexpr size_t kMostViolations = 20;
  std::string text;
  if (found.violations.empty()) {
    text = fmt::format("sound: {} ({}, {}); needs {} per channel\n", file,
                       report::plural(static_cast<int64_t>(found.judged.workers.size()), "worker"),
                       report::plural(found.judged.num_actions(), "action"),
                       report::plural(found.min_credits, "credit"));
    text += peaks_text(found);
  } else {
    text = fmt::format("not sound: {} in {}\n",
                       report::plural(static_cast<int64_t>(found.violations.size()), "violation"),
                       file);
    for (size_t i = 0; i < std::min(found.violations.size(), kMostViolations); ++i) {
      text += fmt::format("  [{}] {}\n", found.violations[i].rule, found.violations[i].message);
    }
    if (found.violations.size() > kMostViolations)
      text += fmt::format("  ... and {} more\n", found.violations.size() - kMostViolations);
    if (found.deadlock) text += deadlock_text(found);
    if (found.deadlock) {
      text += found.min_credits < 0 ? "no number of credits helps\n"
                                    : fmt::format("needs {} per channel\n",
                                                  report::plural(found.min_credits, "credit"));
    }
  }
  for (const std::string& note : found.notes) text += fmt::format("note: {}\n", note);
  return text;
}

int run_verify(const VerifyOptions& options) {
  Findings found;
  check_memory_options(options);
  found.judged = parse_schedule_file(options.schedule, &found.notes);
  judge(found, rules_of(options, found.judged.shape.replicas.size()));
  write_output("", options.json ? to_json(found).dump() + "\n" : to_text(found, options.schedule));
  return found.violations.empty() ? kExitYes : kExitNo;
}

}  // namespace

Command verify_command(CLI::App& parent) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* app = parent.add_subcommand(
      "verify", "Prove a schedule sound (exit 0) or say which rule it breaks (exit 1)");
  app->add_option("schedule", options->schedule,
                  "Schedule in text form (penstock schedule, or PyTorch's CSV)")
      ->required();
  auto* credits =
      app->add_option("--credits", options->credits,
                      "Messages that fit into a channel before a send waits; 0: rendezvous");
  credits->capture_default_str();
  app->add_flag("--rendezvous", options->rendezvous,
                "A send waits for its receive, as with --credits 0")
      ->excludes(credits);
  app->add_option("--memory-limit", options->memory_limit, "Memory per worker, e.g. 16GB");
  app->add_option("--stash-bytes", options->stash,
                  "Bytes a stage keeps of each micro-batch between forward and backward");
  app->add_option("--weight-bytes", options->weight_bytes,
                  "Bytes of one version of a stage's weights");
  app->add_option("--input-bytes", options->input_bytes,
                  "Bytes of a micro-batch's inputs that a stage keeps until it recomputes");
  app->add_option("--gradient-bytes", options->gradient_bytes, "Bytes of a stage's gradients");
  add_common(*app, *options);
  return {app, [options]() { return run_verify(*options); }};
}

}  // namespace penstock::tool
