#include "penstock/job/compiled_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "penstock/compiled/compile_model.h"
#include "penstock/imported/import_model.h"
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
  const Precision precision = request.plan.precision.value_or(Precision::Float32);
  if (precision != Precision::Float32) {
    throw ConfigError(
        fmt::format("compiled stages compute in float32, found {}", to_string(precision)));
  }
}

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
  compiled::CompiledModel made =
      compiled::compile_model(model, plan::stage_of_layer(plan, model.graph()), compile);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  for (const std::string& note : made.notes)
    options.listener.tell(fmt::format("warning: compile: {}\n", note));
  options.listener.tell(
      fmt::format("compile: {} piece(s), {} compiled now, {} from the cache, "
                  "in {:.1f} s\n",
                  made.pieces, made.made_now, made.pieces - made.made_now, taken.count()));
  if (batch % parts != 0) {
    options.listener.tell(
        fmt::format("warning: compile: micro-batches of {} sample(s) are compiled, smaller ones "
                    "are not: expected a number of micro-batches that divides the {} of a step\n",
                    compile.samples, batch));
  }
  return std::move(made.model);
}

}  // namespace penstock::job
