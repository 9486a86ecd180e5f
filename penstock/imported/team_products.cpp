// Matrix products, convolutions, tables, attention, and the loss on parts of the classes: linear
// pairs and tables as in Shoeybi et al. 2019, section 3.
#include <fmt/format.h>

#include <numeric>

#include "penstock/imported/team_rules.h"

namespace penstock::imported {

using exported::TensorArgument;
using shard::Type;

namespace {

/// The step makes numbers of which `like` is the sum over the members.
std::string emit_partial(TeamValues& values, StepEdit& edit, const std::string& like) {
  const std::string partial = like + ".partial";
  edit.step().node.outputs.front() = TensorArgument{partial};
  values.set_partial(partial, like);
  values.emit(edit);
  return partial;
}

}  // namespace

void sum_partial(TeamValues& values, StepEdit edit, const std::string& bias,
                 size_t bias_dimension) {
  for (const std::string& name : edit.reads()) {
    if (values.is_part(name)) values.keep_apart(values.type(name), edit);
  }
  std::string output = edit.outputs().front();
  std::string partial = emit_partial(values, edit, output);
  const exported::Node& node = edit.step().node;
  const bool is_along_last =
      bias.empty() || (bias_dimension == 1 && values.sizes(bias).rank() == 1);
  if (const auto view = is_along_last ? values.laid_out(output) : std::nullopt) {
    StepEdit apart = *view;
    apart.rename(output, partial);
    output = view->outputs().front();
    partial = emit_partial(values, apart, output);
    values.skip(*view);
    bias_dimension = values.sizes(output).rank() - 1;
  }
  const bool is_last = bias.empty() && !values.is_changed(output);
  const Type type = values.type_of_sum(output);
  const std::string sum = values.emit_sum(partial, output, type, is_last ? output : "");
  if (is_last) return;
  const auto make = [&](const std::string& target, std::vector<exported::NamedArgument> inputs,
                        const std::string& made) {
    const StepEdit step({.node = {.target = target,
                                  .inputs = std::move(inputs),
                                  .outputs = {TensorArgument{made}},
                                  .name = node.name},
                         .gradient = edit.step().gradient},
                        values.program());
    if (!type.is_part()) return values.pass(step);
    values.set(made, type);
    values.emit(step);
  };
  // What a sum has made must not be changed in place.
  if (bias.empty())
    return make("torch.ops.aten.clone.default", {{"self", TensorArgument{sum}}}, output);
  const size_t rank = values.sizes(output).rank();
  std::string addend = bias;
  if (bias_dimension + 1 < rank) {
    std::vector<int64_t> shape(rank - bias_dimension, 1);
    shape.front() = -1;
    addend = output + ".bias";
    make("torch.ops.aten.reshape.default", {{"self", TensorArgument{bias}}, {"shape", shape}},
         addend);
  }
  if (type.is_part()) addend = values.pending(addend, type, edit);
  make("torch.ops.aten.add.Tensor",
       {{"self", TensorArgument{sum}}, {"other", TensorArgument{addend}}}, output);
}

namespace {

Type moved(const Type& type, size_t dimension) {
  return Type::part(dimension, type.region, type.blocks);
}

void set_pending(TeamValues& values, StepEdit& edit, std::string_view argument, const Type& part) {
  if (const auto name = edit.tensor(argument))
    edit.set_tensor(argument, values.pending(*name, part, edit));
}

void set_part(TeamValues& values, StepEdit& edit, std::string_view argument, const Type& type) {
  if (const auto name = edit.tensor(argument))
    edit.set_tensor(argument, values.part(*name, type, edit));
}

void finish(TeamValues& values, const StepEdit& edit, const Type& type) {
  values.set(edit.outputs().front(), type);
  values.emit(edit);
}

/// input [..., in], weight [out, in], bias [out]
void linear(TeamValues& values, StepEdit edit) {
  const std::string input = edit.need("input");
  const std::string weight = edit.need("weight");
  const size_t last = values.sizes(input).rank() - 1;
  const Type type = values.type(input);
  if (values.is_part(weight)) values.refuse(values.type(weight), edit, "has a part of its weight");
  if (type.is_part() && type.dimension == last) {
    set_part(values, edit, "weight", moved(type, 1));
    const std::string bias = edit.tensor("bias").value_or("");
    if (!bias.empty()) edit.set_none("bias");
    return sum_partial(values, std::move(edit), bias, last);
  }
  const bool may_spread = !type.is_part() || values.is_sequence(type);
  const auto rows = may_spread ? values.spread(weight, 0, edit) : std::optional<Type>();
  if (type.is_part() && !rows) {
    set_pending(values, edit, "weight", type);
    set_pending(values, edit, "bias", type);
    return finish(values, edit, type);
  }
  if (!rows) return values.pass(edit);
  values.take_whole(input);
  set_pending(values, edit, "input", *rows);
  set_part(values, edit, "bias", moved(*rows, 0));
  values.keep_origin(weight, edit.outputs().front());
  finish(values, edit, moved(*rows, last));
}

/// A product of matrices, and what is added to it.
struct Product {
  std::string_view left;
  std::string_view right;
  bool adds = false;  ///< "self" is added
};

/// The parts are what is multiplied and summed.
void contracted(TeamValues& values, StepEdit edit, const Product& names, const Type& type) {
  const size_t left = values.sizes(edit.need(names.left)).rank();
  const size_t right = values.sizes(edit.need(names.right)).rank();
  set_part(values, edit, names.left, moved(type, left - 1));
  set_part(values, edit, names.right, moved(type, right < 2 ? 0 : right - 2));
  std::string bias;
  if (names.adds) {
    bias = edit.need("self");
    exported::Node& node = edit.step().node;
    for (const std::string_view factor : {"beta", "alpha"}) {
      if (edit.has(factor) && edit.fraction(factor) != 1)
        values.refuse(type, edit, "multiplies its sum");
    }
    node.inputs = {{"self", TensorArgument{edit.need(names.left)}},
                   {"mat2", TensorArgument{edit.need(names.right)}}};
    node.target = "torch.ops.aten.mm.default";
  }
  const size_t rank = values.sizes(edit.outputs().front()).rank();
  const size_t own = bias.empty() ? 0 : values.sizes(bias).rank();
  sum_partial(values, std::move(edit), bias, own > 1 ? rank - 1 : rank - own);
}

/// One of them is a part along a dimension of the result, or an equal one is spread.
void product(TeamValues& values, StepEdit edit, const Product& names) {
  const std::string left = edit.need(names.left);
  const std::string right = edit.need(names.right);
  const size_t left_rank = values.sizes(left).rank();
  const size_t right_rank = values.sizes(right).rank();
  const std::string output = edit.outputs().front();
  const size_t rank = values.sizes(output).rank();
  const Type a = values.type(left);
  const Type b = values.type(right);
  if (names.adds && values.is_part(edit.need("self")))
    values.refuse(values.type(edit.need("self")), edit, "adds a part");
  if (a.is_part() && a.dimension + 1 == left_rank) {
    if (b.is_part() && b.dimension != (right_rank < 2 ? 0 : right_rank - 2))
      values.refuse(a, edit, "multiplies parts of columns by other parts");
    return contracted(values, std::move(edit), names, a);
  }
  if (b.is_part() && b.dimension == (right_rank < 2 ? 0 : right_rank - 2)) {
    if (a.is_part()) values.refuse(b, edit, "multiplies parts of rows by other parts");
    return contracted(values, std::move(edit), names, b);
  }
  if (b.is_part() && b.dimension + 1 == right_rank) {  // columns
    if (a.is_part()) values.refuse(b, edit, "multiplies parts of rows by parts of columns");
    set_pending(values, edit, names.left, b);
    values.keep_origin(right, output);
    if (names.adds)
      set_part(values, edit, "self", moved(b, values.sizes(edit.need("self")).rank() - 1));
    return finish(values, edit, moved(b, rank - 1));
  }
  const bool may_spread =
      right_rank == 2 && !b.is_part() && (!a.is_part() || values.is_sequence(a));
  const auto columns = may_spread ? values.spread(right, 1, edit) : std::optional<Type>();
  if (!columns && a.is_part() && a.dimension + 2 == left_rank) {  // rows
    if (b.is_part()) values.refuse(b, edit, "multiplies parts of rows by other parts");
    if (right_rank < 2) values.refuse(a, edit, "multiplies a vector");
    set_pending(values, edit, names.right, a);
    if (names.adds) {
      if (values.sizes(edit.need("self")).rank() != 1)
        values.refuse(a, edit, "adds a matrix to parts of rows");
      set_pending(values, edit, "self", a);
    }
    return finish(values, edit, moved(a, rank - 2));
  }
  if (!columns && (a.is_part() || b.is_part())) {  // the same in all matrices
    const Aligned aligned = read_aligned(values, edit, {left, right}, rank);
    return finish(values, edit, aligned.type);
  }
  if (!columns) return values.pass(edit);
  values.take_whole(left);
  set_pending(values, edit, names.left, *columns);
  if (names.adds)
    set_part(values, edit, "self", moved(*columns, values.sizes(edit.need("self")).rank() - 1));
  values.keep_origin(right, output);
  finish(values, edit, moved(*columns, rank - 1));
}

void addmm(TeamValues& values, StepEdit edit) {
  product(values, std::move(edit), {"mat1", "mat2", true});
}
void mm(TeamValues& values, StepEdit edit) { product(values, std::move(edit), {"self", "mat2"}); }
void matmul(TeamValues& values, StepEdit edit) {
  product(values, std::move(edit), {"self", "other"});
}

/// input [samples, in, ...], weight [out, in / groups, ...], bias [out]
void convolution(TeamValues& values, StepEdit edit) {
  const std::string input = edit.need("input");
  const std::string weight = edit.need("weight");
  const std::string output = edit.outputs().front();
  const Type type = values.type(input);
  const ValueSizes& sizes = values.sizes(input);
  const int64_t groups = edit.number("groups").value_or(1);
  const bool has_batch = sizes.rank() == values.sizes(weight).rank() && sizes.rank() > 2;
  if (edit.flag("transposed").value_or(false) || !has_batch) {
    if (type.is_part()) values.refuse(type, edit, "takes no parts in this form");
    return values.pass(edit);
  }
  if (type.is_part() && type.dimension != 1) values.refuse(type, edit, "takes parts of channels");
  const int64_t out = values.sizes(weight).numbers.front();
  if (type.is_part() && groups > 1) {
    values.divide(type.region, groups, edit);
    std::vector<int64_t> blocks;
    for (const int64_t block : type.blocks) {
      if (block * out % sizes.numbers.at(1) != 0)
        values.refuse(type, edit, "divides channels unevenly");
      blocks.push_back(block * out / sizes.numbers.at(1));
      values.divide(type.region, block * groups / sizes.numbers.at(1), edit);
    }
    const Type rows = Type::part(0, type.region, blocks);
    set_part(values, edit, "weight", rows);
    set_part(values, edit, "bias", rows);
    edit.set_number("groups", values.own(type) * groups / sizes.numbers.at(1));
    return finish(values, edit, moved(rows, 1));
  }
  if (type.is_part()) {
    set_part(values, edit, "weight", moved(type, 1));
    const std::string bias = edit.tensor("bias").value_or("");
    if (!bias.empty()) edit.set_none("bias");
    return sum_partial(values, std::move(edit), bias, 1);
  }
  const auto rows = groups == 1 ? values.spread(weight, 0, edit) : std::optional<Type>();
  if (!rows) return values.pass(edit);
  set_pending(values, edit, "input", *rows);
  set_part(values, edit, "bias", moved(*rows, 0));
  values.keep_origin(weight, output);
  finish(values, edit, moved(*rows, 1));
}

/// weight [rows, features], indices [...]: rows of other members give zeros.
void embedding(TeamValues& values, StepEdit edit) {
  const std::string weight = edit.need("weight");
  const std::string indices = edit.need("indices");
  for (const std::string& name : edit.reads()) {
    if (values.is_part(name)) values.refuse(values.type(name), edit, "takes no parts");
  }
  const auto rows = edit.flag("scale_grad_by_freq").value_or(false)
                        ? std::optional<Type>()
                        : values.spread(weight, 0, edit);
  if (!rows) return values.pass(edit);
  if (rows->blocks.size() > 1) values.refuse(*rows, edit, "takes one block of rows");
  values.keep_apart(*rows, edit);
  const std::string output = edit.outputs().front();
  const std::string partial = values.emit(values.team_step(TeamStep::Kind::Embedding, *rows),
                                          {{"table", TensorArgument{weight}},
                                           {"tokens", TensorArgument{indices}},
                                           {"padding", edit.number("padding_idx").value_or(-1)}},
                                          output, Type::partial());
  values.emit_sum(partial, output, values.type_of_sum(output), output);
}

/// query, key, value [..., heads, places, features], with fewer heads of keys where grouped.
void attention(TeamValues& values, StepEdit edit) {
  const std::vector<std::string_view> arguments = {"query", "key", "value"};
  const size_t rank = values.sizes(edit.need("query")).rank();
  Type part;
  for (const std::string_view argument : arguments) {
    const std::string name = edit.need(argument);
    const Type& type = values.type(name);
    if (!type.is_part()) continue;
    if (rank < 3 || type.dimension + 3 != values.sizes(name).rank() || type.blocks.size() > 1)
      values.refuse(type, edit, "takes parts of heads");
    if (part.is_part())
      edit.set_tensor(argument, values.beside(name, part, /*repeats=*/true, edit));
    else
      part = type;
  }
  const auto mask = edit.tensor("attn_mask");
  if (!part.is_part()) {
    if (mask && values.is_part(*mask))
      values.refuse(values.type(*mask), edit, "has a part of its mask");
    return values.pass(edit);
  }
  for (const std::string_view argument : arguments) {
    const std::string name = edit.need(argument);
    const ValueSizes& sizes = values.sizes(name);
    if (sizes.rank() < 3) values.refuse(part, edit, "takes heads");
    const size_t dimension = sizes.rank() - 3;
    if (values.is_part(name)) continue;
    values.divide(part.region, sizes.numbers.at(dimension), edit);
    set_part(values, edit, argument,
             Type::part(dimension, part.region, {sizes.numbers.at(dimension)}));
  }
  const int64_t heads = values.sizes(edit.need("query")).numbers.at(rank - 3);
  const Type result = Type::part(rank - 3, part.region, {heads});
  if (mask) {
    const ValueSizes& sizes = values.sizes(*mask);
    const bool varies = sizes.rank() >= 3 && sizes.numbers.at(sizes.rank() - 3) != 1;
    if (varies)
      set_part(values, edit, "attn_mask", Type::part(sizes.rank() - 3, part.region, {heads}));
    else
      set_pending(values, edit, "attn_mask", part);
  }
  if (edit.fraction("dropout_p").value_or(0) > 0)
    edit.step().team = values.team_step(TeamStep::Kind::WholeMask, result);
  finish(values, edit, result);
}

/// self [targets, classes, ...], target [targets, ...]
void cross_entropy(TeamValues& values, StepEdit edit) {
  const std::string logits = edit.need("self");
  const auto targets = edit.tensor("target");
  const Type type = values.type(logits);
  for (const std::string& name : edit.reads()) {
    if (name != logits && values.is_part(name))
      values.refuse(values.type(name), edit, "has a part of its targets or weights");
  }
  if (!type.is_part()) return values.pass(edit);
  const size_t rank = values.sizes(logits).rank();
  const auto reduction = edit.number("reduction");
  const auto ignored = edit.number("ignore_index");
  const auto smoothing = edit.fraction("label_smoothing");
  if (type.dimension != (rank < 2 ? 0 : 1)) values.refuse(type, edit, "takes parts of classes");
  if (type.blocks.size() > 1) values.refuse(type, edit, "takes one block of classes");
  values.keep_apart(type, edit);
  if (edit.has("weight")) values.refuse(type, edit, "weighs its classes");
  const bool are_classes = targets && values.sizes(*targets).rank() + 1 == rank;
  if (!are_classes || !reduction || !ignored || !smoothing)
    values.refuse(type, edit, "is known for whole targets alone");
  values.emit(values.team_step(TeamStep::Kind::CrossEntropy, type),
              {{"logits", TensorArgument{logits}},
               {"targets", TensorArgument{*targets}},
               {"reduction", *reduction},
               {"ignored", *ignored},
               {"smoothing", *smoothing}},
              edit.outputs().front(), Type::equal(), edit.outputs().front());
}

}  // namespace

const TeamRules& product_rules() {
  static const TeamRules rules = {{"linear", linear},
                                  {"addmm", addmm},
                                  {"mm", mm},
                                  {"bmm", mm},
                                  {"matmul", matmul},
                                  {"conv1d", convolution},
                                  {"conv2d", convolution},
                                  {"conv3d", convolution},
                                  {"convolution", convolution},
                                  {"embedding", embedding},
                                  {std::string("scaled_dot_product_attention"), attention},
                                  {"cross_entropy_loss", cross_entropy},
                                  {"lstm", lstm_of_units}};
  return rules;
}

}  // namespace penstock::imported
