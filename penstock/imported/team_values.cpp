#include "penstock/imported/team_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/step_places.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

using exported::NamedArgument;
using exported::TensorArgument;

using shard::Type;

namespace {

bool holds_fractions(const std::string& name, const FlatProgram& program) {
  using exported::ScalarType;
  const auto found = program.tensors.find(name);
  if (found == program.tensors.end()) return true;
  const ScalarType type = found->second.type;
  return type == ScalarType::Float || type == ScalarType::Double || type == ScalarType::Half ||
         type == ScalarType::BFloat16 || type == ScalarType::ComplexFloat;
}

int64_t total(const std::vector<int64_t>& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
}

bool has_length(const ValueSizes& sizes, const Type& part) {
  return part.dimension < sizes.rank() && sizes.numbers[part.dimension] == total(part.blocks);
}

}  // namespace

TeamValues::TeamValues(const LayerParts& parts, const FlatProgram& program,
                       const std::vector<Type>& inputs, shard::Walk& walk,
                       const shard::Member* member, const TeamAttempt& attempt)
    : parts_(parts),
      program_(program),
      walk_(walk),
      member_(member),
      attempt_(attempt),
      sizes_(program) {
  made_.tensors = program.tensors;
  made_.sizes = program.sizes;
  for (size_t i = 0; i < parts.inputs.size(); ++i) {
    const bool is_gathered =
        is_sequence(inputs.at(i)) &&
        (!attempt.sequences || !has_length(sizes_.of(parts.inputs[i]), inputs[i]));
    set(parts.inputs[i], is_gathered ? Type::equal() : inputs[i]);
    if (holds_fractions(parts.inputs[i], program)) with_gradient_.insert(parts.inputs[i]);
  }
  with_gradient_.insert(parts.parameters.begin(), parts.parameters.end());
  for (const Step& step : program.steps) {
    for (const std::string& name : StepEdit(step, program).reads()) ++num_reads_[name];
  }
  find_changes();
}

std::string TeamValues::root_of(std::string name) const {
  for (auto found = shares_memory_.find(name); found != shares_memory_.end();
       found = shares_memory_.find(name))
    name = found->second;
  return name;
}

void TeamValues::find_changes() {
  std::map<std::string, size_t> changed;
  for (size_t s = 0; s < program_.steps.size(); ++s) {
    const StepEdit edit(program_.steps[s], program_);
    const std::vector<std::string> reads = edit.reads();
    if (reads.empty()) continue;
    const bool shares = is_view_only(edit.step().node.target) || edit.is_in_place();
    for (const std::string& made : edit.outputs()) {
      if (shares && !made.empty() && root_of(made) != root_of(reads.front()))
        shares_memory_[root_of(made)] = root_of(reads.front());
    }
    if (edit.is_in_place()) changed[reads.front()] = s;
  }
  for (const auto& [name, step] : changed) {
    size_t& last = last_change_[root_of(name)];
    last = std::max(last, step);
  }
}

bool TeamValues::is_changed(const std::string& name) const {
  const auto found = last_change_.find(root_of(name));
  return found != last_change_.end() && found->second >= position_;
}

bool TeamValues::is_read(const std::string& name) const {
  return num_reads_.contains(name) ||
         std::find(parts_.outputs.begin(), parts_.outputs.end(), name) != parts_.outputs.end();
}

std::vector<int64_t> TeamValues::sizes_in_example(const std::string& name) const {
  return sizes_of(name, program_, parts_.hints);
}

void TeamValues::add_exchanges(const shard::Exchanges& some) {
  inside_.count = saturating_add(inside_.count, some.count);
  inside_.numbers = saturating_add(inside_.numbers, some.numbers);
}

const Type& TeamValues::type(const std::string& name) const {
  static const Type equal;
  return as_whole_.contains(name) ? equal : type_made(name);
}

const Type& TeamValues::type_made(const std::string& name) const {
  static const Type equal;
  const auto found = types_.find(name);
  return found == types_.end() ? equal : found->second;
}

const ValueSizes& TeamValues::sizes(const std::string& name) {
  const auto found = like_.find(name);
  return sizes_.of(found == like_.end() ? name : found->second);
}

void TeamValues::set(const std::string& name, const Type& type) {
  types_[name] = type;
  const auto found = made_.tensors.find(name);
  if (!type.is_part() || found == made_.tensors.end()) return;
  if (!has_length(sizes(name), type))
    throw shard::Refused{type.region,
                         fmt::format("a size of '{}' is none of a part", printable(name))};
  found->second.sizes.at(type.dimension) = exported::SymbolicInt{.value = own(type)};
  found->second.strides.clear();
}

void TeamValues::set_partial(const std::string& name, const std::string& like) {
  const auto meta = program_.tensors.find(like);
  if (meta != program_.tensors.end()) made_.tensors[name] = meta->second;
  types_[name] = Type::partial();
}

void TeamValues::keep_origin(const std::string& from, const std::string& to) {
  if (const auto found = origins_.find(from); found != origins_.end())
    origins_.emplace(to, found->second);
}

int64_t TeamValues::own(const Type& type) const {
  return member_ == nullptr ? total(type.blocks) : member_->length(type);
}

TeamStep TeamValues::team_step(TeamStep::Kind kind, const Type& type) const {
  TeamStep step{.kind = kind};
  if (!type.is_part()) return step;
  step.dimension = type.dimension;
  step.whole = total(type.blocks);
  if (member_ == nullptr) return step;
  step.runs = member_->part(type, {}, 0).runs;
  step.lengths = member_->lengths(type);
  return step;
}

void TeamValues::refuse(const Type& part, const StepEdit& edit, const std::string& why) const {
  throw shard::Refused{part.region,
                       fmt::format("{}: {} {}", place_of(edit.step().node), edit.name(), why)};
}

void TeamValues::divide(shard::Region region, int64_t length, const StepEdit& edit) {
  if (walk_.regions().is_sequence(region) && length % walk_.regions().units(region) != 0)
    refuse(Type::part(0, region, {}), edit, "takes several places as one");
  walk_.regions().divide(region, length);
  const int64_t units = walk_.regions().units(region);
  if (units >= walk_.team() || walk_.regions().can_divide(region, walk_.team())) return;
  refuse(Type::part(0, region, {}), edit,
         fmt::format("leaves {} unit(s), such as heads, for {} members", units, walk_.team()));
}

void TeamValues::join(const Type& one, const Type& other, const StepEdit& edit) {
  const bool differ = total(one.blocks) == total(other.blocks) && one.blocks != other.blocks;
  if (one.blocks.size() != other.blocks.size() || differ)
    refuse(other, edit, "takes parts that are divided in other blocks");
  shard::Regions& regions = walk_.regions();
  if (is_sequence(one) != is_sequence(other) ||
      (is_sequence(one) && !regions.are_joined(one.region, other.region)))
    refuse(other, edit, "takes parts of two sequences, or of a sequence and others");
  if (regions.are_joined(one.region, other.region)) return;
  const int64_t units = std::gcd(regions.units(one.region), regions.units(other.region));
  if (units != 0 && units < walk_.team()) refuse_units(one, other, edit);
  regions.join(one.region, other.region);
}

void TeamValues::refuse_units(const Type& one, const Type& other, const StepEdit& edit) const {
  const int64_t first = walk_.regions().units(one.region);
  const int64_t second = walk_.regions().units(other.region);
  refuse(first < second ? one : other, edit,
         fmt::format("joins parts of {} units, such as heads, with those of {}, for {} members",
                     second, first, walk_.team()));
}

std::string TeamValues::beside(const std::string& name, const Type& like, bool repeats,
                               const StepEdit& edit) {
  const Type own_type = type(name);
  shard::Regions& regions = walk_.regions();
  const int64_t few = regions.units(own_type.region);
  if (regions.are_joined(own_type.region, like.region) || few == 0 || few >= walk_.team() ||
      regions.units(like.region) < walk_.team() || is_sequence(like)) {
    join(like, own_type, edit);
    return name;
  }
  const int64_t length = total(own_type.blocks);
  const bool is_one = repeats && length == few;
  const bool fits = own_type.blocks.size() == 1 && like.blocks.size() == 1 &&
                    (is_one || length == total(like.blocks));
  if (!fits || !regions.share(own_type.region, like.region, walk_.team()))
    refuse_units(like, own_type, edit);
  if (is_one) return name;
  const Type made = Type::part(own_type.dimension, like.region, like.blocks);
  TeamStep step{.kind = TeamStep::Kind::OwnUnits, .dimension = made.dimension, .whole = length};
  if (member_ != nullptr) {
    const model::TensorPart::Run copy = member_->part(own_type, {}, 0).runs.front();
    const model::TensorPart::Run own_run = member_->part(made, {}, 0).runs.front();
    step.runs = {{own_run.begin - copy.begin, own_run.length}};
  }
  return emit(std::move(step), {{"x", TensorArgument{name}}}, name, made);
}

void TeamValues::keep_apart(const Type& part, const StepEdit& edit) {
  if (!walk_.regions().keep_apart(part.region))
    refuse(part, edit, "sums or gathers parts of which several members have the same");
}

StepEdit TeamValues::with_sums_of_copies(StepEdit edit) {
  if (member_ == nullptr) return edit;
  for (const std::string& name : edit.reads()) {
    const Type own_type = type(name);
    const bool is_weight = std::find(parts_.parameters.begin(), parts_.parameters.end(), name) !=
                           parts_.parameters.end();
    if (!is_weight || !own_type.is_part() || !edit.step().gradient ||
        !member_->regions.is_copied(own_type.region, member_->team))
      continue;
    std::string& sum = summed_copies_[name];
    if (sum.empty()) {
      sum = emit({.kind = TeamStep::Kind::SumCopies, .runs = {member_->copies(own_type)}},
                 {{"x", TensorArgument{name}}}, name, own_type);
    }
    edit.rename(name, sum);
  }
  return edit;
}

void TeamValues::cut(const std::string& name, const std::set<int64_t>& at,
                     const StepEdit& edit) const {
  const Type& part = type(name);
  if (is_sequence(part)) refuse(part, edit, "takes a sequence apart");
  const int64_t length = total(part.blocks);
  const auto origin = origins_.find(name);
  if (origin != origins_.end()) {
    const Type& weight = type(origin->second);
    const int64_t rows = total(weight.blocks);
    if (rows % length != 0) refuse(part, edit, "takes rows apart between places");
    RowCuts cuts{origin->second, {}};
    for (const int64_t place : at) cuts.at.insert(place * (rows / length));
    const auto known = attempt_.cuts.find(origin->second);
    if (known != attempt_.cuts.end() &&
        std::includes(known->second.begin(), known->second.end(), cuts.at.begin(), cuts.at.end()))
      refuse(part, edit, "takes the part apart in another way than its blocks");
    throw cuts;
  }
  std::set<int64_t> ends = at;
  ends.erase(0);
  ends.insert(length);
  std::vector<int64_t> blocks;
  int64_t before = 0;
  for (const int64_t end : ends) {
    blocks.push_back(end - before);
    before = end;
  }
  if (blocks == part.blocks) refuse(part, edit, "takes the part apart in another way");
  throw shard::InBlocks{part.region, blocks};
}

std::optional<Type> TeamValues::spread(const std::string& parameter, size_t dimension,
                                       const StepEdit& edit) {
  const auto found = std::find(parts_.parameters.begin(), parts_.parameters.end(), parameter);
  if (found == parts_.parameters.end() || num_reads_[parameter] != 1) return std::nullopt;
  const auto type = walk_.spread(static_cast<size_t>(found - parts_.parameters.begin()));
  if (!type) return std::nullopt;
  if (dimension >= sizes_.of(parameter).rank()) return std::nullopt;
  const int64_t rows = sizes_.of(parameter).numbers[dimension];
  Type result = Type::part(dimension, type->region, type->blocks);
  if (const auto cuts = attempt_.cuts.find(parameter); cuts != attempt_.cuts.end()) {
    std::set<int64_t> ends = cuts->second;
    ends.erase(0);
    ends.insert(rows);
    result.blocks.clear();
    int64_t before = 0;
    for (const int64_t end : ends) {
      result.blocks.push_back(end - before);
      before = end;
    }
  } else if (total(result.blocks) != rows) {
    result.blocks = {rows};
  }
  for (const int64_t block : result.blocks) {
    // Few units that an earlier walk has found may be shared by layers that follow.
    const int64_t units = walk_.regions().units(result.region);
    if (units == 0 || block % units != 0) divide(result.region, block, edit);
  }
  set(parameter, result);
  origins_.emplace(parameter, parameter);
  return result;
}

std::string TeamValues::pending(const std::string& name, const Type& part, const StepEdit& edit) {
  if (is_part(name)) refuse(type(name), edit, "takes no parts there");
  if (!has_gradient(name, edit)) return name;
  if (as_whole_.contains(name)) return gathered(name, TeamStep::Kind::GatherSum);
  if (type(name).kind == shard::Kind::Pending) return name;
  PENSTOCK_CHECK(type(name).kind == shard::Kind::Equal, name);
  const auto found = pending_.find(name);
  if (found != pending_.end()) return found->second;
  if (is_changed(name))
    refuse(part, edit, fmt::format("reads '{}', which is changed in place", printable(name)));
  return pending_[name] = form({.kind = TeamStep::Kind::SumBackward}, name, name, Type::pending());
}

std::string TeamValues::part(const std::string& name, const Type& wanted, const StepEdit& edit) {
  if (parts_.packed.contains(name))
    refuse(wanted, edit, "has a weight of 8 bits, which stays whole");
  const Type own_type = type(name);
  if (own_type.is_part()) {
    if (own_type.dimension != wanted.dimension)
      refuse(own_type, edit, "takes parts along two dimensions");
    join(wanted, own_type, edit);
    return name;
  }
  const bool is_weight =
      std::find(parts_.parameters.begin(), parts_.parameters.end(), name) !=
          parts_.parameters.end() ||
      std::find(parts_.buffers.begin(), parts_.buffers.end(), name) != parts_.buffers.end();
  if (is_weight && num_reads_[name] == 1) {
    set(name, wanted);
    return name;
  }
  if (made_pending_.contains(name)) read_equal(name);
  if (own_type.kind == shard::Kind::Pending || is_changed(name))
    refuse(wanted, edit,
           fmt::format("needs a part of '{}', which is {}", printable(name),
                       is_changed(name) ? "changed in place" : "pending"));
  if (wanted.blocks.size() > 1 && has_gradient(name, edit))
    refuse(wanted, edit, fmt::format("needs several blocks of '{}'", printable(name)));
  read_equal_.insert(name);
  if (has_gradient(name, edit)) keep_apart(wanted, edit);
  const auto key = std::pair(name, wanted.dimension);
  const auto found = own_parts_.find(key);
  if (found != own_parts_.end() && type(found->second).blocks == wanted.blocks) {
    join(wanted, type(found->second), edit);
    return found->second;
  }
  const std::string held = as_whole_.contains(name) ? gathered(name, TeamStep::Kind::Gather) : name;
  return own_parts_[key] = form(team_step(TeamStep::Kind::OwnPart, wanted), name, held, wanted);
}

std::string TeamValues::fresh(const std::string& what, const std::string& name) {
  std::string made = fmt::format("{}.{}", name, what);
  for (int k = 2; made_.tensors.contains(made); ++k) made = fmt::format("{}.{}{}", name, what, k);
  return made;
}

std::string TeamValues::emit(TeamStep team, std::vector<NamedArgument> inputs,
                             const std::string& like, const Type& type, std::string name) {
  if (!is_form(team.kind)) {
    for (NamedArgument& input : inputs) {
      auto* const tensor = std::get_if<TensorArgument>(&input.value);
      if (tensor != nullptr && as_whole_.contains(tensor->name))
        tensor->name = gathered(tensor->name, TeamStep::Kind::Gather);
    }
  }
  const std::string target = target_of(team.kind);
  if (name.empty()) name = fresh(target.substr(target.find('.') + 1), like);
  const auto meta = program_.tensors.find(like);
  if (meta != program_.tensors.end()) made_.tensors[name] = meta->second;
  if (name != like) like_[name] = like;
  // A value in another form is for later steps as well.
  const bool gradient = is_form(team.kind) || program_.steps.at(position_).gradient;
  for (const NamedArgument& input : inputs) {
    if (!gradient) break;
    const auto* tensor = std::get_if<TensorArgument>(&input.value);
    if (tensor != nullptr && with_gradient_.contains(tensor->name)) with_gradient_.insert(name);
  }
  set(name, type);
  made_.steps.push_back({.node = {.target = target,
                                  .inputs = std::move(inputs),
                                  .outputs = {TensorArgument{name}},
                                  .name = name},
                         .gradient = gradient,
                         .team = std::move(team)});
  return name;
}

void TeamValues::pass(const StepEdit& edit) {
  for (const std::string& name : edit.reads()) {
    if (is_part(name)) refuse(type(name), edit, "takes no parts there");
  }
  if (can_be_pending(edit)) return pass_pending(edit);
  for (const std::string& name : edit.reads()) read_equal(name);
  emit(edit);
}

void TeamValues::emit(StepEdit edit) {
  for (const std::string& name : edit.reads()) {
    if (as_whole_.contains(name)) edit.rename(name, gathered(name, TeamStep::Kind::Gather));
  }
  edit = with_sums_of_copies(std::move(edit));
  const std::vector<std::string> reads = edit.reads();
  const bool gradient = edit.step().gradient && edit.name() != "detach" &&
                        std::any_of(reads.begin(), reads.end(), [&](const std::string& name) {
                          return with_gradient_.contains(name);
                        });
  for (const std::string& name : edit.outputs()) {
    if (!name.empty() && gradient && holds_fractions(name, program_)) with_gradient_.insert(name);
  }
  if (edit.is_in_place() && gradient && !reads.empty()) with_gradient_.insert(reads.front());
  made_.steps.push_back(edit.step());
}

shard::LayerTypes TeamValues::types() const {
  shard::LayerTypes result;
  for (const std::string& name : parts_.inputs) result.inputs.push_back(type_of_input(name));
  for (const std::string& name : parts_.parameters)
    result.weights.push_back(pending_.contains(name) ? Type::pending() : type_made(name));
  for (const std::string& name : parts_.buffers) result.buffers.push_back(type_made(name));
  for (const std::string& name : parts_.outputs) {
    if (const auto step = made_pending_.find(name); step != made_pending_.end())
      throw ReadAsEqual{step->second};
    result.outputs.push_back(type_made(name));
  }
  result.inside = inside_;
  return result;
}

}  // namespace penstock::imported
