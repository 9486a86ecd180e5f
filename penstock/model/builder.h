// Builds a Model layer by layer; each call infers and checks shapes.
//
//   ModelBuilder net("tiny");
//   Value x = net.input({1, 28, 28});
//   x = net.relu(net.conv2d(x, {.channels = 16, .kernel = 3, .padding = 1}));
//   Value skip = x;
//   x = net.conv2d(x, {.channels = 16, .kernel = 3, .padding = 1, .name = "second"});
//   x = net.relu(net.add(x, skip));
//   x = net.linear(net.flatten(net.max_pool2d(x, {.kernel = 2})), {.features = 10});
//   Model model = net.build(x);
//
// Every call checks shapes and throws ConfigError naming the layer. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/layers/options.h"
#include "penstock/model/model.h"

namespace penstock::model {

/// A tensor of the model under construction; valid only for the builder that made it.
struct Value {
  graph::ValueRef ref;
  Shape shape;           ///< one sample
  uint64_t builder = 0;  ///< which builder made it
};

class ModelBuilder {
 public:
  explicit ModelBuilder(std::string name);

  /// A model input; samples of this shape.
  Value input(Shape shape);
  /// The same, found by a name of its own.
  Value features(const std::string& name, Shape shape);
  /// One of int64 numbers from 0 to values - 1, which layers look up rows of tables with. `name` is
  /// that of the input, which data sets find it by.
  Value tokens(const std::string& name, Shape shape, int64_t values);
  Value conv2d(const Value& x, const Conv2dOptions& options);
  Value linear(const Value& x, const LinearOptions& options);
  Value batch_norm2d(const Value& x, const BatchNormOptions& options = {});
  Value relu(const Value& x, const std::string& name = "");
  Value tanh(const Value& x, const std::string& name = "");
  Value max_pool2d(const Value& x, const Pool2dOptions& options);
  Value avg_pool2d(const Value& x, const Pool2dOptions& options);
  Value adaptive_avg_pool2d(const Value& x, int64_t size, const std::string& name = "");
  Value flatten(const Value& x, const std::string& name = "");
  Value dropout(const Value& x, double probability, const std::string& name = "");
  Value add(const Value& a, const Value& b, const std::string& name = "");
  /// Along the channel dimension (dimension 0 of a sample).
  Value concat(const std::vector<Value>& parts, const std::string& name = "");
  /// Equal parts along the channel dimension: a layer with several outputs.
  std::vector<Value> split(const Value& x, int64_t parts, const std::string& name = "");
  /// The model's output, for classifiers that learn from more than their answer: logits [classes]
  /// of the answer, and others whose loss counts with a weight beside the answer's
  /// (Model::auxiliary_weights). In evaluation there is the answer alone.
  Value with_auxiliary(const Value& answer, const std::vector<std::pair<Value, double>>& others,
                       const std::string& name = "");
  /// Makes a parameter of `layer` the same weight as that of `owner`, an earlier layer: one weight,
  /// used twice, trained on the sum of the gradients. The shapes must be equal. `layer`'s own
  /// initialisation is ignored. Throws ConfigError for names that do not exist, shapes that differ,
  /// a parameter that is already tied or that others are tied to.
  ///
  ///   net.tie("decoder", "weight", "encoder", "weight");
  void tie(const std::string& layer, const std::string& parameter, const std::string& owner,
           const std::string& owner_parameter);
  /// Adds a user's own layer; returns its outputs.
  std::vector<Value> apply(std::shared_ptr<const Layer> layer, const std::vector<Value>& inputs,
                           const std::string& name = "");

  /// Throws ConfigError naming the layer for shapes that do not fit, duplicate names, values of
  /// another builder, no outputs.
  Model build(const std::vector<Value>& outputs);
  Model build(const Value& output) { return build(std::vector<Value>{output}); }

 protected:
  using Maker = std::function<std::shared_ptr<const Layer>()>;
  /// The output of the layer that `maker` makes; its errors get the layer's name.
  Value apply_made(const char* kind, const std::string& name, const std::vector<Value>& inputs,
                   const Maker& maker);

 private:
  std::vector<Value> place(std::shared_ptr<const Layer> layer, const std::vector<Value>& inputs,
                           const std::string& name);
  std::string unused_name(const std::string& kind);
  graph::ParameterRef find_parameter(const std::string& layer, const std::string& parameter) const;
  void check_owner(const Value& value, const std::string& user) const;

  std::string name_;
  uint64_t id_;
  std::vector<graph::LayerNode> nodes_;
  std::vector<std::shared_ptr<const Layer>> layers_;
  std::vector<Shape> input_shapes_;
  std::map<size_t, InputSpec> named_inputs_;
  std::map<std::string, LayerId> names_;
  std::set<graph::ParameterRef> lent_;  ///< parameters that others are tied to
  std::map<std::string, int> count_of_kind_;
  bool has_own_layer_ = false;      ///< a user's
  std::optional<Value> auxiliary_;  ///< what with_auxiliary() returned
  std::vector<double> auxiliary_weights_;
};

}  // namespace penstock::model
