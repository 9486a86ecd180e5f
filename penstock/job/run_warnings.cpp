#include "penstock/job/run_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "penstock/imported/import_model.h"
#include "penstock/job/saved_options.h"
#include "penstock/model/mixing.h"
#include "penstock/model/residual_norms.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/process/processor.h"
#include "penstock/util/text/plural.h"

namespace penstock::job {

namespace {

/// Why servers have nothing to do; empty: they have, or there are none.
std::string servers_warning(const Job& job, const train::TrainOptions& train) {
  if (job.servers() == 0) return {};
  const plan::GradientSync sync = train.plan.sync;
  std::string why;
  if (train.plan.replicas() == std::vector<int>(train.plan.stages.size(), 1)) {
    why = "the plan has no replicas, so there are no gradients to add";
  } else if (sync == plan::GradientSync::Ordered || sync == plan::GradientSync::Ring ||
             sync == plan::GradientSync::DiLoCo || sync == plan::GradientSync::PowerSgd) {
    why = fmt::format(
        "--sync {} does not use {} (expected summation, hierarchical, parameter-server or "
        "asynchronous)",
        to_string(sync), job.servers() == 1 ? "it" : "them");
  } else if (train.world->site().num_training_ranks() == 1) {
    why = "all workers are on one rank, where gradients are added in shared memory";
  }
  if (why.empty()) return {};
  return fmt::format(
      "warning: the job's {} nothing to do: {}\n",
      job.servers() == 1 ? "server has" : fmt::format("{} servers have", job.servers()), why);
}

/// That a plan for the threads of one process is used by several ranks.
std::string ranks_warning(const train::TrainOptions& train) {
  const auto& levels = train.plan.cluster.levels;
  const bool for_threads = std::any_of(levels.begin(), levels.end(),
                                       [](const auto& level) { return level.by_reference; });
  if (!for_threads || train.world->site().num_training_ranks() == 1) return {};
  return "warning: the plan was made for workers that are threads of one process; between ranks "
         "its messages and sums take longer than it predicts\n";
}

std::string idle_ranks_note(const Job& job, const plan::Plan& plan) {
  const int training = job.ranks() - job.servers();
  const int workers = plan.num_workers();
  if (workers >= training) return {};
  return fmt::format("{} of {} {}: the plan has {}\n", workers, plural(training, "rank"),
                     workers == 1 ? "trains" : "train", plural(workers, "worker"));
}

}  // namespace

std::string resume_warning(const options::TrainRequest& request,
                           const std::vector<std::string_view>& given,
                           const train::TrainOptions& train, const model::Model& model) {
  if (!train.resume || !train::has_checkpoint(request.run.checkpoint)) return {};
  const train::CheckpointPosition saved = train::newest_position(request.run.checkpoint, model);
  std::string text = changed_settings(saved_settings(saved), train.settings);
  const bool named = std::find(given.begin(), given.end(), "--seed") != given.end();
  if (saved.seed != train.seed && named) {
    text += fmt::format(
        "warning: --seed {} has no effect: the run goes on with the checkpoint's seed, {}\n",
        train.seed, saved.seed);
  }
  return text;
}

std::string schedule_warning(const train::TrainOptions& train, int64_t schedule_steps,
                             int64_t run_steps) {
  if (schedule_steps == 0 || train.learning_rate_steps > 0 || schedule_steps == run_steps)
    return {};
  return fmt::format(
      "warning: the learning rate has its last value at step {}, the end of the run that began, "
      "and "
      "this run ends at step {}: --schedule-steps {} would change that\n",
      schedule_steps, run_steps, run_steps);
}

std::string job_warnings(const Job& job, const train::TrainOptions& train, bool may_idle) {
  return servers_warning(job, train) + ranks_warning(train) +
         (may_idle ? idle_ranks_note(job, train.plan) : "");
}

std::string model_warning(const options::TrainRequest& request, const model::Model& model,
                          const plan::Plan& plan) {
  if (!imported::is_program_file(request.model.name)) return {};
  const std::string note = imported::note_of(model);
  std::string text = note.empty() ? "" : fmt::format("note: {}\n", note);
  if (plan.micro_batches > 1 && model::is_too_large_to_compare(model)) {
    return text +
           "note: whether samples of a batch depend on each other was not looked at: the model is "
           "too large for it\n";
  }
  if (plan.micro_batches == 1 || !model::mixes_samples(model)) return text;
  const bool is_told = request.plan.micro_batches || !request.plan.file.empty();
  if (model.returns_loss() && !is_told) {
    throw ConfigError(fmt::format(
        "the loss that the model makes itself is no mean over samples: of {} micro-batches it is "
        "another one than of the whole step. --micro-batches 1 is what PyTorch computes; "
        "--micro-batches {} takes the mean of their losses",
        plan.micro_batches, plan.micro_batches));
  }
  return text +
         "warning: the model mixes the samples of its batch, so what it learns depends on how a "
         "step is cut: --micro-batches 1 is what PyTorch computes\n";
}

std::string mean_warning(const train::TrainOptions& train, const model::Model& model) {
  if (!train.mean.is_used() || !model::has_batch_norm(model.graph())) return {};
  return "note: batch norm's running statistics stay those of the weights that are trained; for "
         "those of their mean, torch.optim.swa_utils.update_bn makes them of average.pt\n";
}

std::string offload_warning(const plan::Plan& plan,
                            const std::vector<cluster::DeviceName>& devices) {
  const bool moves = std::any_of(plan.stages.begin(), plan.stages.end(),
                                 [](const plan::Stage& stage) { return stage.offload; });
  const bool on_host = std::all_of(devices.begin(), devices.end(),
                                   [](const auto& device) { return device.is_cpu(); });
  if (!moves || !on_host) return {};
  return "warning: the plan moves activations to the memory of the host, where this run computes: "
         "nothing moves\n";
}

std::string precision_warning(const plan::Plan& plan,
                              const std::vector<cluster::DeviceName>& devices) {
  const bool on_host = std::all_of(devices.begin(), devices.end(),
                                   [](const auto& device) { return device.is_cpu(); });
  if (!on_host || multiplies(float_type(plan.precision))) return {};
  return fmt::format(
      "warning: this processor has no instructions that multiply {}: that saves memory here, not "
      "time\n",
      to_string(plan.precision));
}

std::string plan_advice(const plan::Plan& plan, int threads_per_worker) {
  std::string text;
  if (plan.weights == plan::WeightPolicy::Latest) {
    text +=
        "weights 'latest': backward uses newer weights than forward, so its gradients are not "
        "those of the loss; training may not converge\n";
  }
  const int64_t threads = saturating_mul(plan.num_workers(), threads_per_worker);
  const int64_t cores = std::thread::hardware_concurrency();
  if (cores > 0 && threads > cores) {
    text +=
        fmt::format("{} with {} each share {}: the prediction assumes a core for every thread\n",
                    plural(plan.num_workers(), "worker"), plural(threads_per_worker, "thread"),
                    plural(cores, "core"));
  }
  return text;
}

}  // namespace penstock::job
