// A program's model and what is asked of its trainer, as penstock._core has them.
#pragma once

#include <fmt/format.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "penstock/imported/import_model.h"
#include "penstock/job/auto_plan.h"
#include "penstock/job/auto_plan_together.h"
#include "penstock/job/chosen_model.h"
#include "penstock/job/large_batch.h"
#include "penstock/job/run_plan.h"
#include "penstock/job/worker_devices.h"
#include "penstock/model/mixing.h"
#include "penstock/options/rows.h"
#include "penstock/plan/plan.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/data/sample_spec.h"
#include "penstock/train/refused_batch.h"
#include "penstock/util/error.h"
#include "penstock/util/process/freed_memory.h"
#include "python/interpreter.h"
#include "python/keywords.h"
#include "python/python_job.h"

namespace penstock::python {

namespace py = pybind11;

/// All keywords of a trainer, for this model.
inline options::TrainRequest take_request(py::dict& options, const model::Model& model) {
  options::TrainRequest request;
  take_rows(options, request);
  // As tuples: names of parameters, factor of the learning rate, weight decay, whether AdamW steps
  // them in any case (ParameterGroup).
  std::vector<std::tuple<std::vector<std::string>, double, double, bool>> groups;
  take(options, "groups", groups);
  for (auto& [names, factor, decay, by_adamw] : groups)
    request.optimizer.groups.push_back({std::move(names), factor, decay, by_adamw});
  request.loss = model::loss_for(model, request.loss);
  return request;
}

/// Those that the user names, each there.
inline std::vector<cluster::DeviceName> devices_of(const options::TrainRequest& request) {
  try {
    return job::own_devices(request.run.device, /*local_rank=*/0, /*local_ranks=*/1);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("device: {}", error.what()));
  }
}

/// One model as it was exported.
class ProgramModel {
 public:
  /// `options`: the keywords that say what becomes of a program.
  ProgramModel(const std::string& path, py::dict options) : model_(made(path, options)) {}

  const model::Model& model() const { return model_; }

  py::list inputs() const {
    py::list result;
    for (const model::InputSpec& input : model_.inputs()) {
      py::dict one;
      one["name"] = input.name;
      one["dtype"] = train::type_name(input.type);
      one["shape"] = input.shape;
      result.append(one);
    }
    return result;
  }
  std::vector<std::string> layers() const {
    std::vector<std::string> names;
    for (const graph::LayerNode& layer : model_.graph().layers()) names.push_back(layer.name);
    return names;
  }

  bool returns_loss() const { return model_.returns_loss(); }
  std::string note() const { return imported::note_of(model_); }
  /// The names of the adapters' weights in a state dict.
  std::vector<std::string> adapters() const {
    std::vector<std::string> names;
    if (!model_.adapters()) return names;
    for (const std::string& module : model_.adapters()->modules) {
      for (const char* part : {"A", "B"})
        names.push_back(fmt::format("base_model.model.{}.lora_{}.weight", module, part));
    }
    return names;
  }

  /// Whether weights beside adapters are [in, out], as those of transformers' Conv1D.
  bool has_transposed_adapters() const {
    return model_.adapters() && model_.adapters()->has_transposed;
  }

  bool mixes_samples() const {
    std::atomic<bool> unused{false};
    const bool found = interruptibly(unused, [&] { return model::mixes_samples(model_); });
    give_back_freed_memory();  // otherwise it stays beside that of training
    return found;
  }

  /// A plan as JSON, made for a profile that is measured now; by all ranks of a job.
  std::string plan(py::dict options, const std::shared_ptr<PythonJob>& job) const {
    bool is_quiet = false;
    take(options, "quiet", is_quiet);
    options::TrainRequest asked = take_request(options, model_);
    refuse_rest(options);
    model::Model unchanged = model_;
    job::set_large_batch(asked, unchanged, 0);
    const int64_t workers = asked.plan.workers.value_or(1);
    const int64_t batch_size = asked.run.batch_size.value_or(options::kUsualBatchSize);
    const int64_t micro_batches = asked.plan.micro_batches.value_or(1);
    if (workers < 1 || workers > options::kMaxThreads)
      throw ConfigError(
          fmt::format("workers: expected 1 to {}, found {}", options::kMaxThreads, workers));
    if (asked.run.threads < 1)
      throw ConfigError(fmt::format("threads: at least 1, found {}", asked.run.threads));
    if (batch_size < 1)
      throw ConfigError(fmt::format("batch_size: at least 1, found {}", batch_size));
    if (micro_batches < 1 || micro_batches > batch_size) {
      throw ConfigError(fmt::format("micro_batches: expected 1 to the batch_size {}, found {}",
                                    batch_size, micro_batches));
    }
    const train::BatchCut cut(batch_size, batch_size, micro_batches);
    if (const auto refused = train::refused_batch(model_, cut))
      throw ConfigError(explain(*refused, "drop_last"));
    job::AutoPlanRequest request = job::auto_plan_request(asked, model_);
    request.device = job::device_to_profile(devices_of(asked));
    if (!is_quiet) request.listener = job::console_listener();
    std::atomic<bool> stop{false};
    request.stop = &stop;
    return interruptibly(stop, [&] {
      return plan::to_json(job == nullptr ? job::auto_plan(model_, request)
                                          : job::auto_plan_together(job->job(), model_, request));
    });
  }

 private:
  static model::Model made(const std::string& path, py::dict& options) {
    options::TrainRequest request{.model = {.name = path}};
    take_rows(options, request);
    refuse_rest(options);
    return imported::import_model(path, job::import_options(request.model));
  }

  model::Model model_;
};

}  // namespace penstock::python
