#include "penstock/imported/trainable_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "penstock/exported/program.h"
#include "penstock/imported/known_operators.h"
#include "penstock/imported/stored_values.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

using exported::InputRole;
using exported::TensorArgument;
using model::Shape;

namespace {

constexpr size_t kMaxReasons = 20;

bool same_sizes(const exported::TensorMeta& a, const exported::TensorMeta& b) {
  return std::equal(a.sizes.begin(), a.sizes.end(), b.sizes.begin(), b.sizes.end(),
                    [](const exported::SymbolicInt& x, const exported::SymbolicInt& y) {
                      return x.value == y.value;
                    });
}

/// "float32 of 3 x 4".
std::string in_words(const exported::TensorMeta& meta) {
  std::string sizes;
  for (const exported::SymbolicInt& size : meta.sizes)
    sizes += fmt::format("{}{}", sizes.empty() ? "" : " x ", size.value);
  return fmt::format("{} of {}", exported::to_string(meta.type),
                     sizes.empty() ? "one number" : sizes);
}

/// Finds out what the tensors of a program are, and why it cannot be trained.
class ProgramReader {
 public:
  ProgramReader(const std::string& path, const ImportOptions& options)
      : read_(std::make_unique<TrainableProgram>()) {
    p_.path = path;
    p_.source = exported::read_program(path);
    p_.frozen = options.frozen;
    if (options.adapters) p_.adapted = exported::add_adapters(p_.source, *options.adapters);
    p_.program = flatten(p_.source, reasons_);
  }

  std::unique_ptr<const TrainableProgram> run() {
    for (const Step& step : p_.program.steps) {
      if (auto found = facts_of(step, p_.program, reasons_)) p_.facts.push_back(std::move(*found));
    }
    refuse(p_.path, reasons_);
    find_target_number();
    p_.aliases.emplace(p_.facts);
    find_origins();
    check_derivatives();
    find_batch();
    find_hints();
    choose_output();
    refuse(p_.path, reasons_);
    return std::move(read_);
  }

 private:
  void find_target_number() {
    for (size_t i = 0; i < p_.source.inputs.size(); ++i) {
      const InputRole& role = p_.source.inputs[i];
      const auto* tensor = std::get_if<TensorArgument>(&role.argument);
      const bool is_constant = role.kind == InputRole::Kind::Constant &&
                               role.name == kTargetNumber && i < p_.source.graph.inputs.size();
      const auto* given = is_constant ? &p_.source.graph.inputs[i] : nullptr;
      if (given != nullptr && !std::holds_alternative<exported::NoneArgument>(*given)) {
        reasons_.push_back(
            fmt::format("the input '{}' is a constant in the file: export it as a tensor without "
                        "dimensions, torch.tensor(1)",
                        kTargetNumber));
      } else if (role.kind == InputRole::Kind::User && tensor != nullptr &&
                 tensor->name == kTargetNumber && !p_.target_number &&
                 p_.meta_of(tensor->name).sizes.empty()) {
        p_.target_number = count_targets(p_.program, p_.facts, reasons_);
      }
    }
  }

  void find_origins() {
    for (const InputRole& role : p_.source.inputs) {
      const auto* tensor = std::get_if<TensorArgument>(&role.argument);
      if (tensor == nullptr) continue;  // a constant that the exporter has written into the steps
      switch (role.kind) {
        case InputRole::Kind::User:
          if (p_.target_number && tensor->name == kTargetNumber) break;
          p_.origins.inputs.insert(tensor->name);
          p_.inputs.push_back(tensor->name);
          check_input(tensor->name);
          break;
        default:
          p_.role_of[tensor->name] = &role;
          if (role.kind == InputRole::Kind::Parameter && is_trained(role)) {
            p_.origins.parameters.insert(tensor->name);
            if (p_.aliases->is_changed(tensor->name)) {
              reasons_.push_back(
                  fmt::format("the parameter '{}' is changed in place", printable(role.name)));
            }
            break;
          }
          check_values(role, p_.aliases->is_changed(tensor->name));
          if (role.kind == InputRole::Kind::Parameter && !p_.aliases->is_changed(tensor->name))
            p_.origins.frozen.insert(tensor->name);
          (p_.aliases->is_changed(tensor->name) ? p_.origins.buffers : p_.origins.constants)
              .insert(tensor->name);
      }
    }
    if (p_.inputs.empty()) reasons_.push_back("it has no inputs");
    check_shared_memory();
    refuse_other_types();
  }

  void check_input(const std::string& name) {
    using exported::ScalarType;
    const ScalarType type = p_.meta_of(name).type;
    if (is_whole(type)) {
      p_.origins.whole.insert(name);
    } else if (type != ScalarType::Float && type != ScalarType::Double &&
               !exported::is_short_float(type)) {
      reasons_.push_back(fmt::format("the input '{}' is {}: expected float32 or whole numbers",
                                     printable(name), exported::to_string(type)));
    }
  }

  /// Once for each type: a model in bfloat16 has hundreds of weights.
  void refuse_other_types() {
    for (const auto& [type, names] : other_types_) {
      const std::string more =
          names.size() == 1 ? " is" : fmt::format(" and {} more are", names.size() - 1);
      reasons_.push_back(
          fmt::format("'{}'{} {}: what training changes has to be float32, and trained parameters "
                      "may be bfloat16 or float16. Export the module after module.float(), or "
                      "after .float() of the parts that have these",
                      printable(names.front()), more, exported::to_string(type)));
    }
  }

  /// Steps through which gradients flow, by operators of which this libtorch has none.
  void check_derivatives() {
    std::set<std::string> learned = p_.origins.parameters;
    for (size_t s = 0; s < p_.facts.size(); ++s) {
      const Step& step = p_.program.steps[s];
      const StepFacts& facts = p_.facts[s];
      const bool learns = std::any_of(
          facts.reads.begin(), facts.reads.end(),
          [&](const std::string& name) { return learned.contains(p_.aliases->root(name)); });
      if (!step.gradient || !learns) continue;
      if (lacks_derivative(step.node.target)) {
        reasons_.push_back(fmt::format("{}: this libtorch has no derivative of {}",
                                       place_of(step.node), printable(step.node.target)));
      }
      for (const auto* names : {&facts.outputs, &facts.mutated}) {
        for (const std::string& name : *names) learned.insert(p_.aliases->root(name));
      }
    }
  }

  /// What trains has memory of its own, or is another name of the same tensor.
  void check_shared_memory() {
    std::map<std::pair<std::string, int64_t>, const InputRole*> trained;
    for (const std::string& name : p_.origins.parameters) {
      const InputRole& role = *p_.role_of.at(name);
      const auto found = p_.source.tensors.find(role.name);
      if (found != p_.source.tensors.end() && found->second.num_bytes > 0)
        trained.emplace(found->second.place(), &role);
    }
    for (const auto& [name, role] : p_.role_of) {
      const auto found = p_.source.tensors.find(role->name);
      if (found == p_.source.tensors.end()) continue;
      const auto other = trained.find(found->second.place());
      if (other == trained.end() || other->second == role || found->second.num_bytes == 0) continue;
      const exported::StoredTensor& weight = p_.source.tensors.at(other->second->name);
      const bool is_same = found->second.meta.strides == weight.meta.strides &&
                           found->second.meta.storage_offset == weight.meta.storage_offset &&
                           same_sizes(found->second.meta, weight.meta);
      if (is_same && p_.origins.parameters.contains(name)) continue;
      reasons_.push_back(fmt::format(
          "'{}' shares memory with the weight '{}', but is {}: expected memory of its own",
          printable(role->name), printable(other->second->name),
          is_same ? "not trained" : "another part or order of it"));
    }
  }

  /// A parameter that is frozen (requires_grad=False) is a constant.
  bool is_trained(const InputRole& role) {
    const auto found = p_.source.tensors.find(role.name);
    if (found == p_.source.tensors.end()) {
      reasons_.push_back(
          fmt::format("the values of '{}' are not in the file", printable(role.name)));
      return true;
    }
    if (!found->second.meta.requires_grad) return false;
    check_values(role, true);
    return true;
  }

  /// `changes`: training changes it, so it is kept as float32. Parameters may be read in 16 bits.
  void check_values(const InputRole& role, bool changes) {
    const auto found = p_.source.tensors.find(role.name);
    if (found == p_.source.tensors.end()) return;  // p_.stored() says so
    const exported::StoredTensor& tensor = found->second;
    const exported::TensorMeta& wanted = p_.meta_of(std::get<TensorArgument>(role.argument).name);
    if (tensor.meta.type != wanted.type || !same_sizes(tensor.meta, wanted)) {
      reasons_.push_back(fmt::format("the stored '{}' is {}, the program takes {}",
                                     printable(role.name), in_words(tensor.meta),
                                     in_words(wanted)));
      return;
    }
    const bool has_numbers =
        std::none_of(tensor.meta.sizes.begin(), tensor.meta.sizes.end(),
                     [](const exported::SymbolicInt& size) { return size.value == 0; });
    if (tensor.num_bytes == 0 && has_numbers && !tensor.begins_within) {
      reasons_.push_back(fmt::format("'{}' has no values in the file (a model on the device meta?)",
                                     printable(role.name)));
      return;
    }
    if (has_numbers && !tensor.begins_within && !lies_within(tensor)) {
      reasons_.push_back(fmt::format("the stored '{}' reaches beyond its {} bytes",
                                     printable(role.name), tensor.num_bytes));
      return;
    }
    const exported::ScalarType type = tensor.meta.type;
    const bool is_counter =
        role.kind != InputRole::Kind::Parameter &&
        (type == exported::ScalarType::Long || type == exported::ScalarType::Int);
    const bool is_narrow =
        role.kind == InputRole::Kind::Parameter && exported::is_short_float(type);
    if (changes && type != exported::ScalarType::Float && !is_counter && !is_narrow) {
      other_types_[type].push_back(role.name);
      return;
    }
    try {
      torch_type(type);
    } catch (const ConfigError& error) {
      reasons_.push_back(fmt::format("'{}': {}", printable(role.name), error.what()));
    }
  }

  void find_batch() {
    for (const std::string& name : p_.inputs) {
      const exported::TensorMeta& meta = p_.meta_of(name);
      if (meta.sizes.empty()) {
        reasons_.push_back(
            fmt::format("the input '{}' is one number, expected the batch as its first dimension. "
                        "Only the number of targets that count may be one, as '{}'",
                        printable(name), kTargetNumber));
        continue;
      }
      if (meta.sizes.front().is_number()) {
        reasons_.push_back(
            fmt::format("the input '{}' has a fixed batch of {}: export it with a dynamic first "
                        "dimension (dynamic_shapes={{0: torch.export.Dim(\"batch\")}})",
                        printable(name), meta.sizes.front().value));
        continue;
      }
      const SizeExpression size(meta.sizes.front());
      if (size.symbols().size() != 1 || size.multiple_of(*size.symbols().begin()) != 1) {
        reasons_.push_back(
            fmt::format("the first dimension of input '{}' is no batch size", printable(name)));
      } else if (p_.batch_symbol.empty()) {
        p_.batch_symbol = *size.symbols().begin();
        p_.batch_hint = meta.sizes.front().value;
      } else if (p_.batch_symbol != *size.symbols().begin()) {
        reasons_.push_back(fmt::format("the inputs '{}' and '{}' have batches of their own",
                                       printable(p_.inputs.front()), printable(name)));
      }
    }
  }

  /// Symbols that stand alone as some size.
  void find_hints() {
    for (const auto& [name, meta] : p_.program.tensors) {
      for (const exported::SymbolicInt& size : meta.sizes) {
        if (size.is_number()) continue;
        const SizeExpression expression(size);
        for (const std::string& symbol : expression.symbols()) {
          if (expression.multiple_of(symbol) == 1) p_.hints[symbol] = size.value;
        }
      }
    }
  }

  void choose_output() {
    for (size_t i = 0; i < p_.source.outputs.size() && i < p_.program.outputs.size(); ++i) {
      const auto kind = p_.source.outputs[i].kind;
      if (kind != exported::OutputRole::Kind::User && kind != exported::OutputRole::Kind::Loss)
        continue;
      const auto* tensor = std::get_if<TensorArgument>(&p_.program.outputs[i]);
      if (tensor == nullptr) continue;
      p_.output = tensor->name;
      p_.returns_loss =
          kind == exported::OutputRole::Kind::Loss || p_.meta_of(p_.output).sizes.empty();
      check_output();
      p_.program.outputs = {*tensor};  // what only the others need is not computed
      return;
    }
    reasons_.push_back("no output is a tensor");
  }

  void check_output() {
    const exported::TensorMeta& meta = p_.meta_of(p_.output);
    const bool by_sample =
        !meta.sizes.empty() && SizeExpression(meta.sizes.front()).multiple_of(p_.batch_symbol) == 1;
    const bool is_one_number = std::all_of(
        meta.sizes.begin(), meta.sizes.end(),
        [](const exported::SymbolicInt& size) { return size.is_number() && size.value == 1; });
    // Of a fixed batch it has been said.
    if (p_.batch_symbol.empty()) return;
    const bool is_fraction =
        meta.type == exported::ScalarType::Float || exported::is_short_float(meta.type);
    if (is_fraction && !meta.sizes.empty() && !by_sample && !p_.returns_loss) {
      reasons_.push_back(
          fmt::format("the first dimension of its first output '{}' is not the batch: expected "
                      "numbers for each sample, as [batch, classes], or one number, its loss",
                      printable(p_.output)));
    } else if (!is_fraction || !(p_.returns_loss ? is_one_number : by_sample)) {
      reasons_.push_back(fmt::format(
          "its first output '{}' is {} with {} dimension(s); expected numbers of float32 or 16 "
          "bits for each sample, as [batch, classes], or one number, its loss",
          printable(p_.output), exported::to_string(meta.type), meta.sizes.size()));
    }
    if (p_.origins.inputs.contains(p_.output)) reasons_.push_back("its first output is its input");
  }

  std::unique_ptr<TrainableProgram> read_;
  TrainableProgram& p_ = *read_;
  std::map<exported::ScalarType, std::vector<std::string>> other_types_;  ///< of what changes
  Reasons reasons_;
};

}  // namespace

const exported::TensorMeta& TrainableProgram::meta_of(const std::string& name) const {
  const auto found = program.tensors.find(name);
  if (found == program.tensors.end()) {
    throw ConfigError(
        fmt::format("{}: the tensor '{}' is not described", printable(path), printable(name)));
  }
  return found->second;
}

const exported::StoredTensor& TrainableProgram::stored(const std::string& name) const {
  const std::string& key = role_of.at(name)->name;
  const auto found = source.tensors.find(key);
  if (found == source.tensors.end()) {
    throw ConfigError(
        fmt::format("{}: the values of '{}' are not in the file", printable(path), printable(key)));
  }
  return found->second;
}

Shape TrainableProgram::shape_of(const std::string& name) const {
  const exported::TensorMeta& meta = meta_of(name);
  if (returns_loss && name == output) return {};
  Shape shape;
  for (const exported::SymbolicInt& size : meta.sizes) shape.push_back(size.value);
  const bool by_sample =
      !meta.sizes.empty() && SizeExpression(meta.sizes.front()).multiple_of(batch_symbol) == 1;
  if (by_sample) {
    shape.erase(shape.begin());
    return shape;
  }
  int64_t numbers = 1;
  for (const int64_t size : shape) numbers *= size;
  return {std::max<int64_t>(1, numbers / std::max<int64_t>(1, batch_hint))};
}

exported::SymbolRange TrainableProgram::batch_range() const {
  const auto found = source.ranges.find(batch_symbol);
  if (found == source.ranges.end()) return {};
  exported::SymbolRange range = found->second;
  // torch.export says 2 of every size without bounds: it takes 1 for a constant.
  if (range.min && *range.min <= 2) range.min.reset();
  return range;
}

std::unique_ptr<const TrainableProgram> read_trainable(const std::string& path,
                                                       const ImportOptions& options) {
  return ProgramReader(path, options).run();
}

void refuse(const std::string& path, const Reasons& reasons) {
  if (reasons.empty()) return;
  std::string text = fmt::format("{} cannot be trained here:", printable(path));
  for (size_t i = 0; i < reasons.size() && i < kMaxReasons; ++i) text += "\n  " + reasons[i];
  if (reasons.size() > kMaxReasons)
    text += fmt::format("\n  and {} more", reasons.size() - kMaxReasons);
  throw ConfigError(text);
}

std::string short_target(const std::string& target) {
  const size_t last = target.rfind('.');
  const size_t before = target.rfind('.', last - 1);
  std::string name = target.substr(before + 1, last - before - 1);
  while (name.size() > 1 && name.back() == '_') name.pop_back();
  return name;
}

bool is_whole(exported::ScalarType type) {
  using exported::ScalarType;
  return type == ScalarType::Long || type == ScalarType::Int || type == ScalarType::Short ||
         type == ScalarType::Char || type == ScalarType::Byte || type == ScalarType::Bool;
}

}  // namespace penstock::imported
