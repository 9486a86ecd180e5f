#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "penstock/job/history_file.h"
#include "penstock/job/prediction.h"
#include "penstock/job/prepare.h"
#include "penstock/job/run_summary.h"
#include "penstock/report/page/html_report.h"
#include "penstock/schedule/formats/chrome_trace.h"
#include "penstock/util/error.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/printable.h"

namespace penstock::job {

namespace {

/// Everything that `penstock report` shows of a run. A run too long to be drawn is reported without
/// its timeline.
std::string page_of(const std::string& model, const Outcome& outcome,
                    const report::History& earlier) {
  report::ReportInput input{
      .plan = outcome.plan,
      .history = report::parse_history(history_json(model, outcome, earlier), "history")};
  if (outcome.servers > 0) {
    const int64_t ranks = std::ssize(outcome.result.ranks);
    input.notes.push_back(
        fmt::format("The job had {}; {} only added gradients (--sync {}).", plural(ranks, "rank"),
                    outcome.servers == 1 ? "the last one, a server,"
                                         : fmt::format("the last {}, servers,", outcome.servers),
                    to_string(outcome.plan.sync)));
  }
  if (outcome.predicted != nullptr)
    input.timelines = {outcome.predicted->timeline, outcome.result.timeline};
  if (const std::string trouble = report::too_large_to_draw(input.timelines); !trouble.empty()) {
    input.timelines.clear();
    input.notes.push_back("No timeline: " + trouble + ".");
  }
  return report::html_report(input);
}

/// What the file has of earlier runs of the training that this one has continued; nothing: there is
/// no such file, or no such run.
std::optional<report::History> earlier_history(const PreparedRun& run, const std::string& path,
                                               const Listener& listener) {
  std::error_code ignored;
  if (!run.train.resume || path.empty() || !std::filesystem::is_regular_file(path, ignored))
    return std::nullopt;
  try {
    report::History earlier = report::load_history(path);
    if (earlier.model == run.model.name()) return earlier;
    listener.tell(fmt::format("warning: {} was the history of '{}': it is replaced\n", path,
                              printable(earlier.model)));
  } catch (const Error& error) {
    listener.tell(fmt::format("warning: the earlier history is lost: {}\n", error.what()));
  }
  return std::nullopt;
}

/// Whether this start has written into the run's folder what a run begins with.
bool has_begun_folder(const PreparedRun& run) {
  return !run.request.operation.folder.empty() && !run.record.model.empty();
}
/// A start that was stopped before leaves its folder as it was.
bool takes_results(const PreparedRun& run) {
  return has_begun_folder(run) || holds_record(run.request);
}

/// Of steps before this start, whose process was killed or wrote elsewhere: a history is written
/// when a run ends. Empty: none lack.
std::string gap_text(const std::string& path, const report::History& earlier, int64_t begin) {
  const double last = earlier.steps.empty() ? 0 : earlier.steps.back().step;
  if (last >= static_cast<double>(begin)) return "";
  return fmt::format(
      "warning: {} has no record of the steps {:.0f} to {}, made before this start\n", path,
      last + 1, begin);
}

/// The earlier parts of the histories that a run writes: each file goes on with its own, and one
/// that has none with the other's.
struct EarlierParts {
  report::History asked;   ///< of --history and --html
  report::History folder;  ///< of the run's folder
};

EarlierParts earlier_parts(const PreparedRun& run, const train::TrainResult& result,
                           const Listener& listener) {
  const int64_t begin = result.steps - std::ssize(result.losses);
  const auto asked = earlier_history(run, run.request.output.history, listener);
  if (asked) listener.tell(gap_text(run.request.output.history, *asked, begin));
  std::optional<report::History> folder;
  if (takes_results(run)) {
    const std::string file = in_run_folder(run.request, kHistoryFile);
    folder = earlier_history(run, file, listener);
    const report::History known = folder ? *folder : asked.value_or(report::History());
    if (run.train.resume && !result.losses.empty()) listener.tell(gap_text(file, known, begin));
  }
  const report::History none;
  return {.asked = asked ? *asked : folder.value_or(none),
          .folder = folder ? *folder : asked.value_or(none)};
}

/// What the artifacts of a run are made from.
struct Results {
  std::optional<Prediction> predicted;
  EarlierParts earlier;
  Outcome outcome;

  Results(const PreparedRun& run, const train::TrainResult& result, const Listener& listener)
      : predicted(predict(run.train, result)),
        earlier(earlier_parts(run, result, listener)),
        outcome{.plan = run.train.plan,
                .result = result,
                .predicted = predicted ? &*predicted : nullptr,
                .saves = !run.request.run.checkpoint.empty(),
                .servers = run.servers(),
                .classes = run.data.classes,
                .metric = run.train.metric.value_or(train::Metric::Loss),
                .target = run.train.target,
                .large_batch = run.large_batch} {}
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
};

}  // namespace

void restore_run_folder(const PreparedRun& run) {
  std::error_code error;
  const std::string& folder = run.request.operation.folder;
  if (!has_begun_folder(run) || std::filesystem::exists(folder, error)) return;
  std::filesystem::create_directories(folder, error);
  if (!error) write_run_folder(run.record, run.train.plan);
}

std::vector<Artifact> artifacts(const PreparedRun& run, const train::TrainResult& result,
                                const Listener& listener) {
  const auto made = std::make_shared<const Results>(run, result, listener);
  const options::OutputRequest& output = run.request.output;
  const std::string model = run.model.name();
  // A training that was complete before has its files already.
  const bool was_complete = run.train.resume && result.losses.empty() && !result.interrupted;
  if (was_complete && (!output.history.empty() || !output.html.empty()))
    listener.tell("nothing was trained: --history and --html write nothing\n");
  std::vector<Artifact> all;
  using Make = std::string(const std::string&, const Outcome&, const report::History&);
  const auto add = [&](const std::string& path, report::History EarlierParts::*earlier,
                       Make* make) {
    if (path.empty() || was_complete) return;
    all.push_back({path, [made, make, model, earlier] {
                     return make(model, made->outcome, made->earlier.*earlier);
                   }});
  };
  add(output.history, &EarlierParts::asked, history_json);
  add(output.html, &EarlierParts::asked, page_of);
  if (takes_results(run)) {
    add(in_run_folder(run.request, kHistoryFile), &EarlierParts::folder, history_json);
    add(in_run_folder(run.request, kReportFile), &EarlierParts::folder, page_of);
    add(in_run_folder(run.request, kResultsFile), &EarlierParts::folder,
        [](const std::string&, const Outcome& outcome, const report::History&) {
          return summary_json(outcome);
        });
  }
  if (!output.trace.empty() && made->predicted) {
    all.push_back({output.trace, [made] {
                     return schedule::chrome_trace(
                         {&made->predicted->timeline, &made->outcome.result.timeline},
                         made->outcome.plan.teams());
                   }});
  }
  all.push_back({"", [made, json = output.json] {
                   return json ? summary_json(made->outcome) : summary_text(made->outcome);
                 }});
  return all;
}

}  // namespace penstock::job
