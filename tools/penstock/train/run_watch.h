// Who watches a training beside its console: the server of --metrics, the file of --health-file.
//
//   RunWatch watch(request);                  // a port in use is refused here, before anything
//   else const RunWatch::Training training(watch, run); result = job::train(run, {.observer =
//   watch.with(&console)}); watch.end(result.interrupted);
#pragma once

#include <optional>

#include "penstock/job/health_file.h"
#include "penstock/job/listener.h"
#include "penstock/job/run_metrics.h"
#include "penstock/job/watchers.h"
#include "penstock/live/http_server.h"
#include "penstock/options/request.h"

namespace penstock::tool {

class RunWatch {
 public:
  /// Throws ConfigError for a port or a file that cannot be had. The listener of rank 0 hears where
  /// the numbers are shown.
  RunWatch(const options::TrainRequest& request, const job::Listener& listener);

  /// While it exists the run is watched.
  class Training {
   public:
    Training(RunWatch& watch, const job::PreparedRun& run);
    ~Training();
    Training(const Training&) = delete;
    Training& operator=(const Training&) = delete;

   private:
    RunWatch& watch_;
  };

  /// `observer`, which may be null, and those of this watch; null: there is none at all.
  train::TrainObserver* with(train::TrainObserver* observer);
  /// The run is over, and did not fail.
  void end(bool interrupted);

 private:
  std::optional<job::RunMetrics> metrics_;
  std::optional<job::HealthFile> health_;
  job::Watchers all_;
  std::optional<live::HttpServer> server_;  ///< the last: its answers use the others
};

}  // namespace penstock::tool
