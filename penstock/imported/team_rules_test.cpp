// Rules of operators: which parts each takes, derived (testing_team_rules.h).
#include "penstock/imported/team_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/imported/testing_team_rules.h"

namespace penstock::imported {
namespace {

using exported::NamedArgument;
using testing_rules::Case;
using testing_rules::named;
using testing_rules::Operand;
using testing_rules::parts_taken;
using testing_rules::Role;
using testing_rules::sizes;

/// Every operator with numbers for all its operands, and the parts that it takes.
using Table = std::vector<std::pair<Case, std::string>>;

void expect_parts(const Table& table) {
  for (const auto& [one, expected] : table) {
    SCOPED_TRACE(one.title);
    EXPECT_EQ(parts_taken(one), expected) << one.title;
  }
}

TEST(TeamRules, Products) {
  const Operand x{"input", {3, 4, 12}};
  const Operand w{"weight", {8, 12}, Role::Weight};
  expect_parts({
      {{"linear", "linear.default", {x, w, {"bias", {8}, Role::Weight}}},
       "rows, input0, input1, input2"},
      {{"linear without bias", "linear.default", {x, w}}, "rows, input0, input1, input2"},
      {{"linear of values", "linear.default", {x, {"weight", {8, 12}}, {"bias", {8}}}},
       "input0, input1, input2"},
      {{"addmm",
        "addmm.default",
        {{"self", {8}, Role::Weight}, {"mat1", {5, 12}}, {"mat2", {12, 8}, Role::Weight}}},
       "rows, mat10, mat11"},
      {{"addmm of values", "addmm.default", {{"self", {5, 8}}, {"mat1", {5, 6}}, {"mat2", {6, 8}}}},
       "mat11, mat11 mat20, mat20, mat21"},
      {{"mm", "mm.default", {{"self", {5, 12}}, {"mat2", {12, 8}, Role::Weight}}},
       "rows, self0, self1"},
      {{"bmm", "bmm.default", {{"self", {5, 4, 6}}, {"mat2", {5, 6, 7}}}},
       "self0, self0 mat20, self1, self2, self2 mat21, mat20, mat21, mat22"},
      {{"matmul", "matmul.default", {{"self", {2, 5, 4, 6}}, {"other", {2, 5, 6, 7}}}},
       "self0, self0 other0, self1, self1 other1, self2, self3, self3 other2, other0, other1, "
       "other2, other3"},
      {{"matmul broadcast", "matmul.default", {{"self", {5, 4, 6}}, {"other", {6, 7}}}},
       "self0, self1, self2, self2 other0, other0, other1"},
      {{"matmul of a weight",
        "matmul.default",
        {{"self", {3, 4, 6}}, {"other", {6, 7}, Role::Weight}}},
       "rows, self0, self1, self2"},
  });
}

TEST(TeamRules, Convolutions) {
  const Operand image{"input", {2, 8, 5, 5}};
  expect_parts({
      {{"conv2d",
        "conv2d.default",
        {image, {"weight", {6, 8, 3, 3}, Role::Weight}, {"bias", {6}, Role::Weight}},
        {named("padding", sizes({1, 1}))}},
       "rows, input1"},
      {{"conv2d in groups",
        "conv2d.default",
        {image, {"weight", {12, 2, 3, 3}, Role::Weight}, {"bias", {12}, Role::Weight}},
        {named("groups", int64_t{4})}},
       "rows, input1"},
      {{"conv1d",
        "conv1d.default",
        {{"input", {2, 6, 9}}, {"weight", {5, 6, 3}, Role::Weight}, {"bias", {5}, Role::Weight}}},
       "rows, input1"},
      {{"batch_norm",
        "batch_norm.default",
        {image,
         {"weight", {8}, Role::Weight},
         {"bias", {8}, Role::Weight},
         {"running_mean", {8}, Role::Buffer},
         {"running_var", {8}, Role::Buffer}},
        {named("training", true), named("momentum", 0.1), named("eps", 1e-5),
         named("cudnn_enabled", false)}},
       "input1"},
      {{"group_norm",
        "group_norm.default",
        {image, {"weight", {8}, Role::Weight}, {"bias", {8}, Role::Weight}},
        {named("num_groups", int64_t{4})}},
       "input1"},
      {{"max_pool2d",
        "max_pool2d.default",
        {{"self", {2, 6, 4, 4}}},
        {named("kernel_size", sizes({2, 2}))}},
       "self0, self1"},
      {{"avg_pool2d",
        "avg_pool2d.default",
        {{"self", {2, 6, 4, 4}}},
        {named("kernel_size", sizes({2, 2}))}},
       "self0, self1"},
      {{"adaptive_avg_pool2d",
        "adaptive_avg_pool2d.default",
        {{"self", {2, 6, 4, 4}}},
        {named("output_size", sizes({2, 2}))}},
       "self0, self1"},
      {{"pad", "constant_pad_nd.default", {{"self", {2, 6, 4, 4}}}, {named("pad", sizes({1, 2}))}},
       "self0, self1, self2"},
  });
}

TEST(TeamRules, TablesAndLosses) {
  const Operand logits{"self", {6, 9}};
  const Operand targets{"target", {6}, Role::Places, 9};
  const auto loss = [&](const char* title, int64_t reduction, int64_t ignored, double smoothing) {
    return Case{title,
                "cross_entropy_loss.default",
                {logits, targets},
                {named("reduction", reduction), named("ignore_index", ignored),
                 named("label_smoothing", smoothing)}};
  };
  expect_parts({
      {{"embedding",
        "embedding.default",
        {{"weight", {9, 4}, Role::Weight}, {"indices", {4, 5}, Role::Places, 9}},
        {named("padding_idx", int64_t{3})}},
       "rows"},
      {loss("mean of losses", 1, 2, 0), "self1"},
      {loss("sum of losses", 2, -100, 0.1), "self1"},
      {loss("losses", 0, 2, 0.2), "self1"},
      {{"losses of places",
        "cross_entropy_loss.default",
        {{"self", {2, 9, 4}}, {"target", {2, 4}, Role::Places, 9}}},
       "self1"},
      {{"weighed losses", "cross_entropy_loss.default", {logits, targets, {"weight", {9}}}}, ""},
  });
}

/// One layer of 7 hidden units, or of more: in both directions.
Case lstm(const char* title, bool both, bool batch_first, Role states = Role::Buffer) {
  constexpr int64_t kUnits = 7;
  const int64_t directions = both ? 2 : 1;
  Case one{title,
           "lstm.input",
           {{"input", {3, 4, 5}},
            {"h", {directions, batch_first ? 3 : 4, kUnits}, states},
            {"c", {directions, batch_first ? 3 : 4, kUnits}, states}},
           {named("has_biases", true), named("num_layers", int64_t{1}), named("dropout", 0.0),
            named("train", true), named("bidirectional", both), named("batch_first", batch_first)},
           2};
  one.is_tuple = true;
  std::vector<std::string> weights;
  for (const char* end : {"", "_reverse"}) {
    if (*end != 0 && !both) break;
    for (const auto& [name, columns] : {std::pair<std::string, int64_t>{"ih", 5}, {"hh", kUnits}})
      one.operands.push_back({name + end, {4 * kUnits, columns}, Role::Weight});
    for (const std::string name : {"bias_ih", "bias_hh"})
      one.operands.push_back({name + end, {4 * kUnits}, Role::Weight});
    for (const std::string name : {"ih", "hh", "bias_ih", "bias_hh"}) weights.push_back(name + end);
  }
  one.lists = {{"hx", {"h", "c"}}, {"params", weights}};
  return one;
}

TEST(TeamRules, Lstms) {
  Case cells = lstm("cells that are read", false, true);
  cells.outputs = 3;
  Case projected = lstm("projections", false, true);
  projected.operands[1].sizes[2] = 3;
  projected.operands[4].sizes[1] = 3;
  projected.operands.push_back({"hr", {3, 7}, Role::Weight});
  projected.lists[1].second.push_back("hr");
  expect_parts({{lstm("batch first", false, true), "rows"},
                {lstm("places first", false, false), "rows"},
                {lstm("in both directions", true, true), "rows"},
                {lstm("states with a gradient", false, true, Role::Input), ""},
                {cells, ""},
                {projected, ""}});
}

/// As the whole operator does.
TEST(TeamRules, LossesOfBfloat16AreSumsInFloat32) {
  constexpr int64_t kClasses = 300;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const at::Tensor logits = at::empty({64, kClasses}).normal_(0, 2, generator).to(at::kBFloat16);
  const at::Tensor targets = at::empty({64}, at::kLong).random_(0, kClasses, generator);
  const at::Tensor whole =
      at::cross_entropy_loss(logits.to(at::kFloat), targets, {}, 0).to(at::kBFloat16);
  const auto losses =
      model::team_testing::in_team<at::Tensor>(2, [&](model::team_testing::ThreadTeam& team) {
        const int64_t begin = team.member() * kClasses / 2;
        const TeamStep step{.kind = TeamStep::Kind::CrossEntropy,
                            .dimension = 1,
                            .whole = kClasses,
                            .runs = {{begin, kClasses / 2}},
                            .lengths = {kClasses / 2, kClasses / 2}};
        return run_team_step(
            step, {logits.narrow(1, begin, kClasses / 2), targets, int64_t{0}, int64_t{-100}, 0.0},
            &team);
      });
  for (const at::Tensor& own : losses) EXPECT_TRUE(at::equal(own, whole)) << own << whole;
}

/// What the error of a step says; empty: it has none.
std::string error_of(const TeamStep& step, const std::vector<c10::IValue>& arguments) {
  try {
    run_team_step(step, arguments, nullptr);
    return {};
  } catch (const c10::IndexError& error) {
    return error.what_without_backtrace();
  }
}

/// PyTorch's own operators throw IndexError as well.
TEST(TeamRules, PlacesOutOfRangeAreErrors) {
  const at::Tensor numbers = at::ones({2, 3});
  const auto places = [](int64_t first, int64_t second) { return at::tensor({first, second}); };
  const TeamStep loss{
      .kind = TeamStep::Kind::CrossEntropy, .dimension = 1, .whole = 6, .runs = {{3, 3}}};
  const auto error_of_targets = [&](int64_t first, int64_t second) {
    return error_of(loss, {numbers, places(first, second), int64_t{1}, int64_t{-100}, 0.0});
  };
  EXPECT_EQ(error_of_targets(0, -100), "");
  EXPECT_EQ(error_of_targets(5, -1), "target -1 is out of range: expected 0 to 5");
  EXPECT_EQ(error_of_targets(6, 0), "target 6 is out of range: expected 0 to 5");
  EXPECT_THROW(at::cross_entropy_loss(at::ones({2, 6}), places(6, 0)), c10::IndexError);

  const TeamStep table{.kind = TeamStep::Kind::Embedding, .whole = 4, .runs = {{2, 2}}};
  const auto error_of_tokens = [&](int64_t first, int64_t second) {
    return error_of(table, {numbers, places(first, second), int64_t{-1}});
  };
  EXPECT_EQ(error_of_tokens(0, 3), "");
  EXPECT_EQ(error_of_tokens(0, 4), "token 4 is out of range: expected 0 to 3");
  EXPECT_EQ(error_of_tokens(-1, 3), "token -1 is out of range: expected 0 to 3");
  EXPECT_THROW(at::embedding(at::ones({4, 3}), places(0, 4)), c10::IndexError);
}

TEST(TeamRules, Attention) {
  const auto heads = [](const char* name, int64_t count) {
    return Operand{name, {2, count, 3, 4}};
  };
  const std::string target = "scaled_dot_product_attention.default";
  Table table = {
      {{"attention", target, {heads("query", 8), heads("key", 8), heads("value", 8)}},
       "query1, query1 key1, query1 value1, key1, key1 value1, value1"},
      {{"attention with a mask",
        target,
        {heads("query", 8), heads("key", 8), heads("value", 8), {"attn_mask", {2, 1, 3, 3}}}},
       "query1, query1 key1, query1 value1, key1, key1 value1, value1"},
      {{"attention with biases of heads",
        target,
        {heads("query", 8), heads("key", 8), heads("value", 8), {"attn_mask", {1, 8, 3, 3}}},
        {named("dropout_p", 0.3)}},
       "query1, query1 key1, query1 value1, query1 attn_mask1, key1, key1 value1, key1 attn_mask1, "
       "value1, value1 attn_mask1"},
      {{"attention in groups",
        target,
        {heads("query", 8), heads("key", 4), heads("value", 4)},
        {named("enable_gqa", true)}},
       "query1, query1 key1, query1 value1, key1, key1 value1, value1"}};
  expect_parts(table);
}

TEST(TeamRules, Numbers) {
  const Operand x{"self", {3, 4, 6}};
  const auto other = [](std::vector<int64_t> of) { return Operand{"other", std::move(of)}; };
  expect_parts({
      {{"add", "add.Tensor", {x, other({3, 4, 6})}},
       "self0, self0 other0, self1, self1 other1, self2, self2 other2, other0, other1, other2"},
      {{"mul of a vector", "mul.Tensor", {x, other({6})}},
       "self0, self1, self2, self2 other0, other0"},
      {{"mul of a weight", "mul.Tensor", {x, {"other", {6}, Role::Weight}}}, "self0, self1, self2"},
      {{"sub of a column", "sub.Tensor", {x, other({4, 1})}},
       "self0, self1, self1 other0, self2, other0"},
      {{"div in place", "div_.Tensor", {x, other({4, 1})}}, "self0, self1, self1 other0, self2"},
      {{"masked_fill",
        "masked_fill.Scalar",
        {x, {"mask", {4, 6}, Role::Truths}},
        {named("value", -3.0)}},
       "self0, self1, self1 mask0, self2, self2 mask1, mask0, mask1"},
      {{"where", "where.self", {{"condition", {6}, Role::Truths}, x, other({3, 4, 6})}},
       "condition0, condition0 self2, condition0 other2, self0, self0 other0, self1, self1 other1, "
       "self2, self2 other2, other0, other1, other2"},
      {{"gelu", "gelu.default", {x}}, "self0, self1, self2"},
      {{"relu in place", "relu_.default", {x}}, "self0, self1, self2"},
      {{"silu", "silu.default", {x}}, "self0, self1, self2"},
      {{"pow", "pow.Tensor_Scalar", {x}, {named("exponent", int64_t{2})}}, "self0, self1, self2"},
      {{"softmax", "softmax.int", {x}, {named("dim", int64_t{-1})}}, "self0, self1"},
      {{"cumsum", "cumsum.default", {x}, {named("dim", int64_t{1})}}, "self0, self2"},
      {{"sum", "sum.dim_IntList", {x}, {named("dim", sizes({1})), named("keepdim", false)}},
       "self0, self1, self2"},
      {{"mean", "mean.dim", {x}, {named("dim", sizes({-1})), named("keepdim", true)}},
       "self0, self1"},
      {{"largest",
        "max.dim",
        {x},
        {named("dim", int64_t{2}), named("keepdim", true)},
        2,
        false,
        true},
       "self0, self1"},
      {{"larger", "max.other", {x, other({6})}}, "self0, self1, self2, self2 other0, other0"},
      {{"topk",
        "topk.default",
        {x},
        {named("k", int64_t{2}), named("dim", int64_t{1})},
        2,
        false,
        true},
       "self0, self2"},
      {{"layer_norm",
        "layer_norm.default",
        {{"input", {3, 4, 6}}, {"weight", {6}, Role::Weight}, {"bias", {6}, Role::Weight}},
        {named("normalized_shape", sizes({6}))}},
       "input0, input1"},
      {{"dropout",
        "dropout.default",
        {{"input", {3, 4, 6}}},
        {named("p", 0.4), named("train", true)}},
       "input0, input1, input2"},
      {{"dropout of channels",
        "feature_dropout.default",
        {{"input", {3, 4, 6}}},
        {named("p", 0.4), named("train", true)}},
       "input0, input1, input2"},
  });
}

TEST(TeamRules, Shapes) {
  const Operand x{"self", {3, 4, 12}};
  const auto of = [&](const char* title, const char* target, std::vector<NamedArgument> others,
                      int outputs = 1) {
    return Case{title, target, {x}, std::move(others), outputs};
  };
  const auto number = [](const char* name, int64_t value) { return named(name, value); };
  expect_parts({
      {of("view into heads", "view.default", {named("size", sizes({3, 4, 4, 3}))}),
       "self0, self1, self2"},
      {of("view of tokens", "view.default", {named("size", sizes({12, 12}))}),
       "self0, self1, self2"},
      {of("view with a rest", "view.default", {named("size", sizes({3, 2, -1, 12}))}),
       "self0, self1, self2"},
      {of("reshape of all", "reshape.default", {named("shape", sizes({144}))}),
       "self0, self1, self2"},
      {of("flatten", "flatten.using_ints", {number("start_dim", 1)}), "self0, self1, self2"},
      {of("unflatten", "unflatten.int", {number("dim", -1), named("sizes", sizes({4, 3}))}),
       "self0, self1, self2"},
      {of("transpose", "transpose.int", {number("dim0", 1), number("dim1", 2)}),
       "self0, self1, self2"},
      {of("permute", "permute.default", {named("dims", sizes({2, 0, 1}))}), "self0, self1, self2"},
      {of("unsqueeze", "unsqueeze.default", {number("dim", 1)}), "self0, self1, self2"},
      {{"squeeze", "squeeze.dim", {{"self", {3, 1, 6}}}, {number("dim", 1)}}, "self0, self2"},
      {of("select", "select.int", {number("dim", 1), number("index", 2)}), "self0, self2"},
      {of("slice", "slice.Tensor", {number("dim", 2), number("start", 2), number("end", 8)}),
       "self0, self1"},
      {of("slice of all", "slice.Tensor", {number("dim", 2), number("start", 0)}),
       "self0, self1, self2"},
      {of("split", "split.Tensor", {number("split_size", 4), number("dim", 2)}, 3), "self0, self1"},
      {of("chunk", "chunk.default", {number("chunks", 2), number("dim", 1)}, 2), "self0, self2"},
      {of("unbind", "unbind.int", {number("dim", 1)}, 4), "self0, self2"},
      {{"expand", "expand.default", {{"self", {3, 1, 6}}}, {named("size", sizes({3, 5, -1}))}},
       "self0, self2"},
      {of("repeat", "repeat.default", {named("repeats", sizes({2, 1, 3, 1}))}), "self0, self2"},
      {of("repeat_interleave", "repeat_interleave.self_int",
          {number("repeats", 2), number("dim", 1)}),
       "self0, self1, self2"},
      {{"cat",
        "cat.default",
        {{"a", {3, 4, 6}}, {"b", {3, 4, 6}}},
        {named("dim", int64_t{-1})},
        1,
        true},
       "a0, a0 b0, a1, a1 b1, b0, b1"},
      {{"stack",
        "stack.default",
        {{"a", {3, 4, 6}}, {"b", {3, 4, 6}}},
        {named("dim", int64_t{1})},
        1,
        true},
       "a0, a0 b0, a1, a1 b1, a2, a2 b2, b0, b1, b2"},
      {of("roll", "roll.default", {named("shifts", sizes({1})), named("dims", sizes({1}))}),
       "self0, self2"},
      {of("flip", "flip.default", {named("dims", sizes({2}))}), "self0, self1"},
      {{"index_select",
        "index_select.default",
        {x, {"index", {5}, Role::Places, 4}},
        {number("dim", 1)}},
       "self0, self2"},
      {of("tril", "tril.default", {}), "self0"},
      {of("without a rule", "erfc.default", {}), ""},
  });
}

}  // namespace
}  // namespace penstock::imported
