#include "penstock/plan/boundary_coding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/plan/boundaries.h"
#include "penstock/util/error.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(BoundaryCodings, NamesAreReadBack) {
  for (const CodingTraits& row : codings()) {
    const BoundaryCoding coding{.kind = row.coding, .rank = row.takes_rank ? 160 : 0};
    EXPECT_EQ(parse_boundary(to_string(coding)), coding);
  }
  EXPECT_EQ(to_string(parse_boundary("subspace:160")), "subspace:160");
  EXPECT_EQ(parse_boundary_choice("auto"), std::nullopt);
  for (const char* name : {"", "int4", "int8:3", "Float16", "auto"}) {
    EXPECT_THAT(
        [&] { parse_boundary(name); },
        ThrowsMessage<ConfigError>(HasSubstr("float32, bfloat16, float16, int8, subspace:K")))
        << name;
  }
  for (const char* name : {"subspace", "subspace:", "subspace:0", "subspace:-1", "subspace:1x"}) {
    EXPECT_THAT([&] { parse_boundary(name); },
                ThrowsMessage<ConfigError>(HasSubstr("expected a rank from 1")))
        << name;
  }
}

int64_t bytes_of(const char* coding, const CodedValues& values) {
  return coded_bytes(parse_boundary(coding), values);
}

TEST(BoundaryCodings, BytesAreThoseOfTheFormulas) {
  const CodedValues values{.bytes = 4 * 1024, .width = 512};
  EXPECT_EQ(bytes_of("float32", values), 4096);
  EXPECT_EQ(bytes_of("bfloat16", values), 2048);
  EXPECT_EQ(bytes_of("float16", values), 2048);
  EXPECT_EQ(bytes_of("int8", values), 1024 + 2 * 16);
  EXPECT_EQ(bytes_of("subspace:160", values), 2 * 160 * 4);
  EXPECT_EQ(bytes_of("subspace:512", values), 4096);
  EXPECT_EQ(bytes_of("subspace:160", {.bytes = 4096}), 4096);
  EXPECT_EQ(bytes_of("int8", {.bytes = INT64_MAX}), INT64_MAX / 4 + 1 + 2 * (int64_t{1} << 55));
}

TEST(BoundaryCodings, NumbersOf16BitsStayWhereTheCodingHasAsMany) {
  const CodedValues values{.bytes = 2 * 1024, .precision = Precision::BFloat16, .width = 512};
  EXPECT_EQ(bytes_of("bfloat16", values), 2048);
  EXPECT_EQ(bytes_of("float16", values), 2048);
  EXPECT_EQ(bytes_of("int8", values), 1024 + 2 * 16);
  EXPECT_EQ(bytes_of("subspace:160", values), 2 * 160 * 2);
}

TEST(Boundaries, LinksInsideAWorkerAreNotCoded) {
  Plan plan;
  plan.stages.resize(4);
  for (int32_t s = 0; s < 3; ++s) plan.links.push_back({StageId{s}, StageId{s + 1}, 4096});
  plan.worker_of_replica = {0, 1, 1, 0};
  EXPECT_EQ(boundaries_text(plan), "");
  set_boundaries(plan, parse_boundary("int8"));
  EXPECT_EQ(plan.links[0].coding, parse_boundary("int8"));
  EXPECT_EQ(plan.links[1].coding, BoundaryCoding{});
  EXPECT_EQ(boundaries_text(plan), "float32 and int8");
  Plan other = plan;
  set_boundaries(other, {});
  take_boundaries(other, plan.links);
  EXPECT_EQ(other.links, plan.links);
  const SentOver sent = sent_over(plan.links[0], Precision::Float32);
  EXPECT_EQ(sent.bytes, 1056);
  EXPECT_EQ(sent.bytes_back, 1056);
  EXPECT_GT(sent.coding_ns, 0);
}

}  // namespace
}  // namespace penstock::plan
