// The model of a run whose stages are compiled (--compile): compiled/compile_model.h for what a
// request and its plan say.
//
//   run.model = compiled_for(run.model, plan, request, {.listener = listener});
#pragma once

#include <atomic>
#include <string>

#include "penstock/job/job.h"
#include "penstock/job/listener.h"
#include "penstock/model/model.h"
#include "penstock/options/request.h"
#include "penstock/plan/plan.h"

namespace penstock::job {

struct CompiledRunOptions {
  std::string python = {};  ///< empty: the variable PENSTOCK_PYTHON, or python3
  const std::atomic<bool>* stop = nullptr;
  Listener listener = {};
  Job* job = nullptr;  ///< null: this process alone
};

/// Throws ConfigError for a model that is no program of torch.export. Of the request it takes
/// precision and device only to refuse others than float32 on the CPU.
void check_can_compile(const model::Model& model, const options::TrainRequest& request);

/// The model with compiled stages, as far as that is possible here; what is not is told. Ranks of a
/// job, which all call it, compile the same layers or none. Blocks for 10 to 60 s per stage that is
/// not in the cache. Throws ConfigError as check_can_compile(), and
/// for a plan with teams, RuntimeError when stopped.
model::Model compiled_for(const model::Model& model, const plan::Plan& plan,
                          const options::TrainRequest& request, const CompiledRunOptions& options);

}  // namespace penstock::job
