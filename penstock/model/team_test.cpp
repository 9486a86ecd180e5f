#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "penstock/model/parts.h"
#include "penstock/model/team_functions.h"
#include "penstock/model/testing_team.h"

namespace penstock::model {
namespace {

using team_testing::in_team;
using team_testing::ThreadTeam;

at::Tensor numbers_of(int member, at::IntArrayRef sizes) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(member) + 7);
  return at::empty(sizes, at::kDouble).normal_(0, 1, generator);
}

at::Tensor sum_of(int members, at::IntArrayRef sizes) {
  at::Tensor sum = numbers_of(0, sizes).clone();
  for (int m = 1; m < members; ++m) sum.add_(numbers_of(m, sizes));
  return sum;
}

TEST(Team, SumsAreMadeInTheOrderOfTheMembers) {
  for (const int members : {1, 2, 3, 4}) {
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5, 7}, {1}, {130}, {0, 3}}) {
      const auto sums = in_team<at::Tensor>(members, [&](ThreadTeam& team) {
        const at::Tensor sum = team.sum(numbers_of(team.member(), sizes));
        EXPECT_FALSE(team.mistaken);
        return sum;
      });
      for (const at::Tensor& sum : sums) EXPECT_TRUE(at::equal(sum, sum_of(members, sizes)));
    }
  }
}

TEST(Team, TheBytesOfASumAreThoseOfARing) {
  const auto bytes = in_team<int64_t>(4, [&](ThreadTeam& team) {
    (void)team.sum(numbers_of(team.member(), {64, 16}));
    return team.sent_bytes;
  });
  for (const int64_t sent : bytes) EXPECT_EQ(sent, 2 * 3 * 64 * 16 * 8 / 4);
}

TEST(Team, TheLargestOfEachNumber) {
  const auto results = in_team<at::Tensor>(3, [](ThreadTeam& team) {
    return team.largest(numbers_of(team.member(), {9, 4}));
  });
  const at::Tensor expected =
      at::maximum(at::maximum(numbers_of(0, {9, 4}), numbers_of(1, {9, 4})), numbers_of(2, {9, 4}));
  for (const at::Tensor& result : results) EXPECT_TRUE(at::equal(result, expected));
}

struct Passes {
  at::Tensor value;
  at::Tensor gradient;
};

/// The forward pass of `x` and the gradient of sum(value * weight) by it.
Passes passes(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& function,
              const std::function<at::Tensor(const at::Tensor&)>& weight) {
  const at::Tensor input = x.detach().requires_grad_(true);
  const at::Tensor value = function(input);
  const auto gradients = torch::autograd::grad({(value * weight(value)).sum()}, {input});
  return {value.detach(), gradients.front()};
}

at::Tensor ramp(const at::Tensor& like) {
  return at::arange(like.numel(), like.options()).view(like.sizes()) + 1;
}

TEST(TeamFunctions, EachIsTheOthersGradient) {
  const Division division{1, {2, 1, 4}};
  const auto equal = [](const at::Tensor& like) { return ramp(like); };
  in_team<int>(3, [&](ThreadTeam& team) {
    const auto own = [&](const at::Tensor& like) { return ramp(like) * (team.member() + 1); };
    const int64_t begin = team.member() == 0 ? 0 : team.member() == 1 ? 2 : 3;
    const int64_t length = division.lengths[static_cast<size_t>(team.member())];
    const at::Tensor partial = numbers_of(team.member(), {3, 7});
    const at::Tensor whole = numbers_of(9, {3, 7});
    const at::Tensor mine = whole.narrow(1, begin, length);

    Passes made = passes(
        partial, [&](const at::Tensor& x) { return sum_forward(x, team); }, equal);
    EXPECT_TRUE(at::equal(made.value, sum_of(3, {3, 7})));
    EXPECT_TRUE(at::equal(made.gradient, ramp(whole)));

    made = passes(
        whole, [&](const at::Tensor& x) { return sum_backward(x, team); }, own);
    EXPECT_TRUE(at::equal(made.value, whole));
    EXPECT_TRUE(at::equal(made.gradient, ramp(whole) * 6));

    made = passes(
        mine, [&](const at::Tensor& x) { return gather(x, team, division); }, equal);
    EXPECT_TRUE(at::equal(made.value, whole));
    EXPECT_TRUE(at::equal(made.gradient, ramp(whole).narrow(1, begin, length)));

    made = passes(
        whole, [&](const at::Tensor& x) { return part(x, team, division); }, own);
    EXPECT_TRUE(at::equal(made.value, mine));
    std::vector<at::Tensor> sides;
    for (int m = 0; m < 3; ++m) {
      const int64_t side = division.lengths[static_cast<size_t>(m)];
      sides.push_back(ramp(at::empty({3, side}, at::kDouble)) * (m + 1));
    }
    EXPECT_TRUE(at::equal(made.gradient, at::cat(sides, 1)));

    made = passes(
        mine, [&](const at::Tensor& x) { return gather_sum(x, team, division); }, own);
    EXPECT_TRUE(at::equal(made.value, whole));
    EXPECT_TRUE(at::equal(made.gradient, (ramp(whole) * 6).narrow(1, begin, length)));

    made = passes(
        partial, [&](const at::Tensor& x) { return sum_part(x, team, division); }, own);
    EXPECT_TRUE(at::equal(made.value, sum_of(3, {3, 7}).narrow(1, begin, length)));
    EXPECT_TRUE(at::equal(made.gradient, at::cat(sides, 1)));
    EXPECT_FALSE(team.mistaken);
    return 0;
  });
}

TEST(TensorPart, PartsMakeTheWholeAgain) {
  const at::Tensor whole = at::arange(24, at::kFloat).view({12, 2});
  const TensorPart first{{12, 2}, 0, 0, {{0, 2}, {4, 2}, {8, 2}}};
  const TensorPart second{{12, 2}, 0, 0, {{2, 2}, {6, 2}, {10, 2}}};
  EXPECT_EQ(first.sizes(), (std::vector<int64_t>{6, 2}));
  at::Tensor again = at::zeros({12, 2});
  first.put_into(again, first.of(whole));
  second.put_into(again, second.of(whole));
  EXPECT_TRUE(at::equal(again, whole));
  EXPECT_TRUE(
      at::equal(first.of(whole).select(1, 0), at::tensor({0, 2, 8, 10, 16, 18}, at::kFloat)));
  EXPECT_TRUE((TensorPart{.whole = {12, 2}}.is_whole()));
}

}  // namespace
}  // namespace penstock::model
