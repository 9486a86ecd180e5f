// Checks of values that are far larger than memory should be used for.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/imported/check_team.h"
#include "penstock/imported/step_edit.h"

namespace penstock::imported {
namespace {

using exported::NamedArgument;
using exported::TensorArgument;
using shard::Type;

constexpr int64_t kWords = 128256;
constexpr int64_t kWidth = 4096;
constexpr int64_t kPlaces = 2048;

class SpreadWords final : public shard::Walk {
 public:
  explicit SpreadWords(shard::Regions& regions) : Walk(regions) {}
  std::optional<Type> spread(size_t) override {
    if (!type_) type_ = Type::part(0, regions().make(), {kWords});
    regions().divide(type_->region, kWords);
    return type_;
  }
  int team() const override { return 2; }

 private:
  std::optional<Type> type_;
};

/// The last layer of a language model: its table is transposed, and the last place of each sample
/// has no target.
struct LastLayer {
  LastLayer() {
    parts.kind = "last";
    parts.inputs = {"x"};
    parts.parameters = {"table"};
    parts.outputs = {"flat"};
    add("x", {2 * kPlaces, kWidth}, "", {});
    add("table", {kWords, kWidth}, "", {});
    add("columns", {kWidth, kWords}, "t.default", {self("table")});
    add("product", {2 * kPlaces, kWords}, "mm.default",
        {self("x"), {.name = "mat2", .value = TensorArgument{"columns"}}});
    add("logits", {2, kPlaces, kWords}, "view.default",
        {self("product"), {.name = "size", .value = std::vector<int64_t>{2, kPlaces, kWords}}});
    add("early", {2, kPlaces - 1, kWords}, "slice.Tensor",
        {self("logits"), number("dim", 1), number("start", 0), number("end", kPlaces - 1)});
    add("flat", {2 * (kPlaces - 1), kWords}, "reshape.default",
        {self("early"), {.name = "shape", .value = std::vector<int64_t>{-1, kWords}}});
    SpreadWords walk(regions);
    const shard::Member member{regions, 2, 1};
    const TeamLayer first = in_team(parts, program, {Type::equal()}, walk, nullptr);
    made = in_team(parts, program, first.types.inputs, walk, &member);
  }

  static NamedArgument self(const std::string& name) {
    return {.name = "self", .value = TensorArgument{name}};
  }
  static NamedArgument number(const std::string& name, int64_t value) {
    return {.name = name, .value = value};
  }

  void add(const std::string& name, const std::vector<int64_t>& sizes, const std::string& target,
           std::vector<NamedArgument> inputs) {
    exported::TensorMeta& meta = program.tensors[name];
    meta.type = exported::ScalarType::Float;
    for (const int64_t size : sizes) meta.sizes.push_back({.value = size});
    if (target.empty()) return;
    program.steps.push_back({.node = {.target = "torch.ops.aten." + target,
                                      .inputs = std::move(inputs),
                                      .outputs = {TensorArgument{name}},
                                      .name = name}});
  }

  std::vector<std::string> errors() const {
    return check_team({parts, program, made, {regions, 2, 1}});
  }

  /// Changes the member's step that makes the value.
  void change(const std::string& output, const std::function<void(StepEdit&)>& how) {
    for (Step& step : made.program.steps) {
      StepEdit edit(step, made.program);
      if (edit.outputs().front() != output) continue;
      how(edit);
      step = edit.step();
    }
  }

  LayerParts parts;
  FlatProgram program;
  shard::Regions regions;
  TeamLayer made;
};

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// The logits alone would be 4.2 GB of places.
TEST(CheckTeamOfLargeValues, NeedsLittleMemory) {
  const LastLayer layer;
  const double before = peak_megabytes();
  EXPECT_EQ(layer.errors(), std::vector<std::string>());
  EXPECT_LT(peak_megabytes() - before, 150);
  EXPECT_EQ(layer.made.values.at("flat").dimension, 1u);
}

TEST(CheckTeamOfLargeValues, FindsOtherPlaces) {
  const auto expect_refused = [](const std::string& output,
                                 const std::function<void(StepEdit&)>& how) {
    LastLayer layer;
    layer.change(output, how);
    EXPECT_NE(layer.errors(), std::vector<std::string>()) << output;
  };
  expect_refused("logits", [](StepEdit& step) {
    step.set_numbers("size", {kPlaces, 2, kWords / 2});
  });
  expect_refused("early", [](StepEdit& step) {
    step.set_number("start", 1);
    step.set_number("end", kPlaces);
  });
  expect_refused("flat", [](StepEdit& step) {
    step.set_numbers("shape", {kWords / 2, 2 * (kPlaces - 1)});
  });
  expect_refused("columns",
                 [](StepEdit& step) { step.step().node.target = "torch.ops.aten.alias.default"; });
  LastLayer layer;
  Type& type = layer.made.values.at("logits");
  type.dimension = 1;
  EXPECT_NE(layer.errors(), std::vector<std::string>());
}

}  // namespace
}  // namespace penstock::imported
