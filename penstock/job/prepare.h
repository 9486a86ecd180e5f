// A training run, from what a user asks to its results. The command line and Python are borders
// around these calls.
//
//   const auto devices = devices_of(request);
//   const std::unique_ptr<Job> job = Job::join(job_options(request, devices));   // null: alone
//   const PreparedRun run = prepare(request, job.get(), {.devices = devices});
//   const train::TrainResult result = train(run, {.observer = &observer});
//   for (const Artifact& artifact : artifacts(run, result)) write(artifact.path, artifact.make());
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/cluster/device_name.h"
#include "penstock/job/job.h"
#include "penstock/job/large_batch.h"
#include "penstock/job/listener.h"
#include "penstock/job/run_folder.h"
#include "penstock/model/model.h"
#include "penstock/options/request.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/train/checkpoint/folder_lock.h"
#include "penstock/train/data/load_data.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/trainer.h"
#include "penstock/util/files/output_lock.h"

namespace penstock::job {

/// The devices that this process may use, each there; as a rank of a job its own. Throws
/// ConfigError.
std::vector<cluster::DeviceName> devices_of(const options::TrainRequest& request);

/// How this process joins the job of its launcher to train.
JobOptions job_options(const options::TrainRequest& request,
                       const std::vector<cluster::DeviceName>& devices);

struct PrepareOptions {
  std::vector<cluster::DeviceName> devices = {};
  std::vector<std::string_view> given = {};  ///< rows that the user named: those are warned about
  const std::atomic<bool>* stop = nullptr;   ///< ends measuring and training, once true
  Listener listener = {};
};

/// All that is decided before a run. Changes no more.
struct PreparedRun {
  options::TrainRequest request;  ///< with the loss of the model, and the plan's micro-batches
  RunRecord record;               ///< of a run folder
  model::Model model;
  train::DataSplit data;
  Job* job = nullptr;  ///< not owned; null: this process alone
  std::unique_ptr<runtime::World> world;
  std::unique_ptr<train::RunLock> lock;                   ///< of the checkpoint folder, on rank 0
  std::vector<std::unique_ptr<OutputLock>> output_locks;  ///< of the files to be written, there
  train::TrainOptions train;                              ///< with the plan; without an observer
  std::vector<LargeBatchNote> large_batch;                ///< what was set for a large mini-batch
  bool is_finished = false;  ///< the checkpoint has all epochs or steps already
  std::string warnings;      ///< as the listener was told, a line each

  bool is_first() const { return job == nullptr || job->is_first(); }
  int servers() const { return job == nullptr ? 0 : job->servers(); }
};

/// Collective. Makes the model, reads the data, plans (which measures, and may take long), joins
/// the workers to a world and checks that they can train. Throws ConfigError, CheckpointError,
/// NoAnswer where there is no plan, RuntimeError where ranks differ or memory is short.
PreparedRun prepare(const options::TrainRequest& request, Job* job, const PrepareOptions& options);

struct Watching {
  train::TrainObserver* observer = nullptr;
  /// As runtime::RunOptions::on_stuck.
  std::function<void(const std::string& failure)> on_stuck = {};
};

/// Collective. train::train() of what is prepared.
train::TrainResult train(const PreparedRun& run, const Watching& watching);

/// Collective. Trains twice for a few steps (train::check_against_serial()), and nothing else; only
/// rank 0 has the losses, but all know whether they are equal.
struct SerialOutcome {
  train::SerialCheck check;
  bool equal = false;
};
SerialOutcome check_against_serial(const PreparedRun& run, const Watching& watching);

/// A result of a run and where the user wants it.
struct Artifact {
  std::string path;  ///< empty: standard output
  /// Throws the errors of making it; called once.
  std::function<std::string()> make;
};

/// On rank 0, before the files of the run's folder are written: makes it again where somebody has
/// removed it. Throws as write_file_atomic().
void restore_run_folder(const PreparedRun& run);

/// On rank 0: histories, pages, traces and the summary that the request names, the summary last.
/// `run` and `result` outlive them.
std::vector<Artifact> artifacts(const PreparedRun& run, const train::TrainResult& result,
                                const Listener& listener);

}  // namespace penstock::job
