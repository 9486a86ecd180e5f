// Runs whose boundaries are coded: the bits of one worker with the same codings, whoever holds the
// stages, and losses near those without.
#include "penstock/runtime/boundary_codings.h"

#include <gtest/gtest.h>

#include "penstock/runtime/test_support.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;

std::vector<CodedBoundary> all_boundaries(int stages, const char* name) {
  std::vector<CodedBoundary> boundaries;
  for (int32_t to = 1; to < stages; ++to) {
    for (int32_t from = 0; from < to; ++from)
      boundaries.push_back({StageId{from}, StageId{to}, plan::parse_boundary(name)});
  }
  return boundaries;
}

Case case_of(Strategy kind, std::vector<int> replicas, const char* name) {
  Case setup{.kind = kind, .replicas = std::move(replicas), .parts = 4, .samples = 12 * 6};
  setup.groups = 2;
  setup.boundaries = all_boundaries(static_cast<int>(setup.replicas.size()), name);
  return setup;
}

/// All stages on one worker, which hands over to itself.
Case on_one_worker(Case setup) {
  setup.kind = Strategy::Interleaved;
  setup.chunks = static_cast<int>(setup.replicas.size());
  setup.replicas.assign(setup.replicas.size(), 1);
  setup.recompute = {};
  return setup;
}

TEST(BoundaryCodings, ResultsHaveTheBitsOfOneWorker) {
  const model::Model model = skip_model(0.1);
  for (const char* name : {"float32", "bfloat16", "float16", "int8", "subspace:6"}) {
    const Trained one = train(model, on_one_worker(case_of(Strategy::GPipe, {1, 1, 1, 1}, name)));
    for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::ZbV}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(to_string(kind)));
      expect_same_bits(train(model, case_of(kind, {1, 1, 1, 1}, name)), one);
    }
    SCOPED_TRACE(name);
    expect_same_bits(train(model, case_of(Strategy::OneFOneBFlush, {2, 1, 2, 1}, name)), one);
  }
}

TEST(BoundaryCodings, StagesThatRecomputeSeeTheCodedInputsAgain) {
  Case setup = case_of(Strategy::OneFOneBFlush, {1, 1, 1}, "int8");
  const Trained kept = train(skip_model(), setup);
  setup.recompute = {true, true, true};
  expect_same_bits(train(skip_model(), setup), kept);
}

TEST(BoundaryCodings, LossesStayNearThoseWithoutCodings) {
  const model::Model model = skip_model();
  Case setup = case_of(Strategy::OneFOneBFlush, {1, 1, 1}, "float32");
  setup.samples = 12 * 40;
  const Trained exact = train(model, setup);
  for (const char* name : {"bfloat16", "float16", "int8"}) {
    setup.boundaries = all_boundaries(3, name);
    const Trained coded = train(model, setup);
    EXPECT_NE(coded.losses, exact.losses) << name;
    EXPECT_LT(loss_difference(exact.losses, coded.losses), 0.03) << name;
    EXPECT_LT(coded.losses.back(), 0.9 * coded.losses.front()) << name;
  }
}

TEST(BoundaryCodings, ValuesAreRoundedToTheNearestAndGradientsAtRandom) {
  const RandomBatches batches(12, 12, 1, 8, 4);
  const std::vector<schedule::TeamPlace> teams{{.whole = StageId{0}}, {.whole = StageId{1}}};
  const at::Tensor value = at::randn({4, 64});
  const MessageLayout layout = [&](const Message&) {
    return std::vector<TensorLayout>{{.sizes = {4, 64}}, {.sizes = {4, 64}}};
  };
  const BoundaryCodings codings(all_boundaries(2, "int8"), teams, batches, layout);
  const Message there{.from = StageId{0}, .to = StageId{1}, .micro_batch = MicroBatchId{0}};
  const Message back{
      .backward = true, .from = StageId{1}, .to = StageId{0}, .micro_batch = MicroBatchId{0}};
  EXPECT_TRUE(codings.codes(there));
  EXPECT_TRUE(codings.codes(back));
  const model::Tensors values = codings.encode(there, {value, value});
  EXPECT_TRUE(values[0].equal(values[1]));
  const model::Tensors gradients = codings.encode(back, {value, value});
  EXPECT_FALSE(gradients[0].equal(gradients[1]));
  EXPECT_TRUE(gradients[0].equal(codings.encode(back, {value})[0]));
  const model::Tensors lacking = codings.decode(back, codings.encode(back, {at::Tensor(), value}));
  EXPECT_FALSE(lacking[0].defined());
  EXPECT_EQ(lacking[1].sizes(), value.sizes());
}

}  // namespace
}  // namespace penstock::runtime::testing
