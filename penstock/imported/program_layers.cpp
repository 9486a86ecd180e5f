#include "penstock/imported/program_layers.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "penstock/imported/frozen_weights.h"
#include "penstock/imported/own_targets.h"
#include "penstock/imported/program_layer.h"
#include "penstock/imported/stored_values.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

using graph::LayerNode;
using graph::ValueRef;
using model::ParameterSpec;
using model::Shape;

namespace {

/// A name that a layer may have.
std::string layer_name(std::string text) {
  for (char& c : text) {
    if (!graph::is_layer_name(std::string(1, c))) c = '_';
  }
  return text.substr(0, 150);
}

/// A parameter's name inside its layer: the last word of its name in PyTorch, longer where two
/// would be the same.
std::string short_name(const std::string& key, const std::vector<ParameterSpec>& taken) {
  size_t from = key.rfind('.') + 1;
  while (true) {
    std::string name = key.substr(from);
    for (char& c : name) {
      if (c == '.' || c == '-') c = '_';
    }
    const bool is_taken = std::any_of(taken.begin(), taken.end(),
                                      [&](const ParameterSpec& spec) { return spec.name == name; });
    if (!is_taken) return name;
    if (from == 0) return fmt::format("{}_{}", name, taken.size());
    from = from < 2 ? 0 : key.rfind('.', from - 2) + 1;
  }
}

class LayerMaker {
 public:
  explicit LayerMaker(const TrainableProgram& program)
      : p_(program),
        grouping_(group_steps(p_.program, p_.facts, p_.origins, *p_.aliases, p_.batch_symbol)) {}

  ProgramLayers run() {
    if (p_.frozen == model::FrozenType::Int8) packed_ = weights_of_linear_steps(p_);
    if (grouping_.groups.empty()) reasons_.push_back("it computes nothing from its inputs");
    refuse(p_.path, reasons_);
    for (size_t k = 0; k < grouping_.main.size(); ++k) {
      for (const std::string& name : p_.facts[grouping_.main[k]].reads) last_read_[name] = k;
    }
    for (const std::string& name : p_.inputs) {
      values_[name] = ValueRef::model_input(static_cast<int>(values_.size()));
      made_.input_shapes.push_back(p_.shape_of(name));
    }
    std::map<std::string, int> uses;
    for (const StepGroup& group : grouping_.groups) ++uses[module_of(group)];
    for (size_t g = 0; g < grouping_.groups.size(); ++g) {
      const StepGroup& group = grouping_.groups[g];
      make_layer(g, name_of(group, uses[module_of(group)] > 1));
    }
    const auto found = values_.find(p_.output);
    if (found == values_.end() || found->second.is_model_input())
      reasons_.push_back("its output does not depend on its inputs");
    else
      made_.output = found->second;
    refuse(p_.path, reasons_);
    return std::move(made_);
  }

 private:
  /// Of a weight's bytes; with its name where it has none.
  using Place = std::pair<std::pair<std::string, int64_t>, std::string>;

  struct KnownConstant {
    const exported::StoredTensor* stored = nullptr;
    std::shared_ptr<const StoredConstant> constant;
  };

  /// The step that a layer is named after: the first with weights, else the first.
  const exported::Node& main_node(const StepGroup& group) const {
    size_t best = grouping_.main[group.begin];
    for (size_t k = group.begin; k < group.end; ++k) {
      const size_t s = grouping_.main[k];
      const bool has_weights = std::any_of(
          p_.facts[s].reads.begin(), p_.facts[s].reads.end(),
          [&](const std::string& name) { return p_.origins.parameters.contains(name); });
      if (has_weights) return p_.program.steps[s].node;
      if (p_.facts[best].is_view && !p_.facts[s].is_view) best = s;
    }
    return p_.program.steps[best].node;
  }

  std::string module_of(const StepGroup& group) const {
    const exported::Node& node = main_node(group);
    return node.modules.empty() ? "" : node.modules.back().path;
  }

  std::string name_of(const StepGroup& group, bool several) {
    const exported::Node& node = main_node(group);
    std::string name = module_of(group);
    // No module may have a '-' in its name, nor be called forward.
    if (name.empty() || several) {
      name = fmt::format("{}-{}", name.empty() ? "forward" : name,
                         node.name.empty() ? short_target(node.target) : node.name);
    }
    name = layer_name(name);
    std::string unique = name;
    for (int k = 2; !names_.insert(unique).second; ++k) unique = fmt::format("{}-{}", name, k);
    return unique;
  }

  /// Values are read when they are needed: a worker reads those of its own layers.
  model::Init values_of(const std::string& name) const {
    if (const std::optional<double> bound = p_.stored(name).begins_within)
      return *bound == 0 ? model::Init::constant(0) : model::Init::uniform(*bound);
    return model::Init::given(
        [path = p_.path, tensor = p_.stored(name), key = p_.role_of.at(name)->name] {
          at::Tensor values = read_values(path, tensor).to(at::kFloat).contiguous();
          if (!tensor.is_parameter || at::isfinite(values).all().item<bool>()) return values;
          throw ConfigError(fmt::format("{}: the stored '{}' has numbers that are not finite",
                                        printable(path), printable(key)));
        });
  }

  ParameterSpec spec_of(const std::string& name, const std::vector<ParameterSpec>& taken) const {
    const std::string& key = p_.role_of.at(name)->name;
    Shape shape;
    for (const exported::SymbolicInt& size : p_.stored(name).meta.sizes)
      shape.push_back(size.value);
    return {short_name(key, taken), std::move(shape), values_of(name), key,
            torch_type(p_.stored(name).meta.type)};
  }

  void make_layer(size_t g, const std::string& name) {
    const StepGroup& group = grouping_.groups[g];
    LayerParts parts;
    parts.kind = short_target(main_node(group).target);
    std::vector<size_t> steps(grouping_.main.begin() + static_cast<std::ptrdiff_t>(group.begin),
                              grouping_.main.begin() + static_cast<std::ptrdiff_t>(group.end));
    parts.steps = with_repeated_steps(steps);
    add_sources(parts);
    LayerNode node{.name = name, .kind = parts.kind, .inputs = {}, .num_outputs = 0};
    for (const std::string& input : parts.inputs) node.inputs.push_back(values_.at(input));
    const auto first =
        std::find_if(parts.inputs.begin(), parts.inputs.end(),
                     [&](const std::string& input) { return p_.origins.inputs.contains(input); });
    if (first != parts.inputs.end()) {
      parts.user_input = static_cast<size_t>(first - parts.inputs.begin());
      parts.batch = p_.batch_range();
    }
    note_changes(parts);
    find_symbols(parts);

    for (const size_t s : steps) {
      for (const std::string& output : p_.facts[s].outputs) {
        if (output.empty() || !is_read_after(output, group.end)) continue;
        values_[output] = {LayerId{static_cast<int>(g)}, node.num_outputs++};
        parts.outputs.push_back(output);
        parts.output_shapes.push_back(p_.shape_of(output));
      }
    }
    for (const std::string& input : parts.inputs) parts.input_shapes.push_back(p_.shape_of(input));
    parts.ranges = p_.source.ranges;
    parts.hints = p_.hints;
    parts.batch_symbol = p_.batch_symbol;
    parts.shares_output = p_.returns_loss && parts.outputs == std::vector<std::string>{p_.output};
    if (std::find(parts.outputs.begin(), parts.outputs.end(), p_.output) != parts.outputs.end())
      parts.target_count = target_count();
    if (g == 0) parts.note = note();
    tie(parts, LayerId{static_cast<int>(g)}, node);
    parts.weight_gradients_can_wait = can_wait(steps);
    parts.is_random =
        std::any_of(steps.begin(), steps.end(), [&](size_t s) { return p_.facts[s].is_random; });
    for (const size_t s : steps) {
      parts.work.emplace_back(p_.program.steps[s], p_.facts[s], p_.program, p_.origins.parameters,
                              p_.hints, p_.batch_symbol);
    }
    made_.nodes.push_back(std::move(node));
    made_.layers.push_back(std::make_shared<ProgramLayer>(std::move(parts), p_.program));
  }

  /// note_of() the model.
  std::string note() const {
    std::string text;
    const auto [most, all] = operators_with_weights();
    if (most > 1 && 2 * most > all && !grouping_.batch_elsewhere.empty()) {
      text = fmt::format(
          "{} of {} operators with weights are one layer, which no two workers can share: between "
          "them the batch is not the first dimension ('{}' is {}). A model with the batch first, "
          "as [batch, sequence, features], can be cut",
          most, all, printable(grouping_.batch_elsewhere), sizes_text(grouping_.batch_elsewhere));
    }
    std::map<exported::ScalarType, int> narrow;
    for (const std::string& name : p_.origins.parameters) {
      const exported::ScalarType type = p_.meta_of(name).type;
      if (type != exported::ScalarType::Float) ++narrow[type];
    }
    for (const auto& [type, count] : narrow) {
      text += fmt::format(
          "{}{} trained weights are {} in the file: they are kept and stepped as float32, and read "
          "as {}",
          text.empty() ? "" : "; ", count, exported::to_string(type), exported::to_string(type));
    }
    for (const std::string& name : p_.inputs) {
      const std::vector<exported::SymbolicInt>& sizes = p_.meta_of(name).sizes;
      for (size_t d = 1; d < sizes.size(); ++d) {
        if (sizes[d].is_number()) continue;
        text += fmt::format(
            "{}dimension {} of the input '{}' may have any size; plans are made for {}, that of "
            "the "
            "example",
            text.empty() ? "" : "; ", d, printable(name), sizes[d].value);
      }
    }
    return text;
  }

  /// In the layer that has most of them, and in all.
  std::pair<int, int> operators_with_weights() const {
    int most = 0;
    int all = 0;
    for (const StepGroup& group : grouping_.groups) {
      int here = 0;
      for (size_t k = group.begin; k < group.end; ++k) {
        const std::vector<std::string>& reads = p_.facts[grouping_.main[k]].reads;
        here += std::any_of(reads.begin(), reads.end(), [&](const std::string& name) {
          return p_.origins.parameters.contains(name);
        });
      }
      most = std::max(most, here);
      all += here;
    }
    return {most, all};
  }

  /// "5 x batch x 8".
  std::string sizes_text(const std::string& name) const {
    std::string text;
    for (const exported::SymbolicInt& size : p_.meta_of(name).sizes) {
      const bool is_batch = SizeExpression(size).multiple_of(p_.batch_symbol) == 1;
      text += (text.empty() ? "" : " x ") + (is_batch ? "batch" : fmt::to_string(size.value));
    }
    return text;
  }

  /// Of the program's own loss: the steps that make its targets run alone.
  model::TargetCount target_count() {
    const auto own = own_targets(p_, grouping_);
    if (!own) return {};
    LayerParts parts;
    parts.kind = "targets";
    parts.steps = with_repeated_steps({own->loss});
    std::erase(parts.steps, own->loss);
    const std::set<std::string> made = add_sources(parts);
    if (!made.contains(own->name)) add_source(own->name, parts);
    note_changes(parts);
    const size_t before = reasons_.size();
    find_symbols(parts);
    if (reasons_.size() > before) {  // a size that these inputs do not tell
      reasons_.resize(before);
      return {};
    }
    parts.outputs = {own->name};
    for (const std::string& input : parts.inputs) parts.input_shapes.push_back(p_.shape_of(input));
    parts.output_shapes = {p_.shape_of(own->name)};
    std::vector<size_t> places;
    for (const std::string& input : parts.inputs)
      places.push_back(static_cast<size_t>(values_.at(input).output));
    const auto layer = std::make_shared<const ProgramLayer>(std::move(parts), p_.program);
    return [layer, places, own = *own](const model::Tensors& inputs) {
      const at::NoGradGuard no_grad;
      model::Tensors read;
      for (const size_t place : places) read.push_back(inputs.at(place));
      const at::Tensor targets = layer->forward({}, {}, read, {.training = false}).front();
      return std::max(own.least, targets.to(at::kLong).ne(own.ignored).sum().item<int64_t>());
    };
  }

  /// These steps and the repeated ones that they need, in the program's order: a repeated step may
  /// change what an earlier one has made.
  std::vector<size_t> with_repeated_steps(const std::vector<size_t>& steps) const {
    std::set<std::string> wanted;
    std::set<std::string> changing;  // roots of what is wanted
    const auto want = [&](size_t s) {
      for (const std::string& name : p_.facts[s].reads) {
        wanted.insert(name);
        if (p_.aliases->is_changed(name)) changing.insert(p_.aliases->root(name));
      }
    };
    for (const size_t s : steps) want(s);
    std::vector<size_t> result = steps;
    const std::vector<size_t>& repeated = grouping_.repeated_steps;
    for (size_t i = repeated.size(); i-- > 0;) {
      if (repeated[i] > steps.back()) continue;
      const StepFacts& facts = p_.facts[repeated[i]];
      const bool is_wanted =
          std::any_of(facts.outputs.begin(), facts.outputs.end(),
                      [&](const std::string& name) { return wanted.contains(name); }) ||
          std::any_of(facts.mutated.begin(), facts.mutated.end(), [&](const std::string& name) {
            return changing.contains(p_.aliases->root(name));
          });
      if (!is_wanted) continue;
      want(repeated[i]);
      result.push_back(repeated[i]);
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  /// Of all steps; returns what they make.
  std::set<std::string> add_sources(LayerParts& parts) {
    std::set<std::string> made;
    for (const size_t s : parts.steps) {
      for (const std::string& read : p_.facts[s].reads) {
        if (!made.contains(read)) add_source(read, parts);
      }
      made.insert(p_.facts[s].outputs.begin(), p_.facts[s].outputs.end());
    }
    return made;
  }

  /// One for all layers that read it, under any of its names.
  std::shared_ptr<const StoredConstant> constant(const std::string& name) {
    const exported::StoredTensor& stored = p_.stored(name);
    std::vector<KnownConstant>& known =
        constants_[{stored.place(), stored.num_bytes > 0 ? "" : name}];
    for (const KnownConstant& one : known) {
      if (one.stored->meta == stored.meta) return one.constant;
    }
    const auto form =
        packed_.contains(name) ? StoredConstant::Form::Int8 : StoredConstant::Form::AsStored;
    known.push_back({&stored, std::make_shared<StoredConstant>(p_.path, stored, form)});
    return known.back().constant;
  }

  void add_source(const std::string& name, LayerParts& parts) {
    const auto once = [&](std::vector<std::string>& names) {
      if (std::find(names.begin(), names.end(), name) != names.end()) return false;
      names.push_back(name);
      return true;
    };
    if (p_.origins.parameters.contains(name)) {
      if (once(parts.parameters))
        parts.parameter_specs.push_back(spec_of(name, parts.parameter_specs));
    } else if (p_.origins.buffers.contains(name)) {
      std::vector<ParameterSpec> taken = parts.parameter_specs;
      taken.insert(taken.end(), parts.buffer_specs.begin(), parts.buffer_specs.end());
      if (once(parts.buffers)) parts.buffer_specs.push_back(spec_of(name, taken));
    } else if (p_.origins.constants.contains(name)) {
      if (once(parts.constants)) parts.constant_values.push_back(constant(name));
      if (packed_.contains(name)) parts.packed.insert(name);
    } else if (values_.contains(name)) {
      once(parts.inputs);
    } else {
      throw ConfigError(
          fmt::format("{}: '{}' is read before it is made", printable(p_.path), printable(name)));
    }
  }

  void note_changes(LayerParts& parts) const {
    for (const std::string& input : parts.inputs) {
      parts.copied.push_back(std::any_of(parts.steps.begin(), parts.steps.end(), [&](size_t s) {
        return p_.aliases->changes(p_.facts[s], input);
      }));
    }
  }

  void find_symbols(LayerParts& parts) {
    std::set<std::string> wanted;
    for (const size_t s : parts.steps) {
      for (const SizeExpression& size : p_.facts[s].sizes)
        wanted.insert(size.symbols().begin(), size.symbols().end());
    }
    for (const std::string& symbol : wanted) {
      if (const auto source = source_of(symbol, parts))
        parts.symbols.push_back(*source);
      else
        reasons_.push_back(
            fmt::format("{}: the size {} cannot be told from the values that it reads",
                        place_of(p_.program.steps[parts.steps.back()].node), printable(symbol)));
    }
  }

  std::optional<SymbolSource> source_of(const std::string& symbol, const LayerParts& parts) const {
    for (size_t i = 0; i < parts.inputs.size(); ++i) {
      const exported::TensorMeta& meta = p_.meta_of(parts.inputs[i]);
      for (size_t d = 0; d < meta.sizes.size(); ++d) {
        if (const int64_t factor = SizeExpression(meta.sizes[d]).multiple_of(symbol); factor > 0)
          return SymbolSource{symbol, i, static_cast<int64_t>(d), factor};
      }
    }
    return std::nullopt;
  }

  /// Whether it is the output, or a main step from `end` on reads it.
  bool is_read_after(const std::string& name, size_t end) const {
    if (name == p_.output) return true;
    const auto found = last_read_.find(name);
    return found != last_read_.end() && found->second >= end;
  }

  /// Two names of the same bytes are one weight, and so are two uses of one name.
  void tie(const LayerParts& parts, LayerId layer, LayerNode& node) {
    for (size_t i = 0; i < parts.parameters.size(); ++i) {
      const exported::StoredTensor& tensor = p_.stored(parts.parameters[i]);
      const Place place = {tensor.place(),
                           tensor.num_bytes > 0 ? "" : p_.role_of.at(parts.parameters[i])->name};
      const graph::ParameterRef here{layer, static_cast<int>(i)};
      const auto [owner, is_new] = owners_.emplace(place, here);
      if (is_new) continue;
      if (owner->second.layer == layer) {
        reasons_.push_back(fmt::format("layer '{}' reads one weight under two names ('{}')",
                                       node.name, printable(parts.parameter_specs[i].key)));
        continue;
      }
      node.ties.push_back({static_cast<int>(i), owner->second});
    }
  }

  /// Whether only matrix products and convolutions have weights here.
  bool can_wait(const std::vector<size_t>& steps) const {
    static const std::set<std::string> kProducts = {"linear", "conv1d", "conv2d", "conv3d",
                                                    "addmm",  "mm",     "matmul", "convolution"};
    std::set<std::string> seen;
    for (const size_t s : steps) {
      for (const std::string& name : p_.facts[s].reads) {
        if (!p_.origins.parameters.contains(name)) continue;
        if (!kProducts.contains(short_target(p_.program.steps[s].node.target))) return false;
        if (!seen.insert(name).second) return false;
      }
    }
    return true;
  }

  const TrainableProgram& p_;
  Reasons reasons_;
  Grouping grouping_;
  std::map<std::string, size_t> last_read_;  ///< by which main step
  std::map<std::string, ValueRef> values_;
  std::set<std::string> packed_;  ///< frozen weights that are held in 8 bits
  std::map<Place, std::vector<KnownConstant>> constants_;  ///< other views of the same bytes
  std::map<Place, graph::ParameterRef> owners_;
  std::set<std::string> names_;
  ProgramLayers made_;
};

}  // namespace

ProgramLayers make_layers(const TrainableProgram& program) { return LayerMaker(program).run(); }

}  // namespace penstock::imported
