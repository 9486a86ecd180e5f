#include "penstock/job/compiled_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "penstock/compiled/compile_model.h"
#include "penstock/compiled/piece_choice.h"
#include "penstock/imported/import_model.h"
#include "penstock/model/precision.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::job {

void check_can_compile(const model::Model& model, const options::TrainRequest& request) {
  if (!imported::is_program(model)) {
    throw ConfigError(
        fmt::format("compiled stages are for programs of torch.export, and '{}' comes with "
                    "penstock: export the module in Python with penstock.export(module, example, "
                    "\"model.pt2\") and train that file",
                    model.name()));
  }
  if (request.run.device != "cpu") {
    throw ConfigError(
        fmt::format("compiled stages run on CPUs, found the device '{}'", request.run.device));
  }
  if (model::has_own_types(model)) {
    throw ConfigError(
        fmt::format("compiled stages compute in float32, and '{}' was exported with numbers of 16 "
                    "bits: expected a module after module.float(), or a run that is not compiled",
                    model.name()));
  }
  const Precision precision = request.plan.precision.value_or(Precision::Float32);
  if (precision != Precision::Float32) {
    throw ConfigError(
        fmt::format("compiled stages compute in float32, found {}", to_string(precision)));
  }
}

namespace {

/// What the ranks have compiled, and why not more: empty where all have the same.
std::string difference(const std::vector<std::string>& ranks) {
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const auto layers_of = [&](size_t r) { return ranks[r].substr(0, ranks[r].find('|')); };
    if (layers_of(rank) == layers_of(0)) continue;
    const size_t other = ranks[rank].ends_with('|') ? 0 : rank;
    return fmt::format(
        "the ranks cannot compile the same layers, so all run without a compiler; "
        "rank {}: {}",
        other, ranks[other].substr(ranks[other].find('|') + 1));
  }
  return {};
}

}  // namespace

model::Model compiled_for(const model::Model& model, const plan::Plan& plan,
                          const options::TrainRequest& request, const CompiledRunOptions& options) {
  options::TrainRequest planned = request;
  planned.plan.precision = plan.precision;
  check_can_compile(model, planned);
  if (!plan.teams().empty()) {
    throw ConfigError(
        "compiled stages cannot be spread over teams: expected a plan without them (tensor 1)");
  }
  const int64_t batch = request.run.batch_size.value_or(options::kUsualBatchSize);
  const int64_t parts = std::clamp<int64_t>(plan.micro_batches, 1, batch);
  compiled::CompileOptions compile{
      .samples = ceil_div(batch, parts),
      .threads = request.run.threads,
      .callers = plan.num_workers(),
      .stop = options.stop,
      .tell = [&](const std::string& text) { options.listener.tell("compile: " + text); }};
  if (!options.python.empty()) compile.python = options.python;
  const auto begin = std::chrono::steady_clock::now();
  std::optional<compiled::CompiledModel> compiled_model;
  const auto make = [&] {
    compiled_model.emplace(
        compiled::compile_model(model, plan::stage_of_layer(plan, model.graph()), compile));
    const std::vector<std::string>& notes = compiled_model->notes;
    return compiled_model->compiled + '|' + (notes.empty() ? std::string() : notes.front());
  };
  if (options.job == nullptr) {
    make();
  } else if (const std::string why = difference(options.job->together(make)); !why.empty()) {
    options.listener.tell(fmt::format("warning: compile: {}\n", why));
    return model;
  }
  compiled::CompiledModel& made = *compiled_model;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  for (const std::string& note : made.notes)
    options.listener.tell(fmt::format("warning: compile: {}\n", note));
  options.listener.tell(
      fmt::format("compile: {} piece(s), {} compiled now, {} from the cache, "
                  "in {:.1f} s\n",
                  made.pieces, made.made_now, made.pieces - made.made_now, taken.count()));
  const auto choose = [&] { return compiled::choose_pieces(made.model, compile.threads); };
  const std::string choice = options.job == nullptr ? choose() : options.job->from_first(choose);
  for (const std::string& note : compiled::notes_of_choice(made.model, choice))
    options.listener.tell(fmt::format("compile: {}\n", note));
  if (batch % parts != 0) {
    options.listener.tell(
        fmt::format("warning: compile: micro-batches of {} sample(s) are compiled, smaller ones "
                    "are not: expected a number of micro-batches that divides the {} of a step\n",
                    compile.samples, batch));
  }
  return compiled::with_pieces(made.model, choice);
}

}  // namespace penstock::job
