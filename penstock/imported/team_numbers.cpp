// Operators that work number by number, norms, sums and pooling, on parts.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <sstream>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/team_rules.h"

namespace penstock::imported {

using shard::Type;

Aligned read_aligned(TeamValues& values, StepEdit& edit, const std::vector<std::string>& operands,
                     size_t rank) {
  Aligned result;
  const auto units = [&](const Type& type) { return values.regions().units(type.region); };
  for (const std::string& name : operands) {
    const Type type = values.type(name);
    if (!type.is_part()) continue;
    const size_t from_right = values.sizes(name).rank() - type.dimension;
    if (result.from_right != 0 && from_right != result.from_right)
      values.refuse(type, edit, "takes parts along two dimensions");
    // Where members share units, the result has those that each has alone.
    if (result.from_right == 0 || units(type) > units(result.type))
      result = {from_right, Type::part(rank - from_right, type.region, type.blocks)};
  }
  for (const std::string& name : operands) {
    if (values.is_part(name))
      edit.rename(name, values.beside(name, result.type, /*repeats=*/false, edit));
  }
  for (const std::string& name : operands) {
    if (values.is_part(name)) continue;
    const ValueSizes& sizes = values.sizes(name);
    const bool varies = sizes.rank() >= result.from_right &&
                        sizes.numbers.at(sizes.rank() - result.from_right) != 1;
    const std::string read = varies
                                 ? values.part(name,
                                               Type::part(sizes.rank() - result.from_right,
                                                          result.type.region, result.type.blocks),
                                               edit)
                                 : values.pending(name, result.type, edit);
    edit.rename(name, read);
  }
  return result;
}

namespace {

void finish_numbers(TeamValues& values, const StepEdit& edit, const std::string& origin,
                    const Type& type) {
  for (const std::string& output : edit.outputs()) {
    if (output.empty()) continue;
    values.set(output, type);
    if (!origin.empty()) values.keep_origin(origin, output);
  }
  values.emit(edit);
}

/// The first part among what the step reads; empty: there is none.
std::string first_part(const TeamValues& values, const StepEdit& edit) {
  for (const std::string& name : edit.reads()) {
    if (values.is_part(name)) return name;
  }
  return {};
}

void number_by_number(TeamValues& values, StepEdit edit) {
  std::vector<std::string> operands;
  for (const std::string& name : edit.reads()) {
    if (std::find(operands.begin(), operands.end(), name) == operands.end())
      operands.push_back(name);
  }
  const std::string part = first_part(values, edit);
  if (edit.is_in_place() && !values.is_part(operands.front()))
    values.refuse(values.type(part), edit, "changes an equal value by a part");
  const size_t rank = values.sizes(edit.outputs().front()).rank();
  const Aligned aligned = read_aligned(values, edit, operands, rank);
  const bool is_same = values.type(part).blocks == aligned.type.blocks;
  finish_numbers(values, edit, is_same ? part : "", aligned.type);
}

/// Of another tensor it reads the type of its numbers.
void like_another(TeamValues& values, StepEdit edit) {
  const std::string first = edit.reads().front();
  if (!values.is_part(first)) {
    values.read_equal(first);
    return values.emit(edit);
  }
  finish_numbers(values, edit, first, values.type(first));
}

/// A place of a list or number of dimensions.
size_t place(int64_t dimension, size_t rank) {
  return static_cast<size_t>(dimension < 0 ? dimension + static_cast<int64_t>(rank) : dimension);
}

/// Reads all numbers along a dimension, which the result keeps: softmax, cumsum.
void along_dimension(TeamValues& values, StepEdit edit) {
  const std::string self = edit.reads().front();
  const Type type = values.type(self);
  const auto dimension = edit.number("dim");
  if (!dimension || place(*dimension, values.sizes(self).rank()) == type.dimension)
    values.refuse(type, edit, "needs all numbers along the dimension of the parts");
  finish_numbers(values, edit, self, type);
}

/// Sums and the like; dimensions that are reduced are left out, or have length 1.
void reduction(TeamValues& values, StepEdit edit) {
  const std::string self = edit.reads().front();
  const Type type = values.type(self);
  const size_t rank = values.sizes(self).rank();
  const std::string output = edit.outputs().front();
  const auto dims = edit.numbers("dim");
  std::vector<bool> reduced(rank, dims.empty());
  for (const auto& dim : dims) {
    if (!dim) values.refuse(type, edit, "reduces dimensions that are not constant");
    reduced.at(place(*dim, rank)) = true;
  }
  if (edit.reads().size() > 1) values.refuse(type, edit, "takes no parts");
  if (reduced[type.dimension]) {
    if (edit.name() != "sum") values.refuse(type, edit, "reduces the dimension of the parts");
    return sum_partial(values, std::move(edit), "", 0);
  }
  size_t dimension = type.dimension;
  if (values.sizes(output).rank() < rank)
    dimension -= static_cast<size_t>(std::count(
        reduced.begin(), reduced.begin() + static_cast<std::ptrdiff_t>(dimension), true));
  finish_numbers(values, edit, self, Type::part(dimension, type.region, type.blocks));
}

/// Of two values, or along a dimension.
void extreme(TeamValues& values, StepEdit edit) {
  if (edit.tensor("other")) return number_by_number(values, std::move(edit));
  reduction(values, std::move(edit));
}

/// Over the last dimensions, with weights of their shape.
void norm_of_last(TeamValues& values, StepEdit edit) {
  const std::string input = *edit.tensor("input");
  const Type type = values.type(input);
  if (!type.is_part()) values.refuse(values.type(first_part(values, edit)), edit, "takes no parts");
  const size_t rank = values.sizes(input).rank();
  if (type.dimension + edit.numbers("normalized_shape").size() >= rank)
    values.refuse(type, edit, "needs all numbers along the dimension of the parts");
  for (const std::string_view argument : {"weight", "bias"}) {
    if (const auto name = edit.tensor(argument))
      edit.set_tensor(argument, values.pending(*name, type, edit));
  }
  finish_numbers(values, edit, input, type);
}

/// Of channels (dimension 1), with these arguments of a number per channel.
void norm_of_channels(TeamValues& values, StepEdit& edit,
                      std::initializer_list<std::string_view> arguments) {
  const std::string input = *edit.tensor("input");
  const Type type = values.type(input);
  if (!type.is_part() || type.dimension != 1)
    values.refuse(values.type(first_part(values, edit)), edit, "takes parts of channels");
  for (const std::string_view argument : arguments) {
    if (const auto name = edit.tensor(argument)) {
      edit.set_tensor(argument, values.part(*name, Type::part(0, type.region, type.blocks), edit));
    }
  }
  finish_numbers(values, edit, input, type);
}

void batch_norm(TeamValues& values, StepEdit edit) {
  norm_of_channels(values, edit, {"weight", "bias", "running_mean", "running_var"});
}

void group_norm(TeamValues& values, StepEdit edit) {
  const std::string input = *edit.tensor("input");
  const Type type = values.type(input);
  const auto groups = edit.number("num_groups");
  if (type.is_part() && type.dimension == 1) {
    if (!groups || type.blocks.size() > 1) values.refuse(type, edit, "takes one block of groups");
    values.divide(type.region, *groups, edit);
    edit.set_number("num_groups", values.own(type) * *groups / type.blocks.front());
  }
  norm_of_channels(values, edit, {"weight", "bias"});
}

void dropout(TeamValues& values, StepEdit edit) {
  const std::string input = edit.reads().front();
  const Type type = values.type(input);
  const bool is_same = edit.name() == "feature_dropout" && type.dimension > 1;
  if (edit.fraction("p").value_or(1) > 0 && !is_same)
    edit.step().team = values.team_step(TeamStep::Kind::WholeMask, type);
  finish_numbers(values, edit, input, type);
}

/// Works on the last `spatial` dimensions, alike for all others.
void on_last(TeamValues& values, StepEdit edit, size_t spatial) {
  const std::string self = edit.reads().front();
  const Type type = values.type(self);
  if (!type.is_part()) values.refuse(values.type(first_part(values, edit)), edit, "takes no parts");
  if (type.dimension + spatial >= values.sizes(self).rank())
    values.refuse(type, edit, "works along the dimension of the parts");
  finish_numbers(values, edit, self, type);
}
void on_last_1(TeamValues& values, StepEdit edit) { on_last(values, std::move(edit), 1); }
void on_last_2(TeamValues& values, StepEdit edit) { on_last(values, std::move(edit), 2); }
void on_last_3(TeamValues& values, StepEdit edit) { on_last(values, std::move(edit), 3); }
void padding(TeamValues& values, StepEdit edit) {
  on_last(values, edit, edit.numbers("pad").size() / 2);
}

TeamRules made_rules() {
  TeamRules rules = {{"max", extreme},
                     {"min", extreme},
                     {"to", like_another},
                     {"type_as", like_another},
                     {"layer_norm", norm_of_last},
                     {"rms_norm", norm_of_last},
                     {"batch_norm", batch_norm},
                     {"group_norm", group_norm},
                     {"dropout", dropout},
                     {"feature_dropout", dropout},
                     {"pad", padding},
                     {"constant_pad_nd", padding},
                     {"tril", on_last_2},
                     {"triu", on_last_2},
                     {"pixel_shuffle", on_last_3}};
  std::istringstream names{std::string(kNumberByNumber)};
  for (std::string name; names >> name;) rules[name] = number_by_number;
  for (const char* name : {"softmax", "_softmax", "log_softmax", "_log_softmax", "cumsum",
                           "cumprod", "glu", "topk", "sort", "argsort"})
    rules[name] = along_dimension;
  for (const char* name : {"sum", "mean", "amax", "amin", "prod", "var", "std", "logsumexp", "any",
                           "all", "linalg_vector_norm", "argmax", "argmin"})
    rules[name] = reduction;
  const std::array<std::pair<std::string, TeamRule>, 3> ranks = {
      {{"1d", on_last_1}, {"2d", on_last_2}, {"3d", on_last_3}}};
  for (const auto& [rank, rule] : ranks) {
    for (const char* name : {"max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool",
                             "upsample_nearest", "upsample_bilinear"})
      rules[name + rank] = rule;
  }
  return rules;
}

}  // namespace

const TeamRules& number_rules() {
  static const TeamRules rules = made_rules();
  return rules;
}

}  // namespace penstock::imported
