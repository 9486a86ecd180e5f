// The training losses. Each is a mean over the targets of the whole mini-batch, whatever the
// micro-batches into which it is cut.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "penstock/model/loss_spec.h"
#include "penstock/model/model.h"

namespace penstock::model {

/// The mini-batch that a micro-batch is a part of.
struct MiniBatchSize {
  int64_t samples = 1;
  /// That count: labels, tokens, pixels, without those that are ignored. 0: those of this
  /// micro-batch, which is the whole mini-batch.
  int64_t targets = 0;
  /// Nobody reads the output after the loss, which may overwrite it.
  bool output_is_free = false;
};

struct LossResult {
  /// Differentiable scalar: this micro-batch's part of the mini-batch's mean.
  at::Tensor scaled_loss;
  /// That part times the mini-batch's samples: divided by them, the sum over the micro-batches is
  /// the mean.
  double loss_sum = 0;
  int64_t correct = 0;  ///< targets that the largest logit names
  int64_t targets = 0;  ///< that count in this micro-batch
  /// Of an output on a GPU: loss_sum and correct, [2] of float64 there, and the two numbers above
  /// are 0; to read them would wait for the GPU. Otherwise undefined.
  at::Tensor unread = {};
};

/// What makes a loss of the model's output: one of the below, or the user's own. Targets are in the
/// host's memory wherever the output is.
using Loss = std::function<LossResult(const at::Tensor& output, const at::Tensor& targets,
                                      const MiniBatchSize& mini_batch)>;

/// Softmax cross-entropy of logits against classes (int64):
///   [batch, classes] and [batch];
///   [batch, places..., classes] and [batch, places...], as language models have them;
///   [batch, classes, places...] and [batch, places...], as images have them.
/// Three-dimensional logits that fit both ways have the classes last, others first. Throws
/// ConfigError when shapes disagree or a target is out of range.
LossResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                         const MiniBatchSize& mini_batch, const LossSpec& spec = {});

// For losses of the same kind (team_loss.h):
/// Throws ConfigError naming a target that is no class.
void check_targets(const at::Tensor& targets, int64_t classes, const LossSpec& spec);
/// Fills in the result, whose `targets` are known, for these losses [tokens] of its targets;
/// `correct`: how many are right.
void set_cross_entropy(LossResult& result, const at::Tensor& losses,
                       const MiniBatchSize& mini_batch, const at::Tensor& correct);
bool is_cross_entropy(const LossSpec& spec);

/// For models with auxiliary answers: logits [batch, 1 + n, classes], targets [batch]. The
/// cross-entropy of the first, and of each other one that is there, times its weight of the spec
/// (Szegedy et al. 2016, section 4). `correct` is that of the first. Throws ConfigError as above.
LossResult auxiliary_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                   const MiniBatchSize& mini_batch, const LossSpec& spec);

/// cross_entropy() of logits [batch, classes, height, width] in one pass over the pixels, for
/// frames that come one by one. Pixels whose target is kNoTarget count nothing.
LossResult pixel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                               const MiniBatchSize& mini_batch);
inline constexpr int64_t kNoTarget = -100;  ///< as PyTorch's ignore_index

/// Mean of the squared differences; targets of the output's shape, float32. Throws ConfigError when
/// the shapes disagree.
LossResult mean_squared_error(const at::Tensor& output, const at::Tensor& targets,
                              const MiniBatchSize& mini_batch);

/// Mean of the binary cross-entropies of logits and probabilities, as PyTorch's BCEWithLogitsLoss;
/// targets of the output's shape, float32 from 0 to 1. `correct`, for one logit per sample: samples
/// on whose side of 0.5 the target is. Throws ConfigError when the shapes disagree or a target is
/// out of range.
LossResult binary_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                const MiniBatchSize& mini_batch);

/// Targets of cross_entropy(), or of auxiliary_cross_entropy()'s first answers, whose logit is one
/// of the `most` largest: fewer than that are larger, or equal with a smaller class. Ignored ones
/// are none. Waits for a GPU. Throws ConfigError as these do.
int64_t count_in_largest(const at::Tensor& logits, const at::Tensor& targets, int64_t most,
                         const LossSpec& spec);

/// For models whose output is their loss, one number for each sample. `targets`: how many count in
/// this micro-batch, one number, for a loss that is a mean over them; undefined: its mean is over
/// samples.
LossResult own_loss(const at::Tensor& output, const at::Tensor& targets,
                    const MiniBatchSize& mini_batch);

/// The spec with the loss that is right for the model where it names none. Throws ConfigError: an
/// unknown name, options out of range or of another loss, a model that does not fit (says why).
LossSpec loss_for(const Model& model, const LossSpec& spec);
/// What the spec of loss_for() says.
Loss make_loss(const LossSpec& spec);

/// What the loss compares one sample's output with.
struct TargetSpec {
  bool needed = true;
  Shape shape;
  at::ScalarType type = at::kLong;
  int64_t classes = 0;             ///< int64: targets lie in [0, classes)
  bool are_probabilities = false;  ///< float32: from 0 to 1
};
/// For a spec of loss_for(). Where logits fit in two ways: the one that cross_entropy() prefers.
TargetSpec targets_for(const Model& model, const LossSpec& spec);
/// Whether LossResult::correct means something.
bool counts_correct(const Model& model, const LossSpec& spec);

}  // namespace penstock::model
