// Parts of the places of sequences between the products whose weights are spread (Korthikanti et
// al. 2022, section 4.2.2): where a step needs all places, they are gathered.
#include <algorithm>

#include "penstock/imported/team_values.h"

namespace penstock::imported {

using exported::TensorArgument;
using shard::Type;

void TeamValues::begin(size_t step) {
  position_ = step;
  as_whole_.clear();
  if (!attempt_.whole.contains(step)) return;
  for (const std::string& name : StepEdit(program_.steps.at(step), program_).reads()) {
    if (is_sequence(type(name))) take_whole(name);
  }
}

bool TeamValues::reads_sequence(const StepEdit& edit) const {
  const std::vector<std::string> reads = edit.reads();
  return std::any_of(reads.begin(), reads.end(),
                     [&](const std::string& name) { return is_sequence(type(name)); });
}

void TeamValues::take_whole(const std::string& name) {
  if (is_sequence(type(name))) as_whole_.insert(name);
}

void TeamValues::read_equal(const std::string& name) {
  if (const auto step = made_pending_.find(name); step != made_pending_.end())
    throw ReadAsEqual{step->second};
  if (type(name).kind != shard::Kind::Equal) throw NoSequences{};
  read_equal_.insert(name);
}

Type TeamValues::type_of_sum(const std::string& like) {
  const ValueSizes& whole = sizes(like);
  const bool is_of_samples = parts_.batch_symbol.empty() || whole.rank() == 0 || !whole.fixed[0];
  if (!attempt_.sequences || whole.rank() != 3 || !whole.fixed[1] || !is_of_samples)
    return Type::equal();
  return walk_.fixed_sequence(whole.numbers[1]).value_or(Type::equal());
}

std::optional<StepEdit> TeamValues::laid_out(const std::string& rows) {
  const bool is_output =
      std::find(parts_.outputs.begin(), parts_.outputs.end(), rows) != parts_.outputs.end();
  if (is_output || num_reads_[rows] != 1 || sizes(rows).rank() != 2 || is_changed(rows))
    return std::nullopt;
  for (const Step& step : program_.steps) {
    StepEdit edit(step, program_);
    if (edit.reads() != std::vector{rows}) continue;
    const bool is_view =
        edit.name() == "view" || edit.name() == "reshape" || edit.name() == "_unsafe_view";
    if (!is_view || edit.step().node.target.ends_with("view.dtype")) return std::nullopt;
    const std::string made = edit.outputs().front();
    const bool keeps_rows = sizes(made).rank() == 3 && sizes(made).fixed[2] &&
                            sizes(made).numbers[2] == sizes(rows).numbers[1];
    if (keeps_rows && type_of_sum(made).is_part()) return edit;
    return std::nullopt;
  }
  return std::nullopt;
}

bool TeamValues::is_skipped(const StepEdit& step) const {
  const std::vector<std::string> made = step.outputs();
  return !made.empty() && skipped_.contains(made.front());
}

std::string TeamValues::emit_sum(const std::string& partial, const std::string& like,
                                 const Type& type, const std::string& name) {
  const auto kind = type.is_part() ? TeamStep::Kind::SumPart : TeamStep::Kind::SumForward;
  return emit(team_step(kind, type), {{"x", TensorArgument{partial}}}, like, type, name);
}

/// Gradients of what the step makes may still be sums: then so are those of what it reads.
bool TeamValues::can_be_pending(const StepEdit& edit) const {
  if (attempt_.equal.contains(position_) || edit.is_in_place()) return false;
  bool any = false;
  for (const std::string& name : edit.reads()) {
    if (!has_gradient(name, edit)) continue;
    if (!as_whole_.contains(name) && type(name).kind != shard::Kind::Pending) return false;
    any = true;
  }
  return any;
}

void TeamValues::pass_pending(StepEdit edit) {
  for (const std::string& name : edit.reads()) edit.rename(name, pending(name, Type(), edit));
  for (const std::string& output : edit.outputs()) {
    if (output.empty()) continue;
    types_[output] = Type::pending();
    made_pending_[output] = position_;
  }
  emit(std::move(edit));
}

std::string TeamValues::form(TeamStep team, const std::string& name, const std::string& held,
                             const Type& type) {
  const std::string made = emit(std::move(team), {{"x", TensorArgument{held}}}, name, type);
  if (with_gradient_.contains(name)) with_gradient_.insert(made);
  return made;
}

std::string TeamValues::gathered(const std::string& name, TeamStep::Kind kind) {
  if (is_changed(name)) throw NoSequences{};
  const auto key = std::pair(name, kind);
  if (const auto found = gathered_.find(key); found != gathered_.end()) return found->second;
  const Type made = kind == TeamStep::Kind::GatherSum ? Type::pending() : Type::equal();
  return gathered_[key] = form(team_step(kind, types_.at(name)), name, name, made);
}

/// How the layer reads it: as it is, or in the one form in which all steps read it.
Type TeamValues::type_of_input(const std::string& name) const {
  const Type& made = types_.at(name);
  const bool is_output =
      std::find(parts_.outputs.begin(), parts_.outputs.end(), name) != parts_.outputs.end();
  if (is_output) return made;
  if (pending_.contains(name) && !read_equal_.contains(name)) return Type::pending();
  if (!is_sequence(made)) return made;
  const bool is_equal = gathered_.contains({name, TeamStep::Kind::Gather});
  const bool is_pending = gathered_.contains({name, TeamStep::Kind::GatherSum});
  const bool is_read = std::any_of(made_.steps.begin(), made_.steps.end(), [&](const Step& step) {
    const std::vector<std::string> reads = StepEdit(step, made_).reads();
    const bool gathers = step.team && is_form(step.team->kind);
    return !gathers && std::find(reads.begin(), reads.end(), name) != reads.end();
  });
  if (is_read || is_equal == is_pending) return made;
  return is_equal ? Type::equal() : Type::pending();
}

}  // namespace penstock::imported
