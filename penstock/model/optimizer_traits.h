// What is said of an optimiser: its name with its parameters (OptimizerSpec), and the row that says
// which parameters and states it has (optimizer_spec.h has the rows). Plain values without tensors.
//
//   OptimizerSpec{.kind = OptimizerKind::Adam, .beta2 = 0.99}
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::model {

/// In the order of kOptimizers.
enum class OptimizerKind : uint8_t {
  Sgd,
  Adam,
  AdamW,
  NAdam,
  NAdamW,
  RmsProp,
  Adagrad,
  Lion,
  Asgd,
  Lamb,
  Lars,
  Adafactor,
  Muon,
  Soap
};

/// Parameters with a learning rate and a weight decay of their own.
struct ParameterGroup {
  std::vector<std::string> parameters;  ///< names in the state dict
  double rate_factor = 1;               ///< times the learning rate of the step
  double weight_decay = 0;
  bool by_adamw = false;  ///< muon, soap: AdamW steps them, whatever their shape
};

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::Sgd;
  double momentum = 0.9;  ///< sgd, rmsprop, lars, muon
  /// sgd: the step looks ahead along the momentum (Sutskever et al. 2013, as torch.optim does).
  bool nesterov = false;
  /// Added to the gradient (L2), as torch.optim does; adamw, nadamw, lion, lamb, adafactor, muon
  /// and soap: taken off the weight.
  double weight_decay = 0;
  double beta1 = 0.9;  ///< adam and its kin, lion, soap
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double rate_factor = 1;         ///< times the learning rate of the step
  bool maximize = false;          ///< climbs: steps along the gradient
  bool amsgrad = false;           ///< adam, adamw: divides by the largest second moment so far
  double momentum_decay = 0.004;  ///< nadam
  double alpha = 0.99;            ///< rmsprop: of the mean of squares
  bool centered = false;          ///< rmsprop: divides by the deviation, not by the mean of squares
  double rate_decay = 0;          ///< adagrad: the rate of step t is divided by 1 + decay * (t - 1)
  double initial_accumulator = 0;  ///< adagrad: of the sum of squares
  double lambda = 1e-4;            ///< asgd: decay of weights, and of the rate with `power`
  double power = 0.75;             ///< asgd
  double average_from = 1e6;       ///< asgd: after this step the weights' mean is taken
  double trust = 0.001;            ///< lars
  double decay_power = 0.8;        ///< adafactor: step^-power is the newest square's share
  double scale_epsilon = 1e-3;     ///< adafactor: the smallest scale of a weight
  double clip = 1;                 ///< adafactor: largest root mean square of an update
  double iterations = 5;           ///< muon: of Newton and Schulz
  double norm_epsilon = 1e-7;      ///< muon: smallest norm that is divided by
  bool match_rms = false;          ///< muon: updates as large as Adam's
  double adamw_rate = 1;           ///< muon: times the rate, for what AdamW steps
  double basis_every = 10;         ///< soap: steps between two bases
  double largest_side = 10'000;    ///< soap: longer sides of matrices keep their own basis
  /// muon, soap, for one weight: it is stepped as a matrix; otherwise AdamW steps it.
  /// parameter_optimizers.h decides.
  bool as_matrix = true;
  bool mean_step = false;  ///< keeps a running mean of its steps (plan::Compensation::Correct)
  /// Weights of one dimension, as norms and biases are, decay like the others.
  bool decays_vectors = true;
  /// Keeps a running mean of each weight beside its state (StepContext::average_share).
  bool averages = false;
  /// Empty: all parameters have the values above. Otherwise each is in exactly one group; names
  /// that the model does not train are allowed.
  std::vector<ParameterGroup> groups = {};
};

/// A parameter of optimisers, and the finite numbers that it may be.
struct OptimizerParameter {
  std::string_view name;                                   ///< in messages and texts
  double OptimizerSpec::*value = nullptr;                  ///< where it stands
  double usual = 0;                                        ///< of this optimiser
  double lowest = 0;                                       ///< of the allowed values
  bool above_lowest = false;                               ///< `lowest` itself is not allowed
  double below = std::numeric_limits<double>::infinity();  ///< all allowed values

  /// Why it cannot have this value; empty: it can.
  std::string refusal(double found) const {
    if (found >= lowest && found < below && !(above_lowest && found == lowest)) return {};
    const bool is_bounded = below < std::numeric_limits<double>::infinity();
    return fmt::format("{} must be {} {} and {}, found {}", name,
                       above_lowest ? "above" : "at least", lowest,
                       is_bounded ? fmt::format("below {}", below) : "finite", found);
  }
};

/// What an optimiser does or does not.
struct OptimizerFlag {
  std::string_view name;
  bool OptimizerSpec::*value = nullptr;
  bool usual = false;
};

/// Which numbers of a weight a state has; no numbers: the shape [0].
enum class StateShape : uint8_t {
  OfWeight,
  Rows,         ///< of matrices and more: one number per row, [.., rows, 1]
  Columns,      ///< of matrices and more: one per column, [.., 1, columns]
  OfVectors,    ///< the shape of weights with fewer than two dimensions
  OfMatrices,   ///< that of weights that are stepped as matrices
  OfOthers,     ///< that of the others
  RowPairs,     ///< of weights that are stepped as matrices: [rows, rows], unless they are too many
  ColumnPairs,  ///< the same of columns
};

/// A tensor that an optimiser keeps per weight.
struct OptimizerState {
  std::string_view name;
  double OptimizerSpec::*unless_zero = nullptr;  ///< kept only where this is not 0
  bool OptimizerSpec::*if_set = nullptr;         ///< kept only with this
  StateShape shape = StateShape::OfWeight;
  double OptimizerSpec::*initial = nullptr;  ///< its numbers at first; null: 0
  bool begins_as_weight = false;             ///< its numbers at first are the weight's
};

struct OptimizerTraits {
  OptimizerKind kind = OptimizerKind::Sgd;
  std::string_view name;   ///< on command lines and in files
  std::string_view title;  ///< the class of torch.optim, or what its paper calls it
  /// The parameters that it has beside learning rate and weight decay.
  std::span<const OptimizerParameter> parameters;
  std::span<const OptimizerFlag> flags = {};  ///< beside `maximize`
  std::span<const OptimizerState> states;
  bool in_torch = true;  ///< torch.optim has a class `title`
  /// Without weight decay, steps that replicas make apart are parts of one step of all.
  bool steps_add_up = false;
  /// A number of the step depends on others of its weight: shares of a weight cannot be stepped
  /// apart.
  bool needs_whole_weight = false;
  /// Matrices are stepped otherwise than the other weights (OptimizerSpec::as_matrix).
  bool parts_weights = false;
  /// Only hidden ones are: not tables of embeddings, nor those of the first and the last layer.
  bool hidden_matrices_only = false;
  /// Bytes of state per byte of weights, about, where the model is not known; below 0: its states.
  double usual_state = -1;
};

}  // namespace penstock::model
