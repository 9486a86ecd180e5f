// What each layer of a model costs, measured on one device for one batch size: data only. Measuring
// is model/profiler.h.
//
//   Profile profile = load_profile("vgg16.profile.json");       // our own format
//   // PipeDream's graph.txt, recognised by its content
//   Profile published = load_profile("vgg16.graph.txt");
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/profile/lengths.h"
#include "penstock/profile/saved_values.h"
#include "penstock/util/numbers/precision.h"

namespace penstock::profile {

/// What is otherwise where the members of a team share out the places of sequences, too (sequence
/// parallelism).
struct SequenceShare {
  double work = 0;   ///< part of the layer's work that is divided
  double stash = 0;  ///< part of stash_bytes that is divided
  /// How many gradients of whole weights the team sums for one micro-batch, and their bytes on each
  /// member, beside the sums of TensorShare.
  int64_t sums = 0;
  int64_t sum_bytes = 0;

  bool operator==(const SequenceShare&) const = default;
};

/// What of a layer a team of workers can share out (tensor parallelism); the rest every member of
/// the team has and does whole.
struct TensorShare {
  double spread = 0;        ///< part of the layer's work and trained weights that is divided
  double spread_stash = 0;  ///< part of stash_bytes that is divided
  /// What it is divided into, such as heads: of a team of t, the member with most has ceil(units /
  /// t) of them. 0: any number of parts.
  int64_t units = 0;
  /// How many tensors the team sums in the forward pass of one micro-batch, and in the backward
  /// pass, and what each member holds of them: whole ones, which are added.
  int64_t sums = 0;
  int64_t sum_bytes = 0;
  int64_t back_sums = 0;
  int64_t back_sum_bytes = 0;
  std::optional<SequenceShare> sequence = {};  ///< nothing: not known

  bool operator==(const TensorShare&) const = default;
};

/// A weight of two or more dimensions: the first one against the rest.
struct WeightMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  bool operator==(const WeightMatrix&) const = default;
};

/// Costs of one layer for one micro-batch of `Profile::batch_size` samples.
struct LayerCost {
  int64_t forward_ns = 0;   ///< mean of the samples
  int64_t backward_ns = 0;  ///< for weights and inputs together
  /// The part of backward_ns for only the weights (action W); 0 in all layers when not measured, 0
  /// in a layer that computes the gradients of weights and inputs together (normalisation).
  int64_t backward_weight_ns = 0;
  /// Time to add the gradients of these weights to those of earlier micro-batches, 0 when not
  /// measured.
  int64_t accumulate_ns = 0;
  /// Time of one optimiser step on this layer's weights, 0 when not measured.
  int64_t step_ns = 0;
  int64_t forward_spread_ns = 0;  ///< interquartile range of the samples
  int64_t backward_spread_ns = 0;
  std::vector<int64_t> output_bytes;  ///< one per output; gradients have the same sizes
  /// All weights that the layer reads, including those that it shares with others
  /// (graph::WeightTie).
  int64_t weight_bytes = 0;
  /// What operations save for their gradients (saved_values.h), per micro-batch.
  int64_t stash_bytes = 0;

  /// Per entry of LayerNode::ties: the part of weight_bytes that belongs to another layer.
  std::vector<int64_t> tied_bytes = {};
  /// The part of forward_ns and backward_ns that is the loss after this layer, which belongs to the
  /// layer that makes the model's output; 0 in the others and when not measured. Whoever adds up
  /// times has it already.
  int64_t loss_ns = 0;
  /// The part of weight_bytes, which count float32, whose versions are computed with in 16 bits:
  /// half of these bytes per version, and the float32 weights once.
  int64_t short_weight_bytes = 0;
  /// What a worker that has the layer holds once, however many versions of weights: frozen weights,
  /// constants, buffers.
  int64_t constant_bytes = 0;
  /// What the layer's backward pass needs at its most, beside what is saved: gradients of its
  /// outputs, inputs and weights, and what operations make in between. 0: not known.
  int64_t working_bytes = 0;
  /// What of its inputs and outputs is in stash_bytes, its own or another layer's. Nothing: not
  /// known.
  LayerSaves saves = {};
  /// Outputs that do not lie in memory one number after the other, such as transposed ones.
  std::vector<int> strided_outputs = {};
  TensorShare team = {};  ///< nothing is spread where it is not known
  /// Weights of two or more dimensions, in their order; empty where they are not known.
  std::vector<WeightMatrix> matrices = {};

  bool operator==(const LayerCost&) const = default;
};

/// How long whole passes of a measured model took (forward, backward and step of all layers, as in
/// the costs), and how well their mean is known.
struct PassTimes {
  int64_t mean_ns = 0;  ///< 0: not measured
  double spread = 0;    ///< standard deviation of single passes, as a share of the mean
  /// Standard error of the mean, as a share of it, from the means of stretches of the measurement:
  /// a machine's speed drifts, so that neighbouring passes are alike.
  double error = 0;
  int stretches = 0;

  bool operator==(const PassTimes&) const = default;
};

/// Profile::source of PipeDream's graph.txt, which has no memory: what its layers keep is guessed.
inline constexpr std::string_view kGraphFile = "pipedream graph.txt";

struct Profile {
  std::string model;
  std::string device;  ///< e.g. "AMD EPYC, 1 thread"
  std::string source;  ///< "measured", kGraphFile, "analytic"
  /// Samples per micro-batch; 0 when unknown (published profiles do not say).
  int64_t batch_size = 0;
  int samples = 0;                           ///< timed repetitions per layer
  Precision precision = Precision::Float32;  ///< in which it was measured
  bool device_graphs = false;                ///< of passes that were graphs of the GPU
  /// How fast this device sums gradients in its memory, 0 when not measured.
  int64_t copy_bandwidth_bytes_per_s = 0;
  PassTimes pass = {};
  /// From one thread's giving a tensor away until another that waits for it goes on; 0 when not
  /// measured.
  int64_t hand_over_ns = 0;
  /// The lengths that were measured: times and sizes of outputs are means over them, memory is that
  /// of the longest. Empty: every sample has the sizes of the model's inputs.
  std::vector<LengthGroup> lengths = {};
  graph::ModelGraph graph;
  std::vector<LayerCost> costs;  ///< one per layer of `graph`, in its order

  bool operator==(const Profile&) const = default;
};

/// Sum of forward and backward of all layers, saturating.
int64_t total_compute_ns(const Profile& profile);
/// Bytes of the weights of these layers; a shared weight is counted once, as in the table of a
/// profile. A worker keeps a copy for every layer that reads the weight (docs/weights.md), so it
/// needs the sum of weight_bytes. Saturates. O(layers * log ties).
int64_t weight_bytes_of(const Profile& profile, const std::vector<LayerId>& layers);
/// Samples per micro-batch for throughput: batch_size, or 1 when it is unknown.
int64_t samples_per_micro_batch(const Profile& profile);

/// Throws ConfigError when costs and graph disagree, a time or size is negative, backward_weight_ns
/// exceeds backward_ns, tied weights exceed the layer's, TensorShare has no shares or bytes without
/// sums, or there is no layer.
void validate(const Profile& profile);

/// Throws like validate(), so that every written profile can be read.
std::string to_json(const Profile& profile);
/// Throws ParseError naming place and key. Accepts documents of this and older versions
/// (docs/formats.md).
Profile parse_profile(std::string_view json, std::string_view place);

/// PipeDream's `graph.txt`: "id -- description -- forward_compute_time=ms,
/// backward_compute_time=ms, activation_size=bytes or [a; b; c], parameter_size=bytes" per node and
/// "\tid -- id" per edge. Nodes whose description starts with "Input" become model inputs (their
/// time is data loading). An edge carries all outputs of its source. Throws ParseError with the
/// line.
Profile parse_pipedream_graph(std::string_view text, std::string_view place);

/// Reads either format, recognised by content.
Profile load_profile(const std::filesystem::path& path);

}  // namespace penstock::profile
