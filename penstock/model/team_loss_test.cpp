#include "penstock/model/team_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "penstock/model/testing_team.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using team_testing::in_team;
using team_testing::ThreadTeam;

struct Lost {
  LossResult loss;
  at::Tensor gradient;
};

at::Tensor logits_of(at::IntArrayRef sizes) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(21);
  // Whole numbers: some tokens have several largest logits.
  return at::empty(sizes, at::kDouble).normal_(0, 2, generator).round();
}

Lost whole(const at::Tensor& logits, const at::Tensor& targets, const MiniBatchSize& size,
           const LossSpec& spec) {
  const at::Tensor leaf = logits.detach().clone().requires_grad_(true);
  Lost lost{cross_entropy(leaf, targets, size, spec), {}};
  lost.gradient = torch::autograd::grad({lost.loss.scaled_loss}, {leaf}).front();
  return lost;
}

TEST(TeamLoss, IsThatOfTheWholeLogits) {
  const at::Tensor logits = logits_of({3, 5, 10});
  auto generator = at::make_generator<at::CPUGeneratorImpl>(22);
  at::Tensor targets = at::empty({3, 5}, at::kLong).random_(0, 10, generator);
  targets[0][1] = 7;
  targets[2][4] = 7;
  for (const double smoothing : {0.0, 0.1}) {
    const LossSpec spec{.name = "cross-entropy", .label_smoothing = smoothing, .ignore_index = 7};
    const MiniBatchSize size{.samples = 6, .targets = 25};
    const Lost expected = whole(logits, targets, size, spec);
    EXPECT_GT(expected.loss.correct, 0);
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{10}, {5, 5}, {4, 3, 3}, {1, 8, 1}}) {
      const Division parts{2, lengths};
      const auto members = static_cast<int>(lengths.size());
      in_team<int>(members, [&](ThreadTeam& team) {
        int64_t begin = 0;
        for (int m = 0; m < team.member(); ++m) begin += lengths[static_cast<size_t>(m)];
        const int64_t own = lengths[static_cast<size_t>(team.member())];
        const at::Tensor leaf =
            logits.narrow(2, begin, own).contiguous().detach().requires_grad_(true);
        const LossResult loss = team_cross_entropy(leaf, targets, size, spec, team, parts);
        EXPECT_NEAR(loss.loss_sum, expected.loss.loss_sum, 1e-12 * expected.loss.loss_sum);
        EXPECT_EQ(loss.correct, expected.loss.correct);
        EXPECT_EQ(loss.targets, expected.loss.targets);
        const at::Tensor gradient = torch::autograd::grad({loss.scaled_loss}, {leaf}).front();
        EXPECT_TRUE(at::allclose(gradient, expected.gradient.narrow(2, begin, own), 0, 1e-14));
        EXPECT_FALSE(team.mistaken);
        return 0;
      });
    }
  }
}

TEST(TeamLoss, MembersExchangeNumbersPerToken) {
  const at::Tensor logits = logits_of({64, 500});
  const at::Tensor targets = at::arange(64, at::kLong);
  const auto bytes = in_team<int64_t>(2, [&](ThreadTeam& team) {
    const at::Tensor part = logits.narrow(1, team.member() * 250, 250).contiguous();
    (void)team_cross_entropy(part, targets, {.samples = 64}, {.name = "cross-entropy"}, team,
                             {1, {250, 250}});
    return team.sent_bytes;
  });
  // The largest, two sums, the class: a ring's 2 (t - 1) / t of each.
  EXPECT_EQ(bytes.front(), 4 * 64 * int64_t{sizeof(double)});
}

TEST(TeamLoss, RefusesWhatCrossEntropyRefuses) {
  in_team<int>(2, [&](ThreadTeam& team) {
    const at::Tensor part = at::zeros({2, 3}, at::kDouble);
    const Division parts{1, {3, 3}};
    const LossSpec spec{.name = "cross-entropy"};
    const auto of = [&](const at::Tensor& targets) {
      return team_cross_entropy(part, targets, {.samples = 2}, spec, team, parts);
    };
    EXPECT_THROW((void)of(at::tensor({0, 6}, at::kLong)), ConfigError);
    EXPECT_THROW((void)of(at::tensor({0, 1, 2}, at::kLong)), ConfigError);
    EXPECT_THROW((void)of(at::zeros({2})), ConfigError);
    return 0;
  });
  EXPECT_FALSE(make_team_loss({.name = "mean-squared-error"}));
  EXPECT_FALSE(make_team_loss({.name = "cross-entropy", .auxiliary_weights = {0.3}}));
}

}  // namespace
}  // namespace penstock::model
