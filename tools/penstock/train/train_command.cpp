// penstock train: plans if need be, trains, and puts the prediction beside the measurement.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <exception>
#include <iostream>
#include <memory>
#include <vector>

#include "penstock/job/prepare.h"
#include "penstock/job/run_summary.h"
#include "penstock/job/run_warnings.h"
#include "penstock/job/serial_check_text.h"
#include "penstock/launch/job_environment.h"
#include "penstock/report/report.h"
#include "penstock/runtime/fabric/failure.h"
#include "penstock/util/error.h"
#include "penstock/util/process/log.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/command_line.h"
#include "tools/penstock/command/row_options.h"
#include "tools/penstock/train/console_observer.h"
#include "tools/penstock/train/line_log.h"
#include "tools/penstock/train/run_watch.h"
#include "tools/penstock/train/train_arguments.h"

namespace penstock::tool {

namespace {

std::atomic<bool> g_stop{false};

extern "C" void on_signal(int) {
  g_stop.store(true);
  end_at_next_signal();
}

/// Of a rank that is not the first: only warnings.
void show_warnings(int rank) {
  set_log_sink([rank](LogLevel level, std::string_view message) {
    if (level == LogLevel::Warning) std::cerr << fmt::format("rank {}: {}\n", rank, message);
  });
}

/// Lines of the library around the progress bar: train() logs from this thread only, between its
/// runs.
void show_log(const std::shared_ptr<ConsoleObserver>& observer) {
  set_log_sink([observer](LogLevel, std::string_view message) {
    observer->finish();
    std::cerr << message << std::endl;
  });
}

int check_serially(const job::PreparedRun& run, const job::Watching& watching, RunWatch& watch) {
  const job::SerialOutcome outcome = job::check_against_serial(run, watching);
  if (run.is_first()) {
    const plan::Plan& plan = run.train.plan;
    write_output("", run.request.output.json ? job::check_json(plan, outcome.check)
                                             : job::check_text(plan, outcome.check));
  }
  if (!outcome.equal) return kExitNo;
  watch.end(/*interrupted=*/false);
  return kExitYes;
}

/// The results, where the user wants them. All that can be written is written before the first
/// failure is thrown: it took hours to make.
void write_results(const job::PreparedRun& run, const train::TrainResult& result,
                   const job::Listener& listener) {
  std::exception_ptr failure;
  job::restore_run_folder(run);
  for (const job::Artifact& artifact : job::artifacts(run, result, listener)) {
    try {
      write_output(artifact.path, artifact.make());
    } catch (const ConfigError& error) {
      // It could be written when the run began: not the user's mistake any more.
      if (!failure) failure = std::make_exception_ptr(RuntimeError(error.what()));
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// What the process shows, on standard error and elsewhere.
struct Shown {
  std::shared_ptr<ConsoleObserver> console;  ///< null: there are lines
  LineLog* lines = nullptr;
  RunWatch& watch;

  train::TrainObserver* observer() const {
    return lines != nullptr ? static_cast<train::TrainObserver*>(lines) : console.get();
  }
  void finish() const {
    if (console) console->finish();
  }
};

/// Ends the bar before an error is printed: the sink of the log keeps it until the program ends.
class BarEnd {
 public:
  explicit BarEnd(const Shown& shown) : shown_(shown) {}
  ~BarEnd() { shown_.finish(); }
  BarEnd(const BarEnd&) = delete;
  BarEnd& operator=(const BarEnd&) = delete;

 private:
  const Shown& shown_;
};

void show_plan(const plan::Plan& plan, int64_t threads, const Shown& shown) {
  const std::string text = report::plan_table(plan) + "\n" + job::plan_advice(plan, threads);
  if (shown.lines != nullptr)
    shown.lines->write({.message = text, .fields = {{"event", "plan"}}});
  else
    std::cerr << text;
}

int run_train(const options::TrainRequest& request, job::Job* job,
              const job::PrepareOptions& options, const Shown& shown) {
  const BarEnd bar_end(shown);
  const bool has_console = shown.lines == nullptr;
  if (has_console && job != nullptr && !job->is_first()) show_warnings(job->rank());
  const job::PreparedRun run = job::prepare(request, job, options);
  if (has_console && run.is_first()) show_log(shown.console);
  if (run.is_first() && !run.is_finished && !g_stop)
    show_plan(run.train.plan, run.train.threads_per_worker, shown);
  const RunWatch::Training training(shown.watch, run);
  const job::Watching watching{
      .observer = shown.watch.with(run.is_first() ? shown.observer() : nullptr),
      .on_stuck = [shown](const std::string& failure) {
        shown.finish();
        // Some thread never returns, so neither would train() nor exit().
        _exit(complain(failure, kExitFailure));
      }};
  if (request.run.check_against_serial) return check_serially(run, watching, shown.watch);
  const train::TrainResult result = job::train(run, watching);
  shown.finish();
  if (shown.lines != nullptr && result.interrupted && run.is_first()) {
    shown.lines->write(
        {.message = std::string(job::interruption_text(!request.run.checkpoint.empty())),
         .fields = {{"event", "interrupted"}, {"step", result.steps}}});
  }
  if (run.is_first()) write_results(run, result, options.listener);
  shown.watch.end(result.interrupted);
  return result.interrupted ? request.run.stopped_exit_code : kExitYes;
}

/// A rank that is not the first leaves long reports to it.
int run_later_rank(const options::TrainRequest& request, job::Job* job,
                   const job::PrepareOptions& options, const Shown& shown) {
  try {
    return run_train(request, job, options, shown);
  } catch (const NoAnswer&) {
    return kExitNo;  // all ranks know, and rank 0 says it
  } catch (const Error&) {
    runtime::Failure failure = runtime::describe(std::current_exception());
    failure.text = failure.text.substr(0, failure.text.find('\n'));
    failure.text = failure.text.substr(0, failure.text.find("; the workers"));
    // Rank 0 says it itself.
    const bool is_usage = failure.kind == runtime::Failure::Kind::Config ||
                          failure.kind == runtime::Failure::Kind::Checkpoint;
    if (is_usage && failure.text.starts_with("rank 0: ")) return kExitUsage;
    runtime::raise(failure);
  }
}

/// Complaints come after the command has returned: it lives as long as the process.
LineLog& line_log(options::LogForm form) {
  int rank = 0;
  if (const auto own = launch::own_job()) rank = own->rank;
  static LineLog log(form, rank);
  return log;
}

int run_train(const TrainArguments& arguments, const CLI::App& app) {
  catch_end_signals(on_signal);
  const options::TrainRequest& request = arguments.request;
  check(arguments);
  train::validate(options::train_options_of(request));
  const bool has_console = request.operation.log == options::LogForm::Console;
  LineLog& lines = line_log(request.operation.log);
  if (!has_console) lines.take_all_messages();
  const job::Listener listener = has_console ? job::console_listener() : lines.listener();
  const job::PrepareOptions options{.devices = job::devices_of(request),
                                    .given = given_rows(app),
                                    .stop = &g_stop,
                                    .listener = listener};
  RunWatch watch(request, listener);
  std::unique_ptr<job::Job> job;
  try {
    job::JobOptions joining = job::job_options(request, options.devices);
    joining.stop = options.stop;
    joining.listener = options.listener;
    job = job::Job::join(joining);
  } catch (const Error&) {
    if (!g_stop) throw;
    // There will be no job; rank 0 writes the result of a run without steps.
    if (is_later_rank()) {
      watch.end(/*interrupted=*/true);
      return request.run.stopped_exit_code;
    }
  }
  const bool is_first = job == nullptr || job->is_first();
  const Shown shown{.console = has_console ? std::make_shared<ConsoleObserver>() : nullptr,
                    .lines = has_console ? nullptr : &lines,
                    .watch = watch};
  return is_first ? run_train(request, job.get(), options, shown)
                  : run_later_rank(request, job.get(), options, shown);
}

}  // namespace

Command train_command(CLI::App& parent, char**) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* app = add_train(parent, *arguments);
  return {app, [arguments, app]() { return run_train(*arguments, *app); }};
}

}  // namespace penstock::tool
