#include "penstock/imported/saved_by_steps.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "penstock/util/numbers/arithmetic.h"

namespace penstock::imported {

namespace {

enum class Keeps : uint8_t {
  Nothing,
  Inputs,  ///< that are fractions
  Output,
  Factors,  ///< of two: each where the other one needs a gradient
  Mask,     ///< a byte per number that it makes
  Places,   ///< inputs, and a whole number of 64 bits per number that it makes
  Gates,    ///< of LSTMs
  All,      ///< what it reads and makes
};

/// Per number that one makes, measured: its four gates and states, of each place, several times.
constexpr int64_t kBytesOfGates = 64;

/// As derivatives.yaml of PyTorch 2.13 has them.
const std::map<std::string_view, Keeps>& table() {
  static const std::map<std::string_view, Keeps> kTable = [] {
    std::map<std::string_view, Keeps> rows;
    const auto add = [&](Keeps keeps, std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) rows.emplace(name, keeps);
    };
    add(Keeps::Nothing, {"add",
                         "sub",
                         "rsub",
                         "neg",
                         "cat",
                         "stack",
                         "sum",
                         "mean",
                         "repeat",
                         "repeat_interleave",
                         "expand",
                         "pad",
                         "to",
                         "_to_copy",
                         "clone",
                         "contiguous",
                         "index",
                         "index_select",
                         "where",
                         "masked_fill",
                         "flip",
                         "roll",
                         "cumsum",
                         "triu",
                         "tril",
                         "type_as",
                         "embedding",
                         "constant_pad_nd",
                         "copy",
                         "detach",
                         "arange",
                         "zeros",
                         "ones",
                         "full",
                         "zeros_like",
                         "ones_like",
                         "full_like",
                         "upsample_nearest2d",
                         "adaptive_avg_pool2d",
                         "avg_pool2d",
                         "reshape",
                         "flatten",
                         "eq",
                         "ne",
                         "lt",
                         "le",
                         "gt",
                         "ge",
                         "logical_not",
                         "argmax"});
    add(Keeps::Output, {"relu", "tanh", "sigmoid", "exp", "sqrt", "rsqrt", "reciprocal", "softmax",
                        "log_softmax", "_softmax", "_log_softmax"});
    add(Keeps::Inputs, {"gelu",       "silu",      "mish",        "softplus",
                        "leaky_relu", "hardswish", "hardsigmoid", "hardtanh",
                        "relu6",      "elu",       "pow",         "square",
                        "abs",        "log",       "log1p",       "sin",
                        "cos",        "erf",       "clamp",       "layer_norm",
                        "group_norm", "rms_norm",  "batch_norm",  "instance_norm",
                        "var",        "std",       "norm",        "linalg_vector_norm"});
    add(Keeps::Factors,
        {"mul", "div", "matmul", "mm", "bmm", "linear", "addmm", "baddbmm", "conv1d", "conv2d",
         "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"});
    add(Keeps::Places, {"max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices"});
    add(Keeps::Gates, {"lstm", "gru"});
    add(Keeps::Mask, {"dropout", "feature_dropout", "native_dropout"});
    return rows;
  }();
  return kTable;
}

Keeps kept_by(const StepWork& step) {
  const auto row = table().find(step.name());
  return row == table().end() ? Keeps::All : row->second;
}

class Saved {
 public:
  Saved(const LayerValues& values, int64_t batch) : batch_(batch) {
    needs_.insert(values.inputs.begin(), values.inputs.end());
    needs_.insert(values.parameters.begin(), values.parameters.end());
    held_.insert(values.constants.begin(), values.constants.end());
    held_.insert(values.parameters.begin(), values.parameters.end());
  }

  void run(const StepWork& step) {
    if (step.outputs().empty()) return;
    const bool recorded =
        std::any_of(step.reads().begin(), step.reads().end(),
                    [&](const StepWork::Operand& read) { return needs_gradient(read); });
    for (const StepWork::Operand& output : step.outputs()) {
      if (recorded && output.is_fraction) needs_.insert(output.name);
      if (step.is_view() && !step.reads().empty())
        behind_[output.name] = behind(step.reads().front().name);
    }
    if (recorded && !step.is_view()) keep(step);
  }

  const std::map<std::string, int64_t>& bytes() const { return bytes_; }
  int64_t inside() const { return inside_; }
  const std::string& behind(const std::string& name) const {
    const auto found = behind_.find(name);
    return found == behind_.end() ? name : found->second;
  }

 private:
  bool needs_gradient(const StepWork::Operand& operand) const {
    return operand.is_fraction && needs_.contains(operand.name);
  }

  void save(const StepWork& step, const StepWork::Operand& operand) {
    const std::string& name = behind(operand.name);
    if (held_.contains(name)) return;  // is there anyway
    int64_t& bytes = bytes_[name];
    bytes = std::max(bytes, step.bytes_of(operand, batch_));
  }

  void keep(const StepWork& step) {
    const Keeps keeps = kept_by(step);
    if (keeps == Keeps::Mask) add_per_number(step, 1);
    if (keeps == Keeps::Places) add_per_number(step, sizeof(int64_t));
    if (keeps == Keeps::Gates) add_per_number(step, kBytesOfGates);
    if (keeps == Keeps::Factors) keep_factors(step);
    if (keeps != Keeps::Factors && keeps != Keeps::Output && keeps != Keeps::Mask &&
        keeps != Keeps::Nothing) {
      for (const StepWork::Operand& read : step.reads())
        if (read.is_fraction) save(step, read);
    }
    if (keeps == Keeps::Output || keeps == Keeps::All)
      for (const StepWork::Operand& output : step.outputs()) save(step, output);
  }

  /// Bytes for each number of its first output.
  void add_per_number(const StepWork& step, int64_t bytes) {
    const StepWork::Operand& made = step.outputs().front();
    const int64_t numbers =
        step.bytes_of(made, batch_) / std::max<int64_t>(1, made.bytes_per_number);
    inside_ = saturating_add(inside_, saturating_mul(numbers, bytes));
  }

  /// The last two of what a product reads; one that adds reads what is added first.
  void keep_factors(const StepWork& step) {
    const size_t first = step.name() == "addmm" || step.name() == "baddbmm" ? 1 : 0;
    const std::vector<StepWork::Operand>& reads = step.reads();
    if (reads.size() < first + 2) {
      if (step.tensors() == reads.size()) return;                    // times a number
      for (const StepWork::Operand& read : reads) save(step, read);  // a square
      return;
    }
    if (needs_gradient(reads[first + 1])) save(step, reads[first]);
    if (needs_gradient(reads[first])) save(step, reads[first + 1]);
  }

  int64_t batch_;
  std::set<std::string> held_;                 ///< by the model
  std::set<std::string> needs_;                ///< gradients, if they are fractions
  std::map<std::string, std::string> behind_;  ///< of views
  std::map<std::string, int64_t> bytes_;
  int64_t inside_ = 0;
};

}  // namespace

void set_saved(const std::vector<StepWork>& steps, const LayerValues& values, int64_t batch,
               profile::LayerWork& work) {
  Saved saved(values, batch);
  for (const StepWork& step : steps) saved.run(step);
  const auto is_saved = [&](const std::string& name) {
    return saved.bytes().contains(saved.behind(name));
  };
  work.saved_inputs.clear();
  work.saved_outputs.clear();
  std::set<std::string> outside;
  for (const std::string& input : values.inputs) {
    work.saved_inputs.push_back(is_saved(input));
    outside.insert(input);
  }
  for (const std::string& output : values.outputs) {
    const bool is_own = outside.insert(saved.behind(output)).second;
    work.saved_outputs.push_back(is_own && is_saved(output));
  }
  work.stash_bytes = saved.inside();
  for (const auto& [name, bytes] : saved.bytes())
    if (!outside.contains(name)) work.stash_bytes = saturating_add(work.stash_bytes, bytes);
  for (const StepWork& step : steps) {
    for (const StepWork::Operand& output : step.outputs()) {
      if (std::find(values.outputs.begin(), values.outputs.end(), output.name) !=
          values.outputs.end())
        work.stash_bytes = saturating_add(work.stash_bytes, step.bytes_of(output, batch));
    }
  }
}

}  // namespace penstock::imported
