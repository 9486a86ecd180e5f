// A piece of a model (model/piece.h) whose forward and backward passes are packages. Internal to
// compiled.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/compiled/package.h"
#include "penstock/imported/piece_steps.h"
#include "penstock/model/piece.h"
#include "penstock/util/files/json.h"

namespace penstock::compiled {

/// What goes in and comes out.
struct PieceInterface {
  /// A tensor that the backward pass reads: an argument of the forward pass, or a result.
  struct Saved {
    bool is_argument = false;
    size_t place = 0;
  };
  std::vector<imported::PieceSteps::Input> inputs;  ///< contiguous
  size_t num_outputs = 0;
  std::vector<Saved> saved = {};
  std::vector<size_t> tangents = {};   ///< outputs that have gradients
  std::vector<size_t> gradients = {};  ///< arguments whose gradients the backward pass makes

  /// `answer`: what compile_piece.py says of its packages, read from `place`. Throws ParseError
  /// where it is damaged.
  static PieceInterface read(const imported::PieceSteps& steps, const Json& answer,
                             const std::string& place);
};

/// Two packages and their interface; pieces of equal layers share one.
struct PieceProgram {
  PieceProgram(PieceInterface of, const std::filesystem::path& folder, int callers)
      : interface(std::move(of)),
        place(folder),
        forward(folder / "forward.pt2", callers),
        backward(folder / "backward.pt2", callers) {}

  PieceInterface interface;
  std::filesystem::path place;
  Package forward;
  Package backward;
};

/// Immutable; thread-safe.
class CompiledPiece final : public model::Piece {
 public:
  CompiledPiece(LayerId first, LayerId last, std::shared_ptr<const PieceProgram> program,
                const imported::PieceSteps& steps)
      : first_(first),
        last_(last),
        program_(std::move(program)),
        constants_(steps.constants),
        masks_(steps.masks) {}

  LayerId first() const override { return first_; }
  LayerId last() const override { return last_; }
  const PieceProgram& program() const { return *program_; }
  /// In training, alone on a CPU, with the sizes that it was compiled for.
  bool takes(model::TensorSpan inputs, const model::ForwardContext& context) const override;
  model::Tensors forward(model::TensorSpan weights, model::MutableTensorSpan buffers,
                         model::TensorSpan inputs,
                         const model::ForwardContext& context) const override;

 private:
  LayerId first_;
  LayerId last_;
  std::shared_ptr<const PieceProgram> program_;
  std::function<model::Tensors(at::Device)> constants_;
  std::function<model::Tensors(uint64_t)> masks_;
};

}  // namespace penstock::compiled
