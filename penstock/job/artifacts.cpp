#include <fmt/format.h>

#include <filesystem>

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

/// The file that a resumed run goes on with; empty: none.
std::string history_of(const options::TrainRequest& request) {
  if (!request.output.history.empty() || request.operation.folder.empty())
    return request.output.history;
  return in_run_folder(request, kHistoryFile);
}

/// What the file has of earlier runs of the training that this one has continued.
report::History earlier_history(const PreparedRun& run, const Listener& listener) {
  const std::string path = history_of(run.request);
  std::error_code ignored;
  if (!run.train.resume || path.empty() || !std::filesystem::is_regular_file(path, ignored))
    return {};
  try {
    report::History earlier = report::load_history(path);
    if (earlier.model == run.model.name()) return earlier;
    listener.tell(fmt::format("warning: {} was the history of '{}': it is replaced\n", path,
                              printable(earlier.model)));
  } catch (const Error& error) {
    listener.tell(fmt::format("warning: the earlier history is lost: {}\n", error.what()));
  }
  return {};
}

/// What the artifacts of a run are made from.
struct Results {
  std::optional<Prediction> predicted;
  report::History earlier;
  Outcome outcome;

  Results(const PreparedRun& run, const train::TrainResult& result, const Listener& listener)
      : predicted(predict(run.train, result)),
        earlier(earlier_history(run, listener)),
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
  const auto add = [&](const std::string& path,
                       std::string (*make)(const Results&, const std::string&)) {
    if (!path.empty() && !was_complete)
      all.push_back({path, [made, make, model] { return make(*made, model); }});
  };
  const auto history = [](const Results& results, const std::string& name) {
    return history_json(name, results.outcome, results.earlier);
  };
  const auto page = [](const Results& results, const std::string& name) {
    return page_of(name, results.outcome, results.earlier);
  };
  add(output.history, history);
  add(output.html, page);
  if (!run.request.operation.folder.empty()) {
    add(in_run_folder(run.request, kHistoryFile), history);
    add(in_run_folder(run.request, kReportFile), page);
    add(in_run_folder(run.request, kResultsFile),
        [](const Results& results, const std::string&) { return summary_json(results.outcome); });
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
