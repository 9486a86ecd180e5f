#include "penstock/runtime/fabric/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using ::testing::HasSubstr;

std::string site_refusal(const Site& site) {
  try {
    validate(site);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(SiteTest, KnowsItsOwnWorkers) {
  const Site site{.rank = 1, .rank_of_worker = {0, 1, 0, 1}};
  EXPECT_EQ(site.num_ranks(), 2);
  EXPECT_EQ(site.own_workers(), (std::vector<WorkerId>{WorkerId{1}, WorkerId{3}}));
  EXPECT_FALSE(site.holds(WorkerId{0}));
  EXPECT_EQ(site_refusal(site), "");
  EXPECT_EQ(Site::one_rank(3).own_workers().size(), 3u);
}

TEST(SiteTest, RefusesWhatIsNoJob) {
  EXPECT_THAT(site_refusal({}), HasSubstr("at least 1 worker"));
  EXPECT_THAT(site_refusal({.rank = 0, .rank_of_worker = {0, 2, 2}}),
              HasSubstr("rank 1 of 3 has no"));
  EXPECT_THAT(site_refusal({.rank = 0, .rank_of_worker = {0, -1}}),
              HasSubstr("worker 1 is on rank -1"));
  EXPECT_THAT(site_refusal({.rank = 0, .rank_of_worker = {0, 1 << 30}}), HasSubstr("from 0 to 1"));
  EXPECT_THAT(site_refusal({.rank = 2, .rank_of_worker = {0, 1}}),
              HasSubstr("this process is rank 2"));
  EXPECT_THAT(site_refusal({.rank = 0, .rank_of_worker = {0, 0}, .device_of_worker = {at::kCPU}}),
              HasSubstr("a device for each of the 2 workers, found 1"));
}

}  // namespace
}  // namespace penstock::runtime::testing
