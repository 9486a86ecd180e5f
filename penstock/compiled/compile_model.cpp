#include "penstock/compiled/compile_model.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "penstock/compiled/compiled_piece.h"
#include "penstock/compiled/package_folder.h"
#include "penstock/compiled/piece_layer.h"
#include "penstock/imported/piece_steps.h"
#include "penstock/model/layers/blocked_product.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/util/error.h"
#include "penstock/util/process/processor.h"

namespace penstock::compiled {

namespace {

/// Layers of one stage, one behind the other.
struct Range {
  LayerId first;
  LayerId last;
};

class Compiler {
 public:
  Compiler(const model::Model& model, const CompileOptions& options)
      : model_(model), options_(options) {
    try {
      place_ = options.place.empty() ? usual_package_place() : options.place;
    } catch (const ConfigError& error) {
      note_no_compiler(error);
    }
  }

  CompiledModel run(const std::vector<StageId>& stage_of_layer) {
    std::vector<std::shared_ptr<const model::Layer>> layers;
    for (int l = 0; l < model_.graph().num_layers(); ++l)
      layers.push_back(model_.shared_layer(LayerId{l}));
    for (const Range& range : ranges(stage_of_layer)) {
      const std::shared_ptr<const model::Piece> piece = piece_of(range);
      if (piece == nullptr) continue;
      ++pieces_;
      compiled_ += fmt::format("{} to {}\n", range.first.value, range.last.value);
      for (int l = range.first.value; l <= range.last.value; ++l) {
        auto& layer = layers[static_cast<size_t>(l)];
        layer = std::make_shared<PieceLayer>(layer, piece);
      }
    }
    return {with_layers(model_, std::move(layers)), pieces_, made_now_, std::move(compiled_),
            std::move(notes_)};
  }

 private:
  /// Stages, without the layers that nobody can compile.
  std::vector<Range> ranges(const std::vector<StageId>& stage_of_layer) {
    std::vector<Range> all;
    for (int32_t l = 0; l < model_.graph().num_layers(); ++l) {
      if (std::string why = imported::why_no_steps(model_.layer(LayerId{l})); !why.empty()) {
        notes_.push_back(
            fmt::format("the layer '{}' is not compiled: it {}", name(LayerId{l}), why));
        continue;
      }
      const bool goes_on =
          !all.empty() && all.back().last == LayerId{l - 1} &&
          stage_of_layer[static_cast<size_t>(l)] == stage_of_layer[static_cast<size_t>(l) - 1];
      if (goes_on)
        all.back().last = LayerId{l};
      else
        all.push_back({LayerId{l}, LayerId{l}});
    }
    return all;
  }

  void note_no_compiler(const Error& error) {
    has_compiler_ = false;
    notes_.push_back(fmt::format("the stages run without a compiler: {}", error.what()));
  }

  imported::PieceSteps steps_of(const Range& range) const {
    const std::vector<StageId> stages =
        runtime::stages_around(range.first, range.last, model_.graph().num_layers());
    const runtime::StageModule module(model_, stages, StageId{1});
    imported::PieceBorder border{.first = range.first,
                                 .last = range.last,
                                 .inputs = module.inputs(),
                                 .input_gradients = {},
                                 .outputs = module.outputs()};
    for (size_t i = 0; i < border.inputs.size(); ++i)
      border.input_gradients.push_back(module.input_needs_gradient(i));
    return imported::steps_of_piece(model_, border, options_.samples);
  }

  /// Null, with a note: it runs layer by layer.
  std::shared_ptr<const model::Piece> piece_of(const Range& range) {
    if (!has_compiler_) return nullptr;
    try {
      const imported::PieceSteps steps = steps_of(range);
      return std::make_shared<CompiledPiece>(range.first, range.last, program_of(steps), steps);
    } catch (const NoCompiler& error) {
      note_no_compiler(error);
      return nullptr;
    } catch (const Error& error) {
      if (options_.stop != nullptr && *options_.stop) throw;
      notes_.push_back(fmt::format("layers '{}' to '{}' run without a compiler: {}",
                                   name(range.first), name(range.last), error.what()));
      return nullptr;
    }
  }

  std::shared_ptr<const PieceProgram> program_of(const imported::PieceSteps& steps) {
    Json request = steps.text;
    request["torch"] = TORCH_VERSION;
    request["threads"] = options_.threads;
    request["blocked_from"] = model::blocked_from();
    request["processor"] = processor_name() + ' ' + processor_features();
    const std::string text = to_text(request);
    const auto [known, is_new] = programs_.emplace(text, nullptr);
    if (!is_new) {  // the same layers once more
      if (known->second == nullptr) throw ConfigError("as equal layers do");
      return known->second;
    }
    const PackageFolder folder(place_, text);
    if (const std::string why = folder.failure(); !why.empty()) throw ConfigError(why);
    if (!folder.is_whole()) {
      if (options_.tell) options_.tell(fmt::format("compiling piece {}\n", programs_.size()));
      folder.make(options_.python, options_.stop);
      ++made_now_;
    }
    known->second = std::make_shared<PieceProgram>(
        PieceInterface::read(steps, folder.answer(), folder.path().string()), folder.path(),
        options_.callers);
    return known->second;
  }

  const std::string& name(LayerId id) const { return model_.graph().layer(id).name; }

  const model::Model& model_;
  const CompileOptions& options_;
  std::filesystem::path place_;
  std::map<std::string, std::shared_ptr<const PieceProgram>> programs_;
  std::string compiled_;
  std::vector<std::string> notes_;
  bool has_compiler_ = true;
  int pieces_ = 0;
  int made_now_ = 0;
};

}  // namespace

std::string CompileOptions::usual_python() {
  const char* const named = std::getenv("PENSTOCK_PYTHON");
  return named == nullptr || *named == '\0' ? "python3" : named;
}

CompiledModel compile_model(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                            const CompileOptions& options) {
  if (!Package::can_load()) {
    throw ConfigError(
        fmt::format("libtorch {} cannot load compiled stages: expected 2.9 or newer, as PyTorch's "
                    "wheels have it",
                    TORCH_VERSION));
  }
  return Compiler(model, options).run(stage_of_layer);
}

}  // namespace penstock::compiled
