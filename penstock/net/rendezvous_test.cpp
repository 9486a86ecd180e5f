// How ranks find each other: what is said meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/net/mesh.h"
#include "penstock/net/testing_nodes.h"
#include "penstock/util/error.h"

namespace penstock::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;
using testing_nodes::free_port;
using testing_nodes::Warnings;

TEST(Rendezvous, AProcessThatWaitsSaysWhyItIsARank) {
  for (const int rank : {0, 1}) {
    Warnings warnings;
    EXPECT_THROW(Mesh::connect({.rank = rank,
                                .ranks = 3,
                                .port = free_port(),
                                .patience = milliseconds(700),
                                .reason = "SLURM_PROCID=0 and SLURM_NTASKS=3 of srun --pty",
                                .reason_after = milliseconds(100)}),
                 TimeoutError);
    EXPECT_THAT(warnings.text(),
                HasSubstr("this process waits for the other ranks of a job, for up to 0.7 s: it is "
                          "rank " +
                          std::to_string(rank) +
                          " of 3 by SLURM_PROCID=0 and SLURM_NTASKS=3 of srun --pty; without them, "
                          "unset these variables"));
  }
}

TEST(Rendezvous, AProcessThatALauncherMarksAsItsRankSaysNothing) {
  Warnings warnings;
  EXPECT_THROW(Mesh::connect({.ranks = 2,
                              .port = free_port(),
                              .patience = milliseconds(300),
                              .reason_after = milliseconds(10)}),
               TimeoutError);
  EXPECT_THAT(warnings.text(), Not(HasSubstr("waits for the other ranks")));
}

}  // namespace
}  // namespace penstock::net
