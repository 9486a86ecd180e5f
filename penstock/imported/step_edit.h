// One step of a program with its arguments by the names of the operator's schema, to be read and
// changed. Internal to imported.
//
//   StepEdit edit(step, program);
//   if (edit.number("dim") == 1) edit.set_tensor("input", "part_of_x");
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/imported/flat_program.h"

namespace penstock::imported {

class StepEdit {
 public:
  /// `program` outlives this object.
  StepEdit(Step step, const FlatProgram& program);

  const Step& step() const { return step_; }
  Step& step() { return step_; }
  /// "view" of "torch.ops.aten.view.default", "relu" of "torch.ops.aten.relu_.default".
  const std::string& name() const { return name_; }
  bool is_in_place() const { return is_in_place_; }

  /// Nothing: the argument is none, absent, or of another kind.
  std::optional<std::string> tensor(std::string_view name) const;
  /// Throws ConfigError where it is no tensor.
  std::string need(std::string_view name) const;
  /// Of a list of tensors; empty: it is none.
  std::vector<std::string> tensors(std::string_view name) const;
  /// A constant; the schema's own where the step gives none.
  std::optional<int64_t> number(std::string_view name) const;
  std::optional<double> fraction(std::string_view name) const;
  std::optional<bool> flag(std::string_view name) const;
  /// One for each place; nothing where that is no constant. Empty: no list.
  std::vector<std::optional<int64_t>> numbers(std::string_view name) const;
  /// Whether the step gives the argument.
  bool has(std::string_view name) const;

  /// All that it reads, in order; a name as often as it is read.
  std::vector<std::string> reads() const;
  /// All that it makes; an unused one is empty.
  std::vector<std::string> outputs() const;

  void set_tensor(std::string_view name, const std::string& value);
  /// Everywhere among what it reads.
  void rename(const std::string& from, const std::string& to);
  void set_number(std::string_view name, int64_t value);
  void set_numbers(std::string_view name, const std::vector<int64_t>& values);
  /// One place of a list.
  void set_entry(std::string_view name, size_t place, int64_t value);
  void set_none(std::string_view name);

 private:
  const exported::NamedArgument* find(std::string_view name) const;
  exported::NamedArgument* find(std::string_view name);
  /// The argument to change, which is added where the step has none.
  exported::Argument& at(std::string_view name);

  Step step_;
  const FlatProgram* program_;
  std::string name_;
  bool is_in_place_ = false;
};

}  // namespace penstock::imported
