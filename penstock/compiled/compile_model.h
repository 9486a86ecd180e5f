// The stages of a PyTorch program through PyTorch's own compiler, ahead of time: each run of layers
// of a stage becomes two packages of AOTInductor (forward, backward), which the stage's worker runs
// without Python.
//
//   const CompiledModel compiled = compile_model(model, stage_of_layer, {.samples = 16});
//   Session session(compiled.model, options);
//
// The model's layers, weights and checkpoints stay as they are (model/piece.h). What was compiled
// is kept in the user's folder of caches for later runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "penstock/model/model.h"

namespace penstock::compiled {

struct CompileOptions {
  int64_t samples = 1;  ///< of a micro-batch; others run layer by layer
  int threads = 1;      ///< of each worker
  int callers = 1;      ///< workers of this process that run the same stage at the same time
  std::string python = usual_python();
  std::filesystem::path place = {};  ///< of the packages; empty: usual_package_place()
  const std::atomic<bool>* stop = nullptr;
  /// Told what takes long, a line each.
  std::function<void(const std::string& text)> tell = {};

  /// The variable PENSTOCK_PYTHON, or python3.
  static std::string usual_python();
};

struct CompiledModel {
  model::Model model;
  int pieces = 0;    ///< that are compiled
  int made_now = 0;  ///< of them; the others were in the cache
  /// Which layers they have: models with the same text work together as the ranks of a job.
  std::string compiled;
  std::vector<std::string> notes;  ///< what is not compiled, and why
};

/// Blocks for 10 to 60 s per piece that is not in the cache. Never fails for want of a compiler: a
/// piece that cannot be compiled runs layer by layer, and a note says why. Throws ConfigError where
/// this libtorch has no packages, RuntimeError when stopped.
CompiledModel compile_model(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                            const CompileOptions& options);

}  // namespace penstock::compiled
