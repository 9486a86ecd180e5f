// What a user should know before hours are spent on a run; each text is empty or lines for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/cluster/device_name.h"
#include "penstock/job/job.h"
#include "penstock/model/model.h"
#include "penstock/options/request.h"
#include "penstock/train/train_options.h"

namespace penstock::job {

/// What a run that continues a checkpoint does otherwise than the run that saved it.
std::string resume_warning(const options::TrainRequest& request,
                           const std::vector<std::string_view>& given,
                           const train::TrainOptions& train, const model::Model& model);

/// That the learning rate's schedule keeps the length that it began with, and the run does not.
std::string schedule_warning(const train::TrainOptions& train, int64_t schedule_steps,
                             int64_t run_steps);

/// Servers that have nothing to do, a plan that was not made for several ranks, ranks that do not
/// train. `train` has the world of the job.
std::string job_warnings(const Job& job, const train::TrainOptions& train, bool may_idle);

/// That what the model learns depends on how a step is cut: throws ConfigError where that is so of
/// a loss of its own, and nobody chose the number of micro-batches. That activations move to where
/// they are already.
std::string model_warning(const options::TrainRequest& request, const model::Model& model,
                          const plan::Plan& plan);
/// That running statistics are not those of a mean of the weights.
std::string mean_warning(const train::TrainOptions& train, const model::Model& model);
std::string offload_warning(const plan::Plan& plan,
                            const std::vector<cluster::DeviceName>& devices);

/// That numbers of 16 bits save memory alone, as these processors compute with them.
std::string precision_warning(const plan::Plan& plan,
                              const std::vector<cluster::DeviceName>& devices);

/// Of weights that gradients do not belong to, and of threads that share cores.
std::string plan_advice(const plan::Plan& plan, int threads_per_worker);

}  // namespace penstock::job
