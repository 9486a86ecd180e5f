// penstock._core: what the Python package needs of the C++ libraries. The package itself is in
// penstock/*.py; nothing else uses this module.
#include <fmt/format.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "penstock/imported/import_model.h"
#include "penstock/model/mixing.h"
#include "penstock/plan/plan.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/state_dict.h"
#include "penstock/train/data/sample_spec.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/session.h"
#include "penstock/train/trainer.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/freed_memory.h"
#include "python/interpreter.h"
#include "python/tensor_memory.h"
#include "tools/penstock/auto_plan.h"
#include "tools/penstock/job.h"
#include "tools/penstock/job_auto_plan.h"
#include "tools/penstock/worker_devices.h"

namespace py = pybind11;

namespace penstock::python {

namespace {

/// Options come as keywords; each must be known.
template <class T>
void take(py::dict& options, const char* name, T& value) {
  if (!options.contains(name)) return;
  value = options[name].cast<T>();
  PyDict_DelItemString(options.ptr(), name);
}

void refuse_rest(const py::dict& options) {
  for (const auto& item : options)
    throw ConfigError(fmt::format("unknown option '{}'", item.first.cast<std::string>()));
}

using Group = std::tuple<std::vector<std::string>, double, double>;

/// Groups as tuples: names of parameters, factor of the learning rate, weight decay.
model::OptimizerSpec take_optimizer(py::dict& options) {
  model::OptimizerSpec spec;
  take(options, "optimizer", spec.name);
  take(options, "momentum", spec.momentum);
  take(options, "nesterov", spec.nesterov);
  take(options, "weight_decay", spec.weight_decay);
  take(options, "beta1", spec.beta1);
  take(options, "beta2", spec.beta2);
  take(options, "eps", spec.epsilon);
  std::vector<Group> groups;
  take(options, "groups", groups);
  for (auto& [names, factor, decay] : groups)
    spec.groups.push_back({std::move(names), factor, decay});
  return spec;
}

model::LossSpec take_loss(py::dict& options) {
  model::LossSpec spec;
  take(options, "loss", spec.name);
  take(options, "label_smoothing", spec.label_smoothing);
  take(options, "ignore_index", spec.ignore_index);
  return spec;
}

/// Those that the user names, each there.
std::vector<cluster::DeviceName> take_devices(py::dict& options) {
  std::string device = "cpu";
  take(options, "device", device);
  try {
    return tool::own_devices(device, /*local_rank=*/0, /*local_ranks=*/1);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("device: {}", error.what()));
  }
}

/// The job that a launcher (torchrun) has made this process a rank of.
class PythonJob {
 public:
  /// Null: this process is no rank of several. Blocks until all ranks are there.
  static std::shared_ptr<PythonJob> join() {
    std::atomic<bool> stop{false};
    std::unique_ptr<tool::Job> job = interruptibly(stop, [&stop] {
      return tool::Job::join({.command = "a program in Python", .stop = &stop});
    });
    if (job == nullptr) return nullptr;
    return std::make_shared<PythonJob>(std::move(job));
  }

  explicit PythonJob(std::unique_ptr<tool::Job> job) : job_(std::move(job)) {}

  tool::Job& job() const { return *job_; }
  int rank() const { return job_->rank(); }
  int ranks() const { return job_->ranks(); }
  int training_ranks() const { return job_->ranks() - job_->servers(); }

  void check_same(const std::string& what, const std::string& text) {
    const WithoutGil without;
    job_->check_same(what, text);
  }
  void check_same_file(const std::string& what, const std::string& path) {
    const WithoutGil without;
    const std::vector<std::string> crcs = job_->together(
        [&] { return fmt::format("one of CRC {:08x}", crc32_of(read_file(path, INT64_MAX))); });
    job_->check_same(what, crcs.at(static_cast<size_t>(rank())));
  }

  /// Rank 0's text, on every rank.
  std::string from_first(const std::string& text) {
    const WithoutGil without;
    return job_->from_first([&] { return text; });
  }

  /// Rank 0's file at `path` becomes a file at `path` on every rank; with a trouble, which only
  /// rank 0 may have, all ranks throw.
  void share_file(const std::string& path, const std::string& trouble) {
    constexpr size_t kPart = size_t{64} << 20;
    const WithoutGil without;
    std::string content;
    const std::string size = job_->from_first([&] {
      if (!trouble.empty()) throw RuntimeError(trouble);
      content = read_file(path, INT64_MAX);
      return fmt::to_string(content.size());
    });
    std::string received;
    for (size_t at = 0; at < std::stoull(size); at += kPart)
      received += job_->from_first([&] { return content.substr(at, kPart); });
    if (!job_->is_first()) write_file_atomic(path, received);
  }

 private:
  std::unique_ptr<tool::Job> job_;
};

/// One model as it was exported.
class ProgramModel {
 public:
  explicit ProgramModel(const std::string& path) : model_(imported::import_model(path)) {}

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

  bool mixes_samples() const {
    std::atomic<bool> unused{false};
    return interruptibly(unused, [&] { return model::mixes_samples(model_); });
  }

  /// A plan as JSON, made for a profile that is measured now; by all ranks of a job.
  std::string plan(py::dict options, const std::shared_ptr<PythonJob>& job) const {
    tool::AutoPlanRequest request;
    take(options, "strategy", request.strategy);
    take(options, "workers", request.workers);
    take(options, "threads", request.threads_per_worker);
    take(options, "batch_size", request.mini_batch_size);
    take(options, "micro_batches", request.micro_batches);
    take(options, "weights", request.weights);
    std::string precision = "float32";
    take(options, "precision", precision);
    request.precision = parse_precision(precision);
    take(options, "chunks", request.chunks);
    take(options, "seed", request.seed);
    take(options, "quiet", request.is_quiet);
    request.device = tool::device_to_profile(take_devices(options));
    take(options, "cuda_graphs", request.device_graphs);
    double clip = 0;
    take(options, "clip_norm", clip);
    request.global_norm = clip > 0 || scales_loss(request.precision);
    request.optimizer = take_optimizer(options);
    request.loss = model::loss_for(model_, take_loss(options));
    refuse_rest(options);
    if (request.workers < 1 || request.workers > 1024)
      throw ConfigError(fmt::format("workers: expected 1 to 1024, found {}", request.workers));
    if (request.threads_per_worker < 1)
      throw ConfigError(fmt::format("threads: at least 1, found {}", request.threads_per_worker));
    if (request.mini_batch_size < 1)
      throw ConfigError(fmt::format("batch_size: at least 1, found {}", request.mini_batch_size));
    if (request.micro_batches < 0 || request.micro_batches > request.mini_batch_size) {
      throw ConfigError(fmt::format("micro_batches: expected 1 to the batch_size {}, found {}",
                                    request.mini_batch_size, request.micro_batches));
    }
    if (!graph::tie_groups(model_.graph()).empty() &&
        !plan::parse_strategy_choice(request.strategy) && request.weights.empty())
      request.weights = "flush";
    std::atomic<bool> stop{false};
    request.stop = &stop;
    return interruptibly(stop, [&] {
      return plan::to_json(job == nullptr ? tool::auto_plan(model_, request)
                                          : tool::auto_plan_together(job->job(), model_, request));
    });
  }

 private:
  model::Model model_;
};

py::dict to_python(const train::StepResult& step, bool counts_correct) {
  py::dict result;
  result["loss"] = step.loss;
  result["samples"] = step.samples;
  result["targets"] = step.targets;
  if (step.learning_rate) result["lr"] = *step.learning_rate;
  result["accuracy"] = counts_correct && step.targets > 0
                           ? py::object(py::float_(static_cast<double>(step.correct) /
                                                   static_cast<double>(step.targets)))
                           : py::object(py::none());
  result["grad_norm"] =
      step.grad_norm > 0 ? py::object(py::float_(step.grad_norm)) : py::object(py::none());
  return result;
}

class PythonSession {
 public:
  /// `may_idle`: a plan for fewer workers than ranks leaves ranks without work.
  PythonSession(std::shared_ptr<ProgramModel> model, const std::string& plan, py::dict options,
                std::shared_ptr<PythonJob> job, bool may_idle)
      : model_(std::move(model)), job_(std::move(job)) {
    keep_freed_memory();  // otherwise every step takes its gradients anew from the system
    train::TrainOptions train;
    train.plan = plan::parse_plan(plan, "the plan");
    train.optimizer = take_optimizer(options);
    train.loss = model::loss_for(model_->model(), take_loss(options));
    take(options, "lr", train.learning_rate.base);
    take(options, "lr_schedule", train.learning_rate.schedule);
    take(options, "lr_warmup", train.learning_rate.warmup_steps);
    take(options, "lr_factor", train.learning_rate.factor);
    take(options, "lr_every", train.learning_rate.every);
    take(options, "total_steps", train.learning_rate_steps);
    take(options, "seed", train.seed);
    take(options, "threads", train.threads_per_worker);
    take(options, "clip_norm", train.max_grad_norm);
    take(options, "gradient_groups", train.gradient_groups);
    take(options, "batch_size", train.mini_batch_size);
    take(options, "cuda_graphs", train.cuda_graphs);
    const std::vector<cluster::DeviceName> devices = take_devices(options);
    for (const at::Device device : tool::dealt(devices, train.plan.num_workers()))
      train.device_of_worker.push_back(device.str());
    if (train.cuda_graphs && train.device_of_worker.empty())
      throw ConfigError("cuda_graphs: graphs are those of GPUs, and all workers are on the CPU");
    refuse_rest(options);
    train.stop = &stop_;
    ignore_index_ = train.loss.ignore_index;
    plan_ = train.plan;
    if (job_ != nullptr) {
      const WithoutGil without;
      world_ = job_->job().make_world(plan_.num_workers(), may_idle);
      train.world = world_.get();
    }
    session_ = std::make_unique<train::Session>(model_->model(), train);
  }

  py::dict step(const model::Tensors& inputs, const std::optional<at::Tensor>& targets,
                std::optional<double> rate) {
    const train::Batch batch{inputs, targets.value_or(at::Tensor())};
    return to_python(interruptibly(stop_, [&] { return session_->step(batch, rate); }),
                     session_->counts_correct());
  }

  /// The session's data of these tensors.
  std::shared_ptr<train::TensorDataset> data(const model::Tensors& inputs,
                                             const std::optional<at::Tensor>& targets) const {
    const train::SampleSpec& sample = session_->sample();
    if (inputs.size() != sample.inputs.size()) {
      throw ConfigError(fmt::format("expected {} input(s): {}; found {}", sample.inputs.size(),
                                    describe(sample), inputs.size()));
    }
    auto data = std::make_shared<train::TensorDataset>(
        "the data", sample, inputs, targets.value_or(at::Tensor()), ignore_index_);
    const auto bad = data->bad_samples(1);
    if (!bad.empty()) throw ConfigError(bad.front().reason);
    return data;
  }

  py::list train(const train::TensorDataset& data, int64_t epoch, int64_t batch_size, bool shuffle,
                 uint64_t seed, const py::object& on_step, const std::vector<double>& rates) {
    const std::vector<int64_t> order = train::epoch_order(data.size(), seed, epoch, shuffle);
    std::exception_ptr failure;
    const auto report = [&](const train::StepResult& step) {
      const py::gil_scoped_acquire acquire;
      try {
        return on_step(to_python(step, session_->counts_correct())).cast<bool>();
      } catch (const py::error_already_set& error) {
        failure = std::current_exception();
        const std::string why = error.what();
        throw RuntimeError(why.substr(0, why.find('\n')));  // what the other ranks are told
      }
    };
    std::vector<train::StepResult> results;
    try {
      results = interruptibly(stop_, [&] {
        return session_->train(
            data, order, epoch, batch_size,
            on_step.is_none() ? std::function<bool(const train::StepResult&)>() : report, rates);
      });
    } catch (const RuntimeError&) {
      if (failure) std::rethrow_exception(failure);
      throw;
    }
    py::list list;
    for (const train::StepResult& step : results)
      list.append(to_python(step, session_->counts_correct()));
    return list;
  }

  py::dict evaluate(const train::TensorDataset& data, int64_t batch_size) {
    return to_python(interruptibly(stop_, [&] { return session_->evaluate(data, batch_size); }),
                     session_->counts_correct());
  }

  /// The call that the other ranks are in, or will make, ends with this failure.
  void give_up(const std::string& why) const {
    if (job_ == nullptr) return;
    const WithoutGil without;
    session_->give_up(why);
  }

  void end_epoch() {
    interruptibly(stop_, [&] { session_->end_epoch(); });
  }

  std::string save(const std::string& folder, int64_t epochs) {
    return interruptibly(stop_, [&] { return session_->save(folder, epochs).string(); });
  }
  /// The epochs that are over; nothing: there is no checkpoint.
  std::optional<int64_t> resume(const std::string& folder) {
    return interruptibly(stop_, [&]() -> std::optional<int64_t> {
      if (!train::has_checkpoint(folder)) return std::nullopt;
      return session_->resume(folder);
    });
  }

  /// What a checkpoint's weights.pt has, as copies.
  py::dict weights() const {
    std::vector<std::pair<std::string, at::Tensor>> copies;
    {
      const WithoutGil without;
      std::vector<train::LayerState> layers;
      for (runtime::LayerSnapshot& layer : session_->snapshot())
        layers.push_back(
            {.weights = std::move(layer.weights), .buffers = std::move(layer.buffers)});
      std::map<const at::TensorImpl*, at::Tensor> copy_of;  // two names of a weight share one
      for (const auto& entry : train::state_dict(model_->model(), layers)) {
        at::Tensor& copy = copy_of[entry.value().unsafeGetTensorImpl()];
        if (!copy.defined()) copy = entry.value().clone();
        copies.emplace_back(entry.key(), copy);
      }
    }
    py::dict result;
    for (const auto& [name, copy] : copies) result[py::str(name)] = copy;
    return result;
  }

  /// Weights and buffers by name; the optimiser's state stays.
  void load_weights(const std::map<std::string, at::Tensor>& weights) {
    std::vector<runtime::LayerSnapshot> layers = session_->snapshot();
    const model::Model& model = model_->model();
    const at::NoGradGuard no_grad;
    for (size_t l = 0; l < layers.size(); ++l) {
      const model::Layer& layer = model.layer(LayerId{static_cast<int>(l)});
      const auto fill = [&](const std::vector<model::ParameterSpec>& specs, model::Tensors& into) {
        for (size_t i = 0; i < specs.size(); ++i) {
          const auto found = weights.find(specs[i].key);
          if (found == weights.end())
            throw ConfigError(fmt::format("the state dict has no '{}'", specs[i].key));
          if (found->second.sizes() != at::IntArrayRef(specs[i].shape))
            throw ConfigError(fmt::format("'{}' has another shape than the model's", specs[i].key));
          into[i] = found->second.detach().to(at::kFloat).contiguous().clone();
        }
      };
      fill(layer.parameters(), layers[l].weights);
      fill(layer.buffers(), layers[l].buffers);
      for (model::Tensors& tensors : layers[l].optimizer_state) {
        for (at::Tensor& tensor : tensors) tensor = tensor.clone();
      }
    }
    session_->load(layers, session_->steps());
  }

  int64_t steps() const { return session_->steps(); }
  double rate_of(int64_t step) const { return session_->rate_of(step); }
  std::string plan() const { return plan::to_json(plan_); }
  std::string sample() const { return describe(session_->sample()); }
  bool needs_targets() const { return session_->sample().targets.needed; }

 private:
  std::shared_ptr<ProgramModel> model_;  ///< outlives the session
  std::shared_ptr<PythonJob> job_;       ///< so do these two; null: this process alone
  std::unique_ptr<runtime::World> world_;
  std::atomic<bool> stop_{false};
  int64_t ignore_index_ = -100;
  plan::Plan plan_;
  std::unique_ptr<train::Session> session_;
};

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.attr("TENSOR_MEMORY") = take_tensors_from_tcmalloc() ? "tcmalloc" : "system";
  py::module_::import("atexit").attr("register")(py::cpp_function(&end_work));
  py::register_exception<Error>(m, "PenstockError", PyExc_RuntimeError);
  py::class_<train::TensorDataset, std::shared_ptr<train::TensorDataset>>(m, "Data").def(
      "__len__", &train::TensorDataset::size);
  py::class_<PythonJob, std::shared_ptr<PythonJob>>(m, "Job")
      .def_static("join", &PythonJob::join)
      .def_property_readonly("rank", &PythonJob::rank)
      .def_property_readonly("ranks", &PythonJob::ranks)
      .def_property_readonly("training_ranks", &PythonJob::training_ranks)
      .def("check_same", &PythonJob::check_same)
      .def("from_first", &PythonJob::from_first)
      .def("check_same_file", &PythonJob::check_same_file)
      .def("share_file", &PythonJob::share_file);
  py::class_<ProgramModel, std::shared_ptr<ProgramModel>>(m, "Model")
      .def(py::init<const std::string&>())
      .def("inputs", &ProgramModel::inputs)
      .def("layers", &ProgramModel::layers)
      .def("mixes_samples", &ProgramModel::mixes_samples)
      .def("plan", &ProgramModel::plan);
  py::class_<PythonSession>(m, "Session")
      .def(py::init<std::shared_ptr<ProgramModel>, const std::string&, py::dict,
                    std::shared_ptr<PythonJob>, bool>())
      .def("step", &PythonSession::step)
      .def("data", &PythonSession::data)
      .def("train", &PythonSession::train)
      .def("evaluate", &PythonSession::evaluate)
      .def("give_up", &PythonSession::give_up)
      .def("end_epoch", &PythonSession::end_epoch)
      .def("save", &PythonSession::save)
      .def("resume", &PythonSession::resume)
      .def("weights", &PythonSession::weights)
      .def("load_weights", &PythonSession::load_weights)
      .def("rate_of", &PythonSession::rate_of)
      .def_property_readonly("steps", &PythonSession::steps)
      .def_property_readonly("plan", &PythonSession::plan)
      .def_property_readonly("sample", &PythonSession::sample)
      .def_property_readonly("needs_targets", &PythonSession::needs_targets);
}

}  // namespace penstock::python
