// Operators that give the same numbers in other places, on parts.
#include <algorithm>

#include "penstock/imported/team_rules.h"

namespace penstock::imported {

using shard::Type;

namespace {

/// A step that reads one part.
struct Shaped {
  Shaped(TeamValues& team_values, const StepEdit& edit)
      : values(team_values),
        self(edit.reads().front()),
        type(values.type(self)),
        sizes(values.sizes(self)) {
    if (type.is_part() && edit.reads().size() == 1) return;
    for (const std::string& name : edit.reads()) {
      if (values.is_part(name)) values.refuse(values.type(name), edit, "takes no parts");
    }
  }

  size_t rank() const { return sizes.rank(); }
  size_t length() const { return static_cast<size_t>(sizes.numbers.at(type.dimension)); }
  /// The dimension that a constant argument names.
  size_t dimension(const StepEdit& edit, std::string_view argument) const {
    const auto given = edit.number(argument);
    if (!given) values.refuse(type, edit, "has a dimension that is not constant");
    return from(*given, rank());
  }
  static size_t from(int64_t given, size_t rank) {
    return static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(rank) : given);
  }
  Type at(size_t dimension) const { return Type::part(dimension, type.region, type.blocks); }
  /// All outputs are that part.
  void finish(const StepEdit& edit, const Type& made) const {
    for (const std::string& output : edit.outputs()) {
      if (output.empty()) continue;
      values.set(output, made);
      values.keep_origin(self, output);
    }
    values.emit(edit);
  }

  TeamValues& values;
  std::string self;
  Type type;
  ValueSizes sizes;
};

/// Where pieces of that length begin, but for the first.
std::set<int64_t> every_place(int64_t length, int64_t step) {
  std::set<int64_t> places;
  for (int64_t at = step; at < length; at += step) places.insert(at);
  return places;
}

/// view, reshape, flatten, unflatten
void reshape(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const std::string output = edit.outputs().front();
  if (edit.step().node.target.ends_with("view.dtype"))
    values.refuse(shaped.type, edit, "changes the type of a part's bytes");
  const ValueSizes& to = values.sizes(output);
  const auto found = reshaped(shaped.type, shaped.sizes, to);
  if (!found)
    values.refuse(shaped.type, edit,
                  "gives the parts no dimension of their own (one head is none)");
  // Few places may be no units, such as queries, keys and values that are taken apart afterwards.
  for (const int64_t length : found->divides) {
    if (values.is_sequence(shaped.type) && length != values.regions().units(shaped.type.region))
      values.refuse(shaped.type, edit, "takes several places as one");
    values.regions().divide(shaped.type.region, length);
  }
  const Type made = Type::part(found->dimension, shaped.type.region, found->blocks);
  for (const std::string_view argument : {"size", "shape"}) {
    if (edit.numbers(argument).size() == to.rank())
      edit.set_entry(argument, found->dimension, values.own(made));
  }
  const size_t places = edit.numbers("sizes").size();
  if (places > 0) {
    const size_t begin = shaped.dimension(edit, "dim");
    if (found->dimension >= begin && found->dimension < begin + places)
      edit.set_entry("sizes", found->dimension - begin, values.own(made));
  }
  shaped.finish(edit, made);
}

void exchanged(const Shaped& shaped, const StepEdit& edit, size_t one, size_t other) {
  const size_t d = shaped.type.dimension;
  shaped.finish(edit, shaped.at(d == one ? other : d == other ? one : d));
}

void transpose(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const bool has_axes = edit.number("axis0").has_value();
  exchanged(shaped, edit, shaped.dimension(edit, has_axes ? "axis0" : "dim0"),
            shaped.dimension(edit, has_axes ? "axis1" : "dim1"));
}

void t(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  if (shaped.rank() == 2) return exchanged(shaped, edit, 0, 1);
  shaped.finish(edit, shaped.type);
}

void permute(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const auto dims = edit.numbers("dims");
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!dims[d]) break;
    if (Shaped::from(*dims[d], shaped.rank()) == shaped.type.dimension)
      return shaped.finish(edit, shaped.at(d));
  }
  values.refuse(shaped.type, edit, "has dimensions that are not constant");
}

void unsqueeze(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const size_t dim = Shaped::from(edit.number("dim").value_or(0), shaped.rank() + 1);
  shaped.finish(edit, shaped.at(shaped.type.dimension + (dim <= shaped.type.dimension ? 1 : 0)));
}

/// Leaves out dimensions of length 1. Without dimensions it might leave out a part of that length.
void squeeze(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const auto dims = edit.numbers("dim");
  if (dims.empty()) values.refuse(shaped.type, edit, "names no dimension to leave out");
  size_t before = 0;
  for (const auto& dim : dims) {
    if (!dim) values.refuse(shaped.type, edit, "has a dimension that is not constant");
    const size_t d = Shaped::from(*dim, shaped.rank());
    if (d == shaped.type.dimension) values.refuse(shaped.type, edit, "may leave out the parts");
    before += d < shaped.type.dimension && shaped.sizes.numbers.at(d) == 1 ? 1 : 0;
  }
  shaped.finish(edit, shaped.at(shaped.type.dimension - before));
}

void select(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const size_t dim = shaped.dimension(edit, "dim");
  if (dim == shaped.type.dimension)
    values.cut(shaped.self, every_place(static_cast<int64_t>(shaped.length()), 1), edit);
  shaped.finish(edit, shaped.at(shaped.type.dimension - (dim < shaped.type.dimension ? 1 : 0)));
}

void unbind(TeamValues& values, StepEdit edit) { select(values, std::move(edit)); }

/// Which blocks of the part are [begin, end): first and one behind the last.
std::pair<size_t, size_t> blocks_between(const Shaped& shaped, int64_t begin, int64_t end,
                                         const StepEdit& edit) {
  std::vector<int64_t> ends = {0};
  for (const int64_t block : shaped.type.blocks) ends.push_back(ends.back() + block);
  const auto first = std::find(ends.begin(), ends.end(), begin);
  const auto last = std::find(ends.begin(), ends.end(), end);
  if (first == ends.end() || last == ends.end()) {
    std::set<int64_t> places(ends.begin(), ends.end());
    places.insert({begin, end});
    places.erase(0);
    places.erase(ends.back());
    shaped.values.cut(shaped.self, places, edit);
  }
  return {static_cast<size_t>(first - ends.begin()), static_cast<size_t>(last - ends.begin())};
}

Type some_blocks(const Shaped& shaped, std::pair<size_t, size_t> range) {
  const auto begin = shaped.type.blocks.begin();
  return Type::part(shaped.type.dimension, shaped.type.region,
                    {begin + static_cast<std::ptrdiff_t>(range.first),
                     begin + static_cast<std::ptrdiff_t>(range.second)});
}

/// The member's length of all blocks before that one.
int64_t own_before(const Shaped& shaped, size_t block) {
  return block == 0 ? 0 : shaped.values.own(some_blocks(shaped, {0, block}));
}

void slice(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  if (shaped.dimension(edit, "dim") != shaped.type.dimension)
    return shaped.finish(edit, shaped.type);
  const auto length = static_cast<int64_t>(shaped.length());
  const bool is_narrow = edit.name() == "narrow";
  const auto from = [&](std::optional<int64_t> given, int64_t usual) {
    const int64_t at = given.value_or(usual);
    return std::clamp<int64_t>(at < 0 ? at + length : at, 0, length);
  };
  if ((edit.has("start") && !edit.number("start")) || (edit.has("end") && !edit.number("end")) ||
      edit.number("step").value_or(1) != 1)
    values.refuse(shaped.type, edit, "takes places that are not constant");
  const int64_t begin = from(edit.number("start"), 0);
  const int64_t end =
      is_narrow ? begin + edit.number("length").value_or(length) : from(edit.number("end"), length);
  const auto range = blocks_between(shaped, begin, end, edit);
  if (range.first >= range.second) values.refuse(shaped.type, edit, "takes no places");
  const Type made = some_blocks(shaped, range);
  edit.set_number("start", own_before(shaped, range.first));
  if (is_narrow)
    edit.set_number("length", values.own(made));
  else
    edit.set_number("end", own_before(shaped, range.second));
  values.set(edit.outputs().front(), made);
  values.emit(edit);
}

/// split, split_with_sizes, chunk
void split(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const size_t dim = shaped.dimension(edit, "dim");
  if (dim != shaped.type.dimension) return shaped.finish(edit, shaped.type);
  std::set<int64_t> ends = {static_cast<int64_t>(shaped.length())};
  std::vector<int64_t> own;
  std::vector<Type> made;
  int64_t begin = 0;
  for (const std::string& output : edit.outputs()) {
    const ValueSizes& sizes = values.sizes(output);
    if (sizes.rank() != shaped.rank() || !sizes.fixed.at(dim))
      values.refuse(shaped.type, edit, "has pieces of lengths that are not constant");
    begin += sizes.numbers.at(dim);
    ends.insert(begin);
  }
  std::set<int64_t> inside = ends;
  inside.erase(static_cast<int64_t>(shaped.length()));
  std::vector<int64_t> block_ends;
  for (const int64_t block : shaped.type.blocks)
    block_ends.push_back(block + (block_ends.empty() ? 0 : block_ends.back()));
  const bool fits = std::all_of(ends.begin(), ends.end(), [&](int64_t end) {
    return std::find(block_ends.begin(), block_ends.end(), end) != block_ends.end();
  });
  if (!fits) values.cut(shaped.self, inside, edit);
  begin = 0;
  for (const std::string& output : edit.outputs()) {
    const int64_t length = values.sizes(output).numbers.at(dim);
    made.push_back(some_blocks(shaped, blocks_between(shaped, begin, begin + length, edit)));
    own.push_back(values.own(made.back()));
    values.set(output, made.back());
    begin += length;
  }
  edit.step().node.target = "torch.ops.aten.split_with_sizes.default";
  edit.step().node.inputs = {{"self", exported::TensorArgument{shaped.self}},
                             {"split_sizes", own},
                             {"dim", static_cast<int64_t>(dim)}};
  values.emit(edit);
}

void expand(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const size_t rank = values.sizes(edit.outputs().front()).rank();
  const Type made = shaped.at(shaped.type.dimension + rank - shaped.rank());
  if (edit.numbers("size").size() != rank || rank < shaped.rank())
    values.refuse(shaped.type, edit, "has other sizes than its result");
  edit.set_entry("size", made.dimension, values.own(made));
  shaped.finish(edit, made);
}

void repeat(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const auto repeats = edit.numbers("repeats");
  if (repeats.size() < shaped.rank()) values.refuse(shaped.type, edit, "repeats less than it has");
  const size_t dimension = shaped.type.dimension + repeats.size() - shaped.rank();
  if (repeats.at(dimension) != 1) values.refuse(shaped.type, edit, "repeats the parts");
  shaped.finish(edit, shaped.at(dimension));
}

/// Each place several times, one behind the other.
void repeat_interleave(TeamValues& values, StepEdit edit) {
  const Shaped shaped(values, edit);
  const auto repeats = edit.number("repeats");
  if (!repeats || !edit.number("dim"))
    values.refuse(shaped.type, edit, "repeats a number of times that is not constant");
  Type made = shaped.type;
  if (shaped.dimension(edit, "dim") == made.dimension) {
    for (int64_t& block : made.blocks) block *= *repeats;
    if (edit.has("output_size")) edit.set_number("output_size", values.own(made));
  }
  shaped.finish(edit, made);
}

/// Side by side along another dimension than the parts'.
void cat(TeamValues& values, StepEdit edit) {
  const bool stacks = edit.name() == "stack";
  const size_t rank = values.sizes(edit.outputs().front()).rank();
  const auto given = edit.number("dim");
  std::optional<Type> part;
  for (const std::string& name : edit.reads()) {
    const Type& type = values.type(name);
    if (!type.is_part()) continue;
    if (!given) values.refuse(type, edit, "has a dimension that is not constant");
    if (!stacks && Shaped::from(*given, rank) == type.dimension)
      values.refuse(type, edit, "joins parts along their dimension");
    if (!part) part = type;
    if (part->dimension != type.dimension)
      values.refuse(type, edit, "joins parts along two dimensions");
  }
  for (const std::string& name : edit.reads()) {
    if (values.sizes(name).rank() + (stacks ? 1 : 0) != rank)
      values.refuse(*part, edit, "joins an empty value with parts");
    edit.rename(name, values.part(name, *part, edit));
  }
  const bool moves = stacks && Shaped::from(*given, rank) <= part->dimension;
  values.set(edit.outputs().front(),
             Type::part(part->dimension + (moves ? 1 : 0), part->region, part->blocks));
  values.emit(edit);
}

/// roll, flip, index_select, gather: along other dimensions.
void along_others(TeamValues& values, StepEdit edit) {
  const std::string self = edit.reads().front();
  const Type type = values.type(self);
  if (!type.is_part()) {
    for (const std::string& name : edit.reads()) {
      if (values.is_part(name)) values.refuse(values.type(name), edit, "takes no parts there");
    }
  }
  auto dims = edit.numbers("dims");
  if (dims.empty()) dims = edit.numbers("dim");
  const size_t rank = values.sizes(self).rank();
  if (dims.empty()) values.refuse(type, edit, "names no dimension");
  for (const auto& dim : dims) {
    if (!dim || Shaped::from(*dim, rank) == type.dimension)
      values.refuse(type, edit, "works along the dimension of the parts");
  }
  for (const std::string& name : edit.reads()) {
    if (name != self && values.is_part(name))
      values.refuse(values.type(name), edit, "takes no parts there");
  }
  values.set(edit.outputs().front(), type);
  values.emit(edit);
}

}  // namespace

const TeamRules& shape_rules() {
  static const TeamRules rules = {{"view", reshape},
                                  {"reshape", reshape},
                                  {"_unsafe_view", reshape},
                                  {"flatten", reshape},
                                  {"unflatten", reshape},
                                  {"transpose", transpose},
                                  {"swapaxes", transpose},
                                  {"t", t},
                                  {"numpy_T", t},
                                  {"mT", t},
                                  {"permute", permute},
                                  {"unsqueeze", unsqueeze},
                                  {"squeeze", squeeze},
                                  {"select", select},
                                  {"unbind", unbind},
                                  {"slice", slice},
                                  {"narrow", slice},
                                  {"split", split},
                                  {"split_with_sizes", split},
                                  {"chunk", split},
                                  {"expand", expand},
                                  {"repeat", repeat},
                                  {"repeat_interleave", repeat_interleave},
                                  {"cat", cat},
                                  {"stack", cat},
                                  {"roll", along_others},
                                  {"flip", along_others},
                                  {"index_select", along_others}};
  return rules;
}

}  // namespace penstock::imported
