// penstock._core: what the Python package needs of the C++ libraries. The package itself is in
// penstock/*.py; nothing else uses this module.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "penstock/job/compiled_run.h"
#include "penstock/job/large_batch.h"
#include "penstock/job/worker_devices.h"
#include "penstock/options/rows.h"
#include "penstock/plan/plan.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/state_dict.h"
#include "penstock/train/data/ragged_dataset.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/event_file.h"
#include "penstock/train/session.h"
#include "penstock/train/trainer.h"
#include "penstock/util/error.h"
#include "penstock/util/process/freed_memory.h"
#include "python/interpreter.h"
#include "python/keywords.h"
#include "python/of_this_process.h"
#include "python/program_model.h"
#include "python/python_job.h"
#include "python/tensor_memory.h"

namespace py = pybind11;

namespace penstock::python {

namespace {

/// An optimiser's name, its title, whether torch.optim has it under that, and what it has beside
/// rate and decay, with its usual values.
using OptimizerRow =
    std::tuple<std::string, std::string, bool, std::map<std::string, std::variant<bool, double>>>;

std::vector<OptimizerRow> optimizers() {
  std::vector<OptimizerRow> rows;
  for (const model::OptimizerTraits& row : model::kOptimizers) {
    std::map<std::string, std::variant<bool, double>> parameters;
    for (const model::OptimizerParameter& one : row.parameters)
      parameters.emplace(one.name, one.usual);
    for (const model::OptimizerFlag& one : row.flags) parameters.emplace(one.name, one.usual);
    rows.emplace_back(row.name, row.title, row.in_torch, std::move(parameters));
  }
  return rows;
}

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
    options::TrainRequest request = take_request(options, model_->model());
    refuse_rest(options);
    model::Model unchanged = model_->model();
    for (const job::LargeBatchNote& note : job::set_large_batch(request, unchanged, 0))
      large_batch_[note.rule] = note.text;
    train::TrainOptions train = options::train_options_of(request);
    train.plan = plan::parse_plan(plan, "the plan");
    drop_last_ = request.data.drop_last;
    has_mean_ = request.mean.is_used();
    const std::vector<cluster::DeviceName> devices = devices_of(request);
    for (const at::Device device : job::dealt(devices, train.plan.num_workers()))
      train.device_of_worker.push_back(device.str());
    if (train.device_graphs && train.device_of_worker.empty())
      throw ConfigError("cuda_graphs: graphs are those of GPUs, and all workers are on the CPU");
    train.stop = &stop_;
    ignore_index_ = train.loss.ignore_index;
    plan_ = train.plan;
    if (job_ != nullptr) {
      const WithoutGil without;
      world_ = job_->job().make_world(plan_.num_workers(), may_idle);
      train.world = world_.get();
    }
    if (request.run.compile) {
      const auto python = py::module_::import("sys").attr("executable").cast<std::string>();
      const job::Listener listener{
          .say = [this](const std::string& text) { compile_notes_.push_back(text); }};
      compiled_ = interruptibly(stop_, [&]() -> std::optional<model::Model> {
        return job::compiled_for(model_->model(), plan_, request,
                                 {.python = python,
                                  .stop = &stop_,
                                  .listener = listener,
                                  .job = job_ == nullptr ? nullptr : &job_->job()});
      });
    }
    // It tries layers in 16 bits: autograd may not be called with the lock of the interpreter.
    const WithoutGil without;
    session_ = std::make_unique<train::Session>(compiled_ ? *compiled_ : model_->model(), train);
  }

  py::dict step(const model::Tensors& inputs, const std::optional<at::Tensor>& targets,
                std::optional<double> rate) {
    const train::Batch batch{inputs, targets.value_or(at::Tensor())};
    return to_python(interruptibly(stop_, [&] { return session_->step(batch, rate); }),
                     session_->counts_correct());
  }

  /// The session's data of these tensors.
  std::shared_ptr<train::Dataset> data(const model::Tensors& inputs,
                                       const std::optional<at::Tensor>& targets) const {
    const train::SampleSpec& sample = session_->sample();
    if (inputs.size() != sample.inputs.size()) {
      throw ConfigError(fmt::format("expected {} input(s): {}; found {}", sample.inputs.size(),
                                    describe(sample), inputs.size()));
    }
    return session_->data_of("the data", inputs, targets.value_or(at::Tensor()));
  }

  /// Batches whose sequences have other lengths, one behind the other.
  std::shared_ptr<train::Dataset> joined(
      const std::vector<std::shared_ptr<train::Dataset>>& batches) const {
    return std::make_shared<train::RaggedDataset>(
        std::vector<std::shared_ptr<const train::Dataset>>(batches.begin(), batches.end()),
        session_->sample(), ignore_index_);
  }

  py::list train(const train::Dataset& data, int64_t epoch, int64_t batch_size, bool shuffle,
                 const py::object& on_step, const std::vector<double>& rates,
                 const train::EpochPart& part) {
    std::vector<int64_t> order = train::epoch_order(data.size(), session_->seed(), epoch, shuffle);
    if (drop_last_ && batch_size > 0)
      order.resize(order.size() - order.size() % static_cast<size_t>(batch_size));
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
            on_step.is_none() ? std::function<bool(const train::StepResult&)>() : report, rates,
            part);
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

  py::dict evaluate(const train::Dataset& data, int64_t batch_size) {
    return to_python(interruptibly(stop_, [&] { return session_->evaluate(data, batch_size); }),
                     session_->counts_correct());
  }

  at::Tensor predict(const model::Tensors& inputs, int64_t batch_size) {
    return interruptibly(stop_, [&] { return session_->predict(inputs, batch_size); });
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

  std::string save(const std::string& folder, const train::Place& place, int newest,
                   std::optional<int64_t> best) {
    return interruptibly(stop_, [&] {
      return session_->save(folder, place, {newest, best}).string();
    });
  }
  /// Nothing: there is no checkpoint.
  std::optional<train::Place> resume(const std::string& folder,
                                     const std::vector<std::string>& classes) {
    return interruptibly(stop_, [&]() -> std::optional<train::Place> {
      if (!train::has_checkpoint(folder)) return std::nullopt;
      return session_->resume(folder, classes);
    });
  }

  /// The names of the parameters that are frozen in the model.
  std::vector<std::string> frozen() const {
    std::vector<std::string> names;
    for (const model::ExtraTensor& extra : model_->model().extra_state()) {
      if (!extra.frozen.empty()) names.push_back(extra.key);
    }
    return names;
  }
  /// The names of all that no training changes: frozen, or not used.
  std::vector<std::string> fixed() const {
    std::set<std::string> names;
    for (const model::ExtraTensor& extra : model_->model().extra_state()) {
      if (extra.same_as.empty() || names.contains(extra.same_as)) names.insert(extra.key);
    }
    return {names.begin(), names.end()};
  }

  /// What a checkpoint's weights.pt has, as copies, and what is frozen; `averaged`: with the means
  /// of the weights.
  py::dict weights(bool averaged, bool with_frozen) const {
    std::vector<std::pair<std::string, at::Tensor>> copies;
    {
      const WithoutGil without;
      std::vector<train::LayerState> layers;
      if (averaged && !has_mean_) throw ConfigError("there is no mean of the weights: see ema");
      for (runtime::LayerSnapshot& layer : session_->snapshot()) {
        model::Tensors& kept = averaged ? layer.optimizer_state.back() : layer.weights;
        layers.push_back({.weights = std::move(kept), .buffers = std::move(layer.buffers)});
      }
      std::map<const at::TensorImpl*, at::Tensor> copy_of;  // two names of a weight share one
      const auto frozen = with_frozen ? train::FrozenWeights::With : train::FrozenWeights::Without;
      for (const auto& entry : train::state_dict(model_->model(), layers, frozen)) {
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

  void observe(double value, bool rises) {
    interruptibly(stop_, [&] { session_->observe(value, rises); });
  }
  void check_step(int64_t samples) const { session_->check_step(samples); }
  /// What compiling has said, a line each.
  const std::vector<std::string>& compile_notes() const { return compile_notes_; }
  int64_t steps() const { return session_->steps(); }
  uint64_t seed() const { return session_->seed(); }
  double rate_of(int64_t step) const { return session_->rate_of(step); }
  std::string plan() const { return plan::to_json(plan_); }
  int workers() const { return plan_.num_workers(); }
  const std::map<std::string, std::string>& large_batch() const { return large_batch_; }
  std::string sample() const { return describe(session_->sample()); }
  bool needs_targets() const { return session_->sample().targets.needed; }

 private:
  std::shared_ptr<ProgramModel> model_;  ///< outlives the session
  std::shared_ptr<PythonJob> job_;       ///< so do these two; null: this process alone
  OfThisProcess<runtime::World> world_;
  std::optional<model::Model> compiled_;
  std::vector<std::string> compile_notes_;
  std::atomic<bool> stop_{false};
  int64_t ignore_index_ = -100;
  bool drop_last_ = false;
  bool has_mean_ = false;
  std::map<std::string, std::string> large_batch_;
  plan::Plan plan_;
  OfThisProcess<train::Session> session_;
};

/// The rows of penstock/options: name, keyword (empty: none, and why), help.
py::list rows() {
  py::list all;
  for (const options::Row& row : options::train_rows()) {
    py::dict one;
    one["name"] = row.name;
    one["keyword"] = row.keyword;
    one["help"] = row.help;
    one["not_in_python"] = row.not_in_python;
    all.append(one);
  }
  return all;
}

/// A permutation of 0..size-1 as that of an epoch of tensors: int64, the same on every machine.
at::Tensor epoch_order(int64_t size, uint64_t seed, int64_t epoch) {
  if (size < 0) throw ConfigError(fmt::format("expected a size of at least 0, found {}", size));
  const std::vector<int64_t> order = train::epoch_order(size, seed, epoch, /*shuffle=*/true);
  at::Tensor result = at::empty({size}, at::kLong);
  std::copy(order.begin(), order.end(), result.data_ptr<int64_t>());
  return result;
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.def("optimizers", &optimizers);
  m.def("rows", &rows);
  m.def("epoch_order", &epoch_order);
  m.def("mark_best",
        [](const std::string& folder, int64_t step) { return train::mark_best(folder, step); });
  m.def("has_checkpoint", [](const std::string& folder) { return train::has_checkpoint(folder); });
  m.def("folder_of_checkpoints",
        [](const std::string& path) { return train::folder_of_checkpoints(path).string(); });
  m.def("give_back_freed_memory", &give_back_freed_memory);
  m.attr("TENSOR_MEMORY") = take_tensors_from_tcmalloc() ? "tcmalloc" : "system";
  py::module_::import("atexit").attr("register")(py::cpp_function(&end_work));
  m.attr("PenstockError") = py::module_::import("penstock._errors").attr("PenstockError");
  static PyObject* const penstock_error = m.attr("PenstockError").ptr();  // the module keeps it
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(std::move(thrown));
    } catch (const Error& error) {
      PyErr_SetString(penstock_error, error.what());
    }
  });
  py::class_<train::Dataset, std::shared_ptr<train::Dataset>>(m, "Data").def("__len__",
                                                                             &train::Dataset::size);
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
      .def(py::init<const std::string&, py::dict>(), py::arg("path"),
           py::arg("options") = py::dict())
      .def("adapters", &ProgramModel::adapters)
      .def("has_transposed_adapters", &ProgramModel::has_transposed_adapters)
      .def("inputs", &ProgramModel::inputs)
      .def("layers", &ProgramModel::layers)
      .def("mixes_samples", &ProgramModel::mixes_samples)
      .def("returns_loss", &ProgramModel::returns_loss)
      .def("note", &ProgramModel::note)
      .def("plan", &ProgramModel::plan);
  py::class_<train::EpochPart>(m, "EpochPart")
      .def(py::init([](int64_t first, std::optional<int64_t> steps) {
             return train::EpochPart{first, steps};
           }),
           py::arg("first"), py::arg("steps"));
  py::class_<train::InsideEpoch>(m, "InsideEpoch")
      .def(py::init<>())
      .def_readwrite("steps", &train::InsideEpoch::steps)
      .def_readwrite("batch_size", &train::InsideEpoch::batch_size)
      .def_readwrite("samples", &train::InsideEpoch::samples)
      .def_readwrite("shuffle", &train::InsideEpoch::shuffle);
  py::class_<train::EventFile>(m, "EventFile")
      .def(py::init<const std::string&, int64_t>(), py::arg("folder"), py::arg("first_step"))
      .def("add", &train::EventFile::add)
      .def("add_text", &train::EventFile::add_text);
  py::class_<train::Place>(m, "Place")
      .def(py::init<>())
      .def_readwrite("epochs", &train::Place::epochs)
      .def_readwrite("inside", &train::Place::inside)
      .def_readwrite("rate_scale", &train::Place::rate_scale)
      .def_readwrite("base_rate", &train::Place::base_rate)
      .def_readwrite("classes", &train::Place::classes)
      .def_readwrite("loader", &train::Place::loader);
  py::class_<PythonSession>(m, "Session")
      .def(py::init<std::shared_ptr<ProgramModel>, const std::string&, py::dict,
                    std::shared_ptr<PythonJob>, bool>())
      .def("step", &PythonSession::step)
      .def("data", &PythonSession::data)
      .def("joined", &PythonSession::joined)
      .def("train", &PythonSession::train)
      .def("evaluate", &PythonSession::evaluate)
      .def("predict", &PythonSession::predict)
      .def_property_readonly("seed", &PythonSession::seed)
      .def("give_up", &PythonSession::give_up)
      .def("end_epoch", &PythonSession::end_epoch)
      .def("save", &PythonSession::save)
      .def("resume", &PythonSession::resume)
      .def("weights", &PythonSession::weights, py::arg("averaged") = false,
           py::arg("frozen") = true)
      .def_property_readonly("frozen", &PythonSession::frozen)
      .def_property_readonly("fixed", &PythonSession::fixed)
      .def_property_readonly("compile_notes", &PythonSession::compile_notes)
      .def_property_readonly("large_batch", &PythonSession::large_batch)
      .def("load_weights", &PythonSession::load_weights)
      .def("rate_of", &PythonSession::rate_of)
      .def("observe", &PythonSession::observe)
      .def("check_step", &PythonSession::check_step)
      .def_property_readonly("steps", &PythonSession::steps)
      .def_property_readonly("plan", &PythonSession::plan)
      .def_property_readonly("workers", &PythonSession::workers)
      .def_property_readonly("sample", &PythonSession::sample)
      .def_property_readonly("needs_targets", &PythonSession::needs_targets);
}

}  // namespace penstock::python
