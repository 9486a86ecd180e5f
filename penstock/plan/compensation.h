// What makes the delays of weight policies cheap: a row each. Whatever another part needs to know
// of a compensation stands in its row or here; docs/weights.md has the formulas. The verifier keeps
// a copy of the rules of its own, so that it can find errors in these.
//
//   compensation_refusal(Compensation::Predict, WeightPolicy::Flush);   // why not
//   steps_ahead(Compensation::Predict, {.mini_batch = 7, .version = 4}) == 3;
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "penstock/plan/weight_policy.h"

namespace penstock::plan {

enum class Compensation : uint8_t {
  None,
  /// Passes read weights that are ahead by the optimiser's next step times the delay. Source: Chen
  /// et al., "Efficient and Robust Parallel DNN Training through Model Parallelism on Multi-GPU
  /// Platform" (SpecTrain), 2018, section 3.3, for SGD with momentum; Guan et al., "XPipe", 2019,
  /// section 3.2, for Adam; Guan et al., "PipeOptim", 2023, section 3, for any optimiser.
  Predict,
  /// The learning rate is divided by the stage's delay to a power that fades. Source: Yang et al.,
  /// "PipeMare: Asynchronous Pipeline Parallel DNN Training", MLSys 2021, section 3.1 (T1).
  Rate,
  /// Backward passes read the newest weights less the steps since their forward passes, estimated
  /// by a running mean of steps. Source: the same, section 3.2 (T2).
  Correct,
  /// The optimiser becomes Nesterov's with a momentum of kLookAhead and the gradient's share of a
  /// step discounted by 1 minus that. Source: Ajanthan et al., "Nesterov Method for Asynchronous
  /// Pipeline Parallel Optimization", ICML 2025, section 3.
  Nesterov,
};
inline constexpr size_t kNumCompensations = static_cast<size_t>(Compensation::Nesterov) + 1;

/// The momentum of `nesterov`.
inline constexpr double kLookAhead = 0.99;

/// A pass over a micro-batch, as a compensation sees it.
struct AheadUse {
  int64_t mini_batch = 0;       ///< of the micro-batch
  int64_t version = 0;          ///< of the weights that the pass reads
  int64_t forward_version = 0;  ///< that the micro-batch's forward pass read
  bool is_backward = false;     ///< B, I or W
};

struct CompensationTraits {
  Compensation compensation = Compensation::None;
  std::string_view name;     ///< on command lines and in files
  std::string_view summary;  ///< for people
  /// Those that it works under; empty: all.
  std::span<const WeightPolicy> policies = {};
  /// By how many steps the weights of a pass are moved; null: they are not.
  int64_t (*ahead)(const AheadUse& use) = nullptr;
  /// Copies of a stage's weights beyond the policy's `versions`, where the stage has delays.
  int64_t (*copies)(int64_t versions) = nullptr;
  /// Weights are moved by the optimiser's next step: it has to say that before it has the gradient.
  bool asks_next_step = false;
  /// Weights are moved by a running mean of steps, which the optimiser keeps beside its state.
  bool keeps_mean_step = false;
  /// The optimiser becomes another one.
  bool changes_optimizer = false;
  /// It relies on the optimiser's momentum: no schedule changes that.
  bool fixes_momentum = false;
  /// Each stage's rate is divided by rate_divisor(), which fades over steps whose number is known.
  bool divides_rate = false;
  /// Activations must be those of the forward pass: no stage recomputes them.
  bool forbids_recomputation = false;
};

/// In their order.
std::span<const CompensationTraits> compensations();
const CompensationTraits& traits(Compensation compensation);

/// "none", "predict", "rate", "correct", "nesterov".
std::string_view to_string(Compensation compensation);
/// Throws ConfigError listing the names when `name` is none of them.
Compensation parse_compensation(std::string_view name);
/// "none, predict, rate, correct or nesterov": for messages and help texts.
std::string compensation_names();

/// Why it does not work under the policy, and what does; empty: it works.
std::string compensation_refusal(Compensation compensation, WeightPolicy policy);

/// What of a stage matters to compensations.
struct CompensatedStage {
  int32_t stage = 0;
  bool recompute = false;
  bool offload = false;
  int state_parts = 1;  ///< into which the optimiser's state is shared out
};
/// The same of a stage.
std::string compensation_refusal(Compensation compensation, const CompensatedStage& stage);

/// By how many steps the weights of a pass are moved; negative: back. 0 where they are not.
int64_t steps_ahead(Compensation compensation, const AheadUse& use);
/// Copies of a stage's weights beyond `versions`, of which its policy keeps at most so many.
/// `in_flight`: micro-batches from the oldest whose backward pass is pending to the newest whose
/// forward pass ran. One version and one micro-batch: the stage has no delay, and no copies.
int64_t extra_copies(Compensation compensation, int64_t versions, int64_t in_flight);

/// What `rate` divides the learning rate of step `step` (from 0) by: delay^(1 - step / fade_steps),
/// 1 from step `fade_steps` on and for delays up to 1. `delay`: mean steps between the weights that
/// a gradient was computed on and its step. Source: PipeMare, equation 5 with p_k of section 3.1.
double rate_divisor(double delay, int64_t step, int64_t fade_steps);
/// How much of the running mean of steps is kept at each step: exp(-2 / delay), 0 without delay.
/// Source: PipeMare, section 3.2: D^(1 / delay), whose theory advises D = exp(-2).
double mean_step_decay(double delay);

}  // namespace penstock::plan
