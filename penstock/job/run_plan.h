// The plan that a training run goes by: its checkpoint's, the user's, or one made now; the same on
// all ranks of a job.
//
//   RunPlanner planner{.request = request, .model = model, .job = job, .listener = listener};
//   const RunPlan found = planner.plan();
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/cluster/device_name.h"
#include "penstock/job/auto_plan_request.h"
#include "penstock/job/job.h"
#include "penstock/job/listener.h"
#include "penstock/model/model.h"
#include "penstock/options/request.h"
#include "penstock/plan/plan.h"

namespace penstock::job {

struct RunPlan {
  plan::Plan plan;
  int64_t mini_batch_size = 1;  ///< the request's, or that of its plan
  /// What the plan was made for, as checkpoints keep it.
  std::string plan_request = {};
};

/// What auto_plan() has to know of a request: its devices, stop and listener are left to the
/// caller. Throws ConfigError for a number of workers that cannot be.
AutoPlanRequest auto_plan_request(const options::TrainRequest& request, const model::Model& model);

/// Of a step's micro-batches, of which none is empty; one that is too many is told.
std::optional<int64_t> capped_micro_batches(std::optional<int64_t> wanted, int64_t mini_batch_size,
                                            const Listener& listener);

/// The whole model on one worker, without costs: enough to evaluate it.
plan::Plan one_stage(const model::Model& model, Precision precision);

/// What a plan is made for, and by whom. What its members point to outlives it.
struct RunPlanner {
  const options::TrainRequest& request;
  const model::Model& model;
  Job* job = nullptr;  ///< null: this process alone
  const std::vector<cluster::DeviceName>& devices;
  int64_t training_samples = 0;                    ///< over all epochs
  std::vector<profile::LengthGroup> lengths = {};  ///< AutoPlanRequest::lengths
  const std::atomic<bool>* stop = nullptr;
  const Listener& listener;

  /// Collective. May take long: measures the model and the links between ranks. Where `stop`
  /// becomes true meanwhile (and there is no job), it is the checkpoint's plan or one_stage(): the
  /// run ends at once. Throws ConfigError, CheckpointError, NoAnswer where there is no plan.
  RunPlan plan() const;

  /// Of a run that has nothing left to train.
  RunPlan evaluation_plan() const;

 private:
  RunPlan plan_of_job() const;
  RunPlan plan_of_file() const;
  bool shares_weights(const plan::Plan& plan) const;
  RunPlan shared_plan_of_file() const;
  plan::Plan plan_made_now() const;
  std::string plan_of_checkpoint(const std::string& plan_request) const;
};

}  // namespace penstock::job
