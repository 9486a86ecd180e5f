#include "penstock/imported/import_model.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "penstock/imported/alias_sets.h"
#include "penstock/imported/program_layer.h"
#include "penstock/imported/step_groups.h"
#include "penstock/imported/stored_values.h"
#include "penstock/util/error.h"
#include "penstock/util/printable.h"

namespace penstock::imported {

using exported::InputRole;
using exported::TensorArgument;
using graph::LayerNode;
using graph::ValueRef;
using model::ParameterSpec;
using model::Shape;

namespace {

constexpr size_t kMaxReasons = 20;

[[noreturn]] void refuse(const std::string& path, const Reasons& reasons) {
  std::string text = fmt::format("{} cannot be trained here:", printable(path));
  for (size_t i = 0; i < reasons.size() && i < kMaxReasons; ++i) text += "\n  " + reasons[i];
  if (reasons.size() > kMaxReasons)
    text += fmt::format("\n  and {} more", reasons.size() - kMaxReasons);
  throw ConfigError(text);
}

/// "torch.ops.aten.conv2d.default" -> "conv2d".
std::string short_target(const std::string& target) {
  const size_t last = target.rfind('.');
  const size_t before = target.rfind('.', last - 1);
  std::string name = target.substr(before + 1, last - before - 1);
  while (name.size() > 1 && name.back() == '_') name.pop_back();
  return name;
}

/// A name that a layer may have.
std::string layer_name(std::string text) {
  for (char& c : text) {
    if (!graph::is_layer_name(std::string(1, c))) c = '_';
  }
  return text.substr(0, 150);
}

class Importer {
 public:
  explicit Importer(const std::string& path)
      : path_(path), source_(exported::read_program(path)), program_(flatten(source_, reasons_)) {}

  model::Model run() {
    std::vector<StepFacts> facts;
    for (const Step& step : program_.steps) {
      if (auto found = facts_of(step, program_, reasons_)) facts.push_back(std::move(*found));
    }
    if (!reasons_.empty()) refuse(path_, reasons_);
    facts_ = std::move(facts);
    aliases_.emplace(facts_);
    find_origins();
    find_batch();
    find_hints();
    choose_output();
    if (!reasons_.empty()) refuse(path_, reasons_);
    grouping_ = group_steps(program_, facts_, origins_, *aliases_, batch_symbol_);
    if (grouping_.groups.empty()) reasons_.push_back("it computes nothing from its inputs");
    if (!reasons_.empty()) refuse(path_, reasons_);
    make_layers();
    if (!reasons_.empty()) refuse(path_, reasons_);
    const int num_inputs = static_cast<int>(inputs_.size());
    model::Model model(std::filesystem::path(path_).stem().string(),
                       graph::ModelGraph::build(num_inputs, std::move(nodes_), {output_value_}),
                       std::move(layers_), std::move(input_shapes_));
    model.set_extra_state(extra_state(model));
    model.set_inputs(input_specs(model));
    if (returns_loss_) model.set_returns_loss();
    return model;
  }

 private:
  std::vector<model::InputSpec> input_specs(const model::Model& model) const {
    const std::map<std::string, int64_t> rows = table_rows();
    std::vector<model::InputSpec> specs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto found = rows.find(inputs_[i]);
      specs.push_back({.name = inputs_[i],
                       .shape = model.input_shapes()[i],
                       .type = torch_type(meta_of(inputs_[i]).type),
                       .values = found == rows.end() ? 0 : found->second});
    }
    return specs;
  }

  /// Per input of whole numbers that looks up rows of a table: the rows of the smallest one.
  std::map<std::string, int64_t> table_rows() const {
    std::map<std::string, std::set<std::string>> made_of;  // of which inputs
    for (const std::string& name : origins_.whole) made_of[name] = {name};
    std::map<std::string, int64_t> rows;
    for (size_t s = 0; s < facts_.size(); ++s) {
      const StepFacts& facts = facts_[s];
      if (short_target(program_.steps[s].node.target) == "embedding" && facts.reads.size() == 2) {
        const exported::TensorMeta& table = meta_of(facts.reads[0]);
        if (table.sizes.empty()) continue;
        for (const std::string& input : made_of[facts.reads[1]]) {
          const auto [place, is_new] = rows.emplace(input, table.sizes.front().value);
          if (!is_new) place->second = std::min(place->second, table.sizes.front().value);
        }
        continue;
      }
      // Whole numbers made of whole numbers: shifted, masked, reshaped.
      std::set<std::string> from;
      for (const std::string& read : facts.reads) {
        const auto found = made_of.find(read);
        if (found != made_of.end()) from.insert(found->second.begin(), found->second.end());
      }
      for (const std::string& output : facts.outputs) {
        if (!output.empty() && !from.empty() && is_whole(meta_of(output).type))
          made_of[output] = from;
      }
    }
    return rows;
  }

  /// What the state dict has besides the layers' own: frozen, not used for the output, never
  /// changed, or a second name of a tied weight.
  std::vector<model::ExtraTensor> extra_state(const model::Model& model) const {
    std::set<std::string> kept;
    std::map<int64_t, std::string> key_at;
    for (int i = 0; i < model.graph().num_layers(); ++i) {
      for (const ParameterSpec& spec : model.layer(LayerId{i}).parameters()) {
        kept.insert(spec.key);
        key_at.emplace(source_.tensors.at(spec.key).file_offset, spec.key);
      }
      for (const ParameterSpec& spec : model.layer(LayerId{i}).buffers()) kept.insert(spec.key);
    }
    std::vector<model::ExtraTensor> extra;
    for (const auto& [key, tensor] : source_.tensors) {
      if (!tensor.in_state_dict || kept.contains(key)) continue;
      model::ExtraTensor one{key,
                             [path = path_, stored = tensor] { return read_values(path, stored); }};
      const auto same = key_at.find(tensor.file_offset);
      if (same != key_at.end() && tensor.num_bytes > 0 &&
          source_.tensors.at(same->second).meta == tensor.meta)
        one.same_as = same->second;
      extra.push_back(std::move(one));
    }
    return extra;
  }

  void find_origins() {
    for (const InputRole& role : source_.inputs) {
      const auto* tensor = std::get_if<TensorArgument>(&role.argument);
      if (tensor == nullptr) continue;  // a constant that the exporter has written into the steps
      switch (role.kind) {
        case InputRole::Kind::User:
          origins_.inputs.insert(tensor->name);
          inputs_.push_back(tensor->name);
          if (is_whole(meta_of(tensor->name).type)) origins_.whole.insert(tensor->name);
          break;
        default:
          role_of_[tensor->name] = &role;
          if (role.kind == InputRole::Kind::Parameter && is_trained(role)) {
            origins_.parameters.insert(tensor->name);
            if (aliases_->is_changed(tensor->name)) {
              reasons_.push_back(
                  fmt::format("the parameter '{}' is changed in place", printable(role.name)));
            }
            break;
          }
          check_values(role, aliases_->is_changed(tensor->name));
          (aliases_->is_changed(tensor->name) ? origins_.buffers : origins_.constants)
              .insert(tensor->name);
      }
    }
    if (inputs_.empty()) reasons_.push_back("it has no inputs");
    check_shared_memory();
  }

  /// What trains has memory of its own, or is another name of the same tensor.
  void check_shared_memory() {
    std::map<int64_t, const InputRole*> trained;
    for (const std::string& name : origins_.parameters) {
      const InputRole& role = *role_of_.at(name);
      const auto found = source_.tensors.find(role.name);
      if (found != source_.tensors.end() && found->second.num_bytes > 0)
        trained.emplace(found->second.file_offset, &role);
    }
    for (const auto& [name, role] : role_of_) {
      const auto found = source_.tensors.find(role->name);
      if (found == source_.tensors.end()) continue;
      const auto other = trained.find(found->second.file_offset);
      if (other == trained.end() || other->second == role || found->second.num_bytes == 0) continue;
      const exported::StoredTensor& weight = source_.tensors.at(other->second->name);
      const bool is_same = found->second.meta.strides == weight.meta.strides &&
                           found->second.meta.storage_offset == weight.meta.storage_offset &&
                           same_sizes(found->second.meta, weight.meta);
      if (is_same && origins_.parameters.contains(name)) continue;
      reasons_.push_back(fmt::format(
          "'{}' shares memory with the weight '{}', but is {}: expected memory of its own",
          printable(role->name), printable(other->second->name),
          is_same ? "not trained" : "another part or order of it"));
    }
  }

  static bool is_whole(exported::ScalarType type) {
    using exported::ScalarType;
    return type == ScalarType::Long || type == ScalarType::Int || type == ScalarType::Short ||
           type == ScalarType::Char || type == ScalarType::Byte || type == ScalarType::Bool;
  }

  /// A parameter that is frozen (requires_grad=False) is a constant.
  bool is_trained(const InputRole& role) {
    const auto found = source_.tensors.find(role.name);
    if (found == source_.tensors.end()) {
      reasons_.push_back(
          fmt::format("the values of '{}' are not in the file", printable(role.name)));
      return true;
    }
    if (!found->second.meta.requires_grad) return false;
    check_values(role, true);
    return true;
  }

  static bool same_sizes(const exported::TensorMeta& a, const exported::TensorMeta& b) {
    return std::equal(a.sizes.begin(), a.sizes.end(), b.sizes.begin(), b.sizes.end(),
                      [](const exported::SymbolicInt& x, const exported::SymbolicInt& y) {
                        return x.value == y.value;
                      });
  }

  /// "float32 of 3 x 4".
  static std::string in_words(const exported::TensorMeta& meta) {
    std::string sizes;
    for (const exported::SymbolicInt& size : meta.sizes)
      sizes += fmt::format("{}{}", sizes.empty() ? "" : " x ", size.value);
    return fmt::format("{} of {}", exported::to_string(meta.type),
                       sizes.empty() ? "one number" : sizes);
  }

  /// `changes`: training changes it, so it is kept as float32.
  void check_values(const InputRole& role, bool changes) {
    const auto found = source_.tensors.find(role.name);
    if (found == source_.tensors.end()) return;  // stored() says so
    const exported::StoredTensor& tensor = found->second;
    const exported::TensorMeta& wanted = meta_of(std::get<TensorArgument>(role.argument).name);
    if (tensor.meta.type != wanted.type || !same_sizes(tensor.meta, wanted)) {
      reasons_.push_back(fmt::format("the stored '{}' is {}, the program takes {}",
                                     printable(role.name), in_words(tensor.meta),
                                     in_words(wanted)));
      return;
    }
    const bool has_numbers =
        std::none_of(tensor.meta.sizes.begin(), tensor.meta.sizes.end(),
                     [](const exported::SymbolicInt& size) { return size.value == 0; });
    if (tensor.num_bytes == 0 && has_numbers) {
      reasons_.push_back(fmt::format("'{}' has no values in the file (a model on the device meta?)",
                                     printable(role.name)));
      return;
    }
    if (has_numbers && !lies_within(tensor)) {
      reasons_.push_back(fmt::format("the stored '{}' reaches beyond its {} bytes",
                                     printable(role.name), tensor.num_bytes));
      return;
    }
    const exported::ScalarType type = tensor.meta.type;
    const bool is_counter =
        role.kind != InputRole::Kind::Parameter &&
        (type == exported::ScalarType::Long || type == exported::ScalarType::Int);
    if (changes && type != exported::ScalarType::Float && !is_counter) {
      reasons_.push_back(fmt::format("'{}' is {}: what training changes has to be float32",
                                     printable(role.name), exported::to_string(type)));
    }
  }

  const exported::TensorMeta& meta_of(const std::string& name) const {
    const auto found = program_.tensors.find(name);
    if (found == program_.tensors.end()) {
      throw ConfigError(
          fmt::format("{}: the tensor '{}' is not described", printable(path_), printable(name)));
    }
    return found->second;
  }

  void find_batch() {
    for (const std::string& name : inputs_) {
      const exported::TensorMeta& meta = meta_of(name);
      if (meta.sizes.empty() || meta.sizes.front().is_number()) {
        reasons_.push_back(fmt::format(
            "the input '{}' has a fixed batch{}: export it with a dynamic first dimension "
            "(dynamic_shapes={{0: torch.export.Dim(\"batch\")}})",
            printable(name),
            meta.sizes.empty() ? "" : fmt::format(" of {}", meta.sizes.front().value)));
        continue;
      }
      const SizeExpression size(meta.sizes.front());
      if (size.symbols().size() != 1 || size.multiple_of(*size.symbols().begin()) != 1) {
        reasons_.push_back(
            fmt::format("the first dimension of input '{}' is no batch size", printable(name)));
      } else if (batch_symbol_.empty()) {
        batch_symbol_ = *size.symbols().begin();
        batch_hint_ = meta.sizes.front().value;
      } else if (batch_symbol_ != *size.symbols().begin()) {
        reasons_.push_back(fmt::format("the inputs '{}' and '{}' have batches of their own",
                                       printable(inputs_.front()), printable(name)));
      }
    }
  }

  /// Symbols that stand alone as some size.
  void find_hints() {
    for (const auto& [name, meta] : program_.tensors) {
      for (const exported::SymbolicInt& size : meta.sizes) {
        if (size.is_number()) continue;
        const SizeExpression expression(size);
        for (const std::string& symbol : expression.symbols()) {
          if (expression.multiple_of(symbol) == 1) hints_[symbol] = size.value;
        }
      }
    }
  }

  void choose_output() {
    for (size_t i = 0; i < source_.outputs.size() && i < program_.outputs.size(); ++i) {
      const auto kind = source_.outputs[i].kind;
      if (kind != exported::OutputRole::Kind::User && kind != exported::OutputRole::Kind::Loss)
        continue;
      const auto* tensor = std::get_if<TensorArgument>(&program_.outputs[i]);
      if (tensor == nullptr) continue;
      output_ = tensor->name;
      returns_loss_ = kind == exported::OutputRole::Kind::Loss || meta_of(output_).sizes.empty();
      check_output();
      program_.outputs = {*tensor};  // what only the others need is not computed
      return;
    }
    reasons_.push_back("no output is a tensor");
  }

  void check_output() {
    const exported::TensorMeta& meta = meta_of(output_);
    const bool by_sample =
        !meta.sizes.empty() && SizeExpression(meta.sizes.front()).multiple_of(batch_symbol_) == 1;
    const bool is_one_number = std::all_of(
        meta.sizes.begin(), meta.sizes.end(),
        [](const exported::SymbolicInt& size) { return size.is_number() && size.value == 1; });
    // Of a fixed batch it has been said.
    if (batch_symbol_.empty()) return;
    if (meta.type == exported::ScalarType::Float && !meta.sizes.empty() && !by_sample &&
        !returns_loss_) {
      reasons_.push_back(
          fmt::format("the first dimension of its first output '{}' is not the batch: expected "
                      "numbers for each sample, as [batch, classes], or one number, its loss",
                      printable(output_)));
    } else if (meta.type != exported::ScalarType::Float ||
               !(returns_loss_ ? is_one_number : by_sample)) {
      reasons_.push_back(fmt::format(
          "its first output '{}' is {} with {} dimension(s); expected float32 numbers for each "
          "sample, as [batch, classes], or one number, its loss",
          printable(output_), exported::to_string(meta.type), meta.sizes.size()));
    }
    if (origins_.inputs.contains(output_)) reasons_.push_back("its first output is its input");
  }

  /// Sizes of one sample; where the first size is not the batch, numbers per sample.
  Shape shape_of(const std::string& name) const {
    const exported::TensorMeta& meta = meta_of(name);
    if (returns_loss_ && name == output_) return {};
    Shape shape;
    for (const exported::SymbolicInt& size : meta.sizes) shape.push_back(size.value);
    const bool by_sample =
        !meta.sizes.empty() && SizeExpression(meta.sizes.front()).multiple_of(batch_symbol_) == 1;
    if (by_sample) {
      shape.erase(shape.begin());
      return shape;
    }
    int64_t numbers = 1;
    for (const int64_t size : shape) numbers *= size;
    return {std::max<int64_t>(1, numbers / std::max<int64_t>(1, batch_hint_))};
  }

  void make_layers() {
    for (size_t k = 0; k < grouping_.main.size(); ++k) {
      for (const std::string& name : facts_[grouping_.main[k]].reads) last_read_[name] = k;
    }
    for (const std::string& name : inputs_) {
      values_[name] = ValueRef::model_input(static_cast<int>(values_.size()));
      input_shapes_.push_back(shape_of(name));
    }
    std::map<std::string, int> uses;
    for (const StepGroup& group : grouping_.groups) ++uses[module_of(group)];
    for (size_t g = 0; g < grouping_.groups.size(); ++g) {
      const StepGroup& group = grouping_.groups[g];
      make_layer(g, name_of(group, uses[module_of(group)] > 1));
    }
    const auto found = values_.find(output_);
    if (found == values_.end() || found->second.is_model_input())
      reasons_.push_back("its output does not depend on its inputs");
    else
      output_value_ = found->second;
  }

  /// The batches that the program holds for.
  exported::SymbolRange batch_range() const {
    const auto found = source_.ranges.find(batch_symbol_);
    if (found == source_.ranges.end()) return {};
    exported::SymbolRange range = found->second;
    // torch.export says 2 of every size without bounds: it takes 1 for a constant.
    if (range.min && *range.min <= 2) range.min.reset();
    return range;
  }

  /// The step that a layer is named after: the first with weights, else the first.
  const exported::Node& main_node(const StepGroup& group) const {
    size_t best = grouping_.main[group.begin];
    for (size_t k = group.begin; k < group.end; ++k) {
      const size_t s = grouping_.main[k];
      const bool has_weights =
          std::any_of(facts_[s].reads.begin(), facts_[s].reads.end(),
                      [&](const std::string& name) { return origins_.parameters.contains(name); });
      if (has_weights) return program_.steps[s].node;
      if (facts_[best].is_view && !facts_[s].is_view) best = s;
    }
    return program_.steps[best].node;
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

  /// A parameter's name inside its layer: the last word of its name in PyTorch, longer where two
  /// would be the same.
  static std::string short_name(const std::string& key, const std::vector<ParameterSpec>& taken) {
    size_t from = key.rfind('.') + 1;
    while (true) {
      std::string name = key.substr(from);
      for (char& c : name) {
        if (c == '.' || c == '-') c = '_';
      }
      const bool is_taken = std::any_of(
          taken.begin(), taken.end(), [&](const ParameterSpec& spec) { return spec.name == name; });
      if (!is_taken) return name;
      if (from == 0) return fmt::format("{}_{}", name, taken.size());
      from = from < 2 ? 0 : key.rfind('.', from - 2) + 1;
    }
  }

  const exported::StoredTensor& stored(const std::string& name) const {
    const std::string& key = role_of_.at(name)->name;
    const auto found = source_.tensors.find(key);
    if (found == source_.tensors.end()) {
      throw ConfigError(fmt::format("{}: the values of '{}' are not in the file", printable(path_),
                                    printable(key)));
    }
    return found->second;
  }

  /// Values are read when they are needed: a worker reads those of its own layers.
  model::Init values_of(const std::string& name) const {
    return model::Init::given([path = path_, tensor = stored(name), key = role_of_.at(name)->name] {
      at::Tensor values = read_values(path, tensor).to(at::kFloat).contiguous();
      if (!tensor.is_parameter || at::isfinite(values).all().item<bool>()) return values;
      throw ConfigError(fmt::format("{}: the stored '{}' has numbers that are not finite",
                                    printable(path), printable(key)));
    });
  }

  ParameterSpec spec_of(const std::string& name, const std::vector<ParameterSpec>& taken) const {
    const std::string& key = role_of_.at(name)->name;
    Shape shape;
    for (const exported::SymbolicInt& size : stored(name).meta.sizes) shape.push_back(size.value);
    return {short_name(key, taken), std::move(shape), values_of(name), key,
            torch_type(stored(name).meta.type)};
  }

  void make_layer(size_t g, const std::string& name) {
    const StepGroup& group = grouping_.groups[g];
    LayerParts parts;
    parts.kind = short_target(main_node(group).target);
    std::vector<size_t> steps(grouping_.main.begin() + static_cast<std::ptrdiff_t>(group.begin),
                              grouping_.main.begin() + static_cast<std::ptrdiff_t>(group.end));
    parts.steps = with_repeated_steps(steps);
    std::set<std::string> made;
    for (const size_t s : parts.steps) {
      for (const std::string& read : facts_[s].reads) {
        if (!made.contains(read)) add_source(read, parts);
      }
      made.insert(facts_[s].outputs.begin(), facts_[s].outputs.end());
    }
    LayerNode node{.name = name, .kind = parts.kind, .inputs = {}, .num_outputs = 0};
    for (const std::string& input : parts.inputs) node.inputs.push_back(values_.at(input));
    const auto first =
        std::find_if(parts.inputs.begin(), parts.inputs.end(),
                     [&](const std::string& input) { return origins_.inputs.contains(input); });
    if (first != parts.inputs.end()) {
      parts.user_input = static_cast<size_t>(first - parts.inputs.begin());
      parts.batch = batch_range();
    }
    note_changes(parts);
    find_symbols(parts);

    for (const size_t s : steps) {
      for (const std::string& output : facts_[s].outputs) {
        if (output.empty() || !is_read_after(output, group.end)) continue;
        values_[output] = {LayerId{static_cast<int>(g)}, node.num_outputs++};
        parts.outputs.push_back(output);
        parts.output_shapes.push_back(shape_of(output));
      }
    }
    parts.shares_output = returns_loss_ && parts.outputs == std::vector<std::string>{output_};
    tie(parts, LayerId{static_cast<int>(g)}, node);
    parts.weight_gradients_can_wait = can_wait(steps);
    parts.is_random = std::any_of(steps.begin(), steps.end(),
                                  [&](size_t s) { return facts_[s].is_random; });
    for (const size_t s : steps) {
      parts.work.emplace_back(program_.steps[s], facts_[s], program_, origins_.parameters, hints_,
                              batch_symbol_);
    }
    nodes_.push_back(std::move(node));
    layers_.push_back(std::make_shared<ProgramLayer>(std::move(parts), program_));
  }

  /// These steps and the repeated ones that they need, in the program's order: a repeated step may
  /// change what an earlier one has made.
  std::vector<size_t> with_repeated_steps(const std::vector<size_t>& steps) const {
    std::set<std::string> wanted;
    std::set<std::string> changing;  // roots of what is wanted
    const auto want = [&](size_t s) {
      for (const std::string& name : facts_[s].reads) {
        wanted.insert(name);
        if (aliases_->is_changed(name)) changing.insert(aliases_->root(name));
      }
    };
    for (const size_t s : steps) want(s);
    std::vector<size_t> result = steps;
    const std::vector<size_t>& repeated = grouping_.repeated_steps;
    for (size_t i = repeated.size(); i-- > 0;) {
      if (repeated[i] > steps.back()) continue;
      const StepFacts& facts = facts_[repeated[i]];
      const bool is_wanted =
          std::any_of(facts.outputs.begin(), facts.outputs.end(),
                      [&](const std::string& name) { return wanted.contains(name); }) ||
          std::any_of(facts.mutated.begin(), facts.mutated.end(), [&](const std::string& name) {
            return changing.contains(aliases_->root(name));
          });
      if (!is_wanted) continue;
      want(repeated[i]);
      result.push_back(repeated[i]);
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  void add_source(const std::string& name, LayerParts& parts) {
    const auto once = [&](std::vector<std::string>& names) {
      if (std::find(names.begin(), names.end(), name) != names.end()) return false;
      names.push_back(name);
      return true;
    };
    if (origins_.parameters.contains(name)) {
      if (once(parts.parameters))
        parts.parameter_specs.push_back(spec_of(name, parts.parameter_specs));
    } else if (origins_.buffers.contains(name)) {
      std::vector<ParameterSpec> taken = parts.parameter_specs;
      taken.insert(taken.end(), parts.buffer_specs.begin(), parts.buffer_specs.end());
      if (once(parts.buffers)) parts.buffer_specs.push_back(spec_of(name, taken));
    } else if (origins_.constants.contains(name)) {
      if (once(parts.constants)) parts.constant_values.push_back(read_values(path_, stored(name)));
    } else if (values_.contains(name)) {
      once(parts.inputs);
    } else {
      throw ConfigError(
          fmt::format("{}: '{}' is read before it is made", printable(path_), printable(name)));
    }
  }

  void note_changes(LayerParts& parts) const {
    for (const std::string& input : parts.inputs) {
      parts.copied.push_back(std::any_of(parts.steps.begin(), parts.steps.end(), [&](size_t s) {
        return aliases_->changes(facts_[s], input);
      }));
    }
  }

  void find_symbols(LayerParts& parts) {
    std::set<std::string> wanted;
    for (const size_t s : parts.steps) {
      for (const SizeExpression& size : facts_[s].sizes)
        wanted.insert(size.symbols().begin(), size.symbols().end());
    }
    for (const std::string& symbol : wanted) {
      if (const auto source = source_of(symbol, parts))
        parts.symbols.push_back(*source);
      else
        reasons_.push_back(
            fmt::format("{}: the size {} cannot be told from the values that it reads",
                        place_of(program_.steps[parts.steps.back()].node), printable(symbol)));
    }
  }

  std::optional<SymbolSource> source_of(const std::string& symbol, const LayerParts& parts) const {
    for (size_t i = 0; i < parts.inputs.size(); ++i) {
      const exported::TensorMeta& meta = meta_of(parts.inputs[i]);
      for (size_t d = 0; d < meta.sizes.size(); ++d) {
        if (const int64_t factor = SizeExpression(meta.sizes[d]).multiple_of(symbol); factor > 0)
          return SymbolSource{symbol, i, static_cast<int64_t>(d), factor};
      }
    }
    return std::nullopt;
  }

  /// Whether it is the output, or a main step from `end` on reads it.
  bool is_read_after(const std::string& name, size_t end) const {
    if (name == output_) return true;
    const auto found = last_read_.find(name);
    return found != last_read_.end() && found->second >= end;
  }

  /// Two names of the same bytes are one weight, and so are two uses of one name.
  void tie(const LayerParts& parts, LayerId layer, LayerNode& node) {
    for (size_t i = 0; i < parts.parameters.size(); ++i) {
      const exported::StoredTensor& tensor = stored(parts.parameters[i]);
      const std::pair<int64_t, std::string> place = {
          tensor.file_offset, tensor.num_bytes > 0 ? "" : role_of_.at(parts.parameters[i])->name};
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
      for (const std::string& name : facts_[s].reads) {
        if (!origins_.parameters.contains(name)) continue;
        if (!kProducts.contains(short_target(program_.steps[s].node.target))) return false;
        if (!seen.insert(name).second) return false;
      }
    }
    return true;
  }

  std::string path_;
  Reasons reasons_;
  exported::Program source_;
  FlatProgram program_;
  std::vector<StepFacts> facts_;
  std::optional<AliasSets> aliases_;
  Origins origins_;
  std::map<std::string, const InputRole*> role_of_;
  std::vector<std::string> inputs_;
  std::string batch_symbol_;
  int64_t batch_hint_ = 1;
  Symbols hints_;  ///< every symbol's value in the example
  Grouping grouping_;
  std::map<std::string, size_t> last_read_;  ///< by which main step
  std::string output_;
  bool returns_loss_ = false;
  ValueRef output_value_;
  std::map<std::string, ValueRef> values_;
  std::map<std::pair<int64_t, std::string>, graph::ParameterRef> owners_;
  std::set<std::string> names_;
  std::vector<LayerNode> nodes_;
  std::vector<std::shared_ptr<const model::Layer>> layers_;
  std::vector<Shape> input_shapes_;
};

}  // namespace

model::Model import_model(const std::string& path) { return Importer(path).run(); }

bool is_program_file(const std::string& name) { return name.ends_with(".pt2"); }

}  // namespace penstock::imported
