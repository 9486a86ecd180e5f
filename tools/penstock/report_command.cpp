// penstock report: plan, timeline, memory and training curves as one page.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "penstock/report/page/html_report.h"
#include "penstock/report/text/text.h"
#include "penstock/schedule/formats/read_trace.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/simulate/simulator.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/units.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/output_files.h"
#include "tools/penstock/schedule/schedule_file.h"
#include "tools/penstock/schedule/simulate_options.h"

namespace penstock::tool {

namespace {

struct ReportOptions : CommonOptions {
  std::string plan;
  std::string trace;
  std::string history;
  std::string schedule;
  std::string output = "report.html";
  int64_t mini_batches = 0;  ///< 0: not given
  CLI::Option* mini_batches_option = nullptr;
};

/// Enough to fill the pipeline, run it full and drain it, at least two.
int64_t default_mini_batches(const plan::Plan& plan) {
  const int64_t micro_batches =
      saturating_mul(4, std::max<int64_t>(plan.depth, static_cast<int64_t>(plan.stages.size())));
  return std::max<int64_t>(2, ceil_div(micro_batches, std::max<int64_t>(1, plan.micro_batches)));
}

int64_t num_actions(const schedule::Timeline& timeline) {
  int64_t count = 0;
  for (const auto& events : timeline.workers) count += static_cast<int64_t>(events.size());
  return count;
}

void add_timeline(report::ReportInput& input, simulate::Result result) {
  input.timelines.insert(input.timelines.begin(), std::move(result.timeline));
  input.peak_memory_bytes = std::move(result.peak_memory_bytes);
}

void simulate_file(const ReportOptions& options, report::ReportInput& input) {
  const simulate::Costs costs = simulate::costs_of(input.plan);
  const schedule::Schedule schedule = read_schedule(options.schedule, &input.plan, costs.credits);
  const int workers = schedule.shape.num_workers();
  if (workers > static_cast<int>(report::kMaxReportWorkers)) {
    throw ConfigError(fmt::format("{}: a report draws at most {} workers, found {}",
                                  options.schedule, report::kMaxReportWorkers, workers));
  }
  if (schedule.num_actions() > report::kMaxReportActions) {
    throw ConfigError(fmt::format("{}: a report draws at most {} actions, found {}",
                                  options.schedule, report::kMaxReportActions,
                                  schedule.num_actions()));
  }
  add_timeline(input, simulate::simulate(schedule, costs, {.keep_timeline = true}));
}

/// `mini_batches` 0: as many as show the plan at work, or one where that is too much. A plan too
/// large to draw gets a note.
void simulate_plan(int64_t mini_batches, report::ReportInput& input) {
  const plan::Plan& plan = input.plan;
  if (plan.num_workers() > static_cast<int>(report::kMaxReportWorkers)) {
    input.notes.push_back(
        fmt::format("No timeline: a report draws at most {} workers, the plan has {}.",
                    report::kMaxReportWorkers, plan.num_workers()));
    return;
  }
  int64_t drawn = 0;
  for (const schedule::Timeline& timeline : input.timelines) drawn += num_actions(timeline);
  const int64_t most = report::kMaxReportActions - drawn;
  std::vector<int64_t> lengths = {mini_batches};
  if (mini_batches == 0) lengths = {default_mini_batches(plan), 2, 1};
  for (const int64_t length : lengths) {
    if (saturating_mul(
            2, saturating_mul(length, saturating_mul(plan.micro_batches,
                                                     static_cast<int64_t>(plan.stages.size())))) >
        most)
      continue;
    const simulate::PlannedSchedule schedule = simulate::planned_schedule(plan, length);
    if (schedule.num_actions() <= most)
      return add_timeline(input,
                          schedule.simulate(simulate::costs_of(plan), {.keep_timeline = true}));
  }
  input.notes.push_back(fmt::format(
      "No timeline: a report draws at most {} actions, {} of this plan {} more.", most,
      report::plural(lengths.back(), "optimiser step"), lengths.back() == 1 ? "has" : "have"));
}

/// Optimiser steps that the timeline holds actions of.
int64_t mini_batches_of(const schedule::Timeline& timeline) {
  int64_t last = 0;
  for (const auto& events : timeline.workers) {
    for (const schedule::TimelineEvent& event : events)
      last = std::max(last, event.action.mini_batch.value);
  }
  return last + 1;
}

/// What would be predicted otherwise: of no effect beside a prediction that is there already.
void refuse_prediction_options(const ReportOptions& options) {
  const bool has_schedule = !options.schedule.empty();
  if (!has_schedule && options.mini_batches_option->empty()) return;
  throw ConfigError(
      fmt::format("{} says what to predict, but {} already holds a prediction: leave out {}, or "
                  "give a trace with the measured timeline only",
                  has_schedule ? "--schedule" : "--mini-batches", options.trace,
                  has_schedule ? "--schedule" : "--mini-batches"));
}

/// Why the timelines of a trace are not those of the plan; empty: they fit.
std::string trace_note(const std::vector<schedule::Timeline>& timelines, const plan::Plan& plan) {
  for (const schedule::Timeline& timeline : timelines) {
    int64_t stages = 0;
    for (const auto& events : timeline.workers) {
      for (const schedule::TimelineEvent& event : events)
        stages = std::max<int64_t>(stages, event.action.stage.value + 1);
    }
    std::string differences;
    const auto compare = [&](std::string_view what, int64_t found, int64_t expected) {
      if (found == expected) return;
      differences += fmt::format("{} {} instead of {}", differences.empty() ? "" : ",",
                                 report::plural(found, what), expected);
    };
    compare("worker", std::ssize(timeline.workers), plan.num_workers());
    compare("stage", stages, std::ssize(plan.stages));
    if (!differences.empty())
      return fmt::format("The trace belongs to another run:{}.", differences);
  }
  return "";
}

report::ReportInput gather(const ReportOptions& options) {
  report::ReportInput input{.plan = plan::load_plan(options.plan)};
  if (!options.history.empty()) input.history = report::load_history(options.history);
  if (!options.trace.empty()) {
    constexpr int64_t kMaxTraceBytes = int64_t{512} << 20;
    input.timelines =
        schedule::parse_trace(read_file(options.trace, kMaxTraceBytes), options.trace);
    if (input.timelines.empty()) throw ParseError(options.trace, 0, "the trace holds no action");
    if (const std::string note = trace_note(input.timelines, input.plan); !note.empty())
      input.notes.push_back(note);
    if (input.timelines.size() > 1 || input.timelines[0].source != "measured") {
      refuse_prediction_options(options);
      return input;
    }
  }
  check_links(input.plan, "");
  if (!options.schedule.empty()) {
    simulate_file(options, input);
  } else {
    const bool like_measured = options.mini_batches == 0 && !input.timelines.empty();
    simulate_plan(like_measured ? mini_batches_of(input.timelines[0]) : options.mini_batches,
                  input);
  }
  return input;
}

void check_options(const ReportOptions& options) {
  check_outputs({{"--output", options.output}}, {{"--plan", options.plan},
                                                 {"--trace", options.trace},
                                                 {"--history", options.history},
                                                 {"--schedule", options.schedule}});
  if (options.mini_batches_option->empty()) return;
  if (options.mini_batches < 1)
    throw ConfigError(
        fmt::format("--mini-batches must be at least 1, found {}", options.mini_batches));
  if (!options.schedule.empty())
    throw ConfigError("--schedule has its own length: leave out --mini-batches");
}

int run_report(const ReportOptions& options) {
  check_options(options);
  const report::ReportInput input = gather(options);
  Json lanes = Json::array();
  int64_t actions = 0;
  for (const schedule::Timeline& timeline : input.timelines) {
    const int64_t count = num_actions(timeline);
    lanes.push_back({{"source", timeline.source},
                     {"actions", count},
                     {"makespan_ns", timeline.makespan_ns()},
                     {"idle_share", timeline.idle_share()}});
    actions += count;
  }
  const std::string page = report::html_report(input);
  write_output(options.output, page);
  if (options.json) {
    const Json result = {{"html", options.output},
                         {"bytes", page.size()},
                         {"actions", actions},
                         {"lanes", lanes},
                         {"notes", input.notes}};
    write_output("", result.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    return kExitYes;
  }
  std::string text = fmt::format(
      "{}: {}, {} in {}; open it in a browser\n", options.output,
      format_bytes(static_cast<int64_t>(page.size())), report::plural(actions, "action"),
      report::plural(static_cast<int64_t>(input.timelines.size()), "timeline"));
  for (const std::string& note : input.notes) text += note + "\n";
  write_output("", text);
  return kExitYes;
}

}  // namespace

Command report_command(CLI::App& parent) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* app = parent.add_subcommand(
      "report",
      "Plan, timeline, memory and training curves as one HTML page that needs no network");
  app->add_option("--plan", options->plan, "Plan (penstock plan)")->required();
  app->add_option("--trace", options->trace,
                  "Timelines of a run (penstock train --trace): predicted and measured");
  app->add_option("--history", options->history,
                  "Losses, accuracies, learning rates of a run (penstock train --history)");
  app->add_option("--schedule", options->schedule,
                  "Predict this schedule (text form, or PyTorch's CSV) instead of the plan's own");
  options->mini_batches_option = app->add_option(
      "--mini-batches", options->mini_batches,
      "Optimiser steps to predict (default: enough to fill and drain the pipeline)");
  app->add_option("-o,--output", options->output, "File to write the page to")
      ->capture_default_str();
  add_common(*app, *options);
  return {app, [options]() { return run_report(*options); }};
}

}  // namespace penstock::tool
