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

/// What rank 0 warns of when `visit` has come to its port, and it waits for rank 1 no longer.
template <class Visit>
std::string warnings_of(const Visit& visit) {
  Warnings warnings;
  const MeshOptions options{.ranks = 2, .port = free_port(), .patience = milliseconds(600)};
  std::jthread visitor([&] { visit(options.port); });
  EXPECT_THROW(Mesh::connect(options), TimeoutError);
  return warnings.text();
}

// A rank that is killed, that ends or that is stopped may have said nothing yet.
TEST(Rendezvous, WhoGoesWithoutAWordMayBeARankOfTheJob) {
  EXPECT_THAT(warnings_of([](uint16_t port) { close(testing_nodes::connected_to(port)); }),
              HasSubstr("it closed the connection after 0 bytes, before it said who it is: a "
                        "stranger, or a rank that has ended"));
}

TEST(Rendezvous, ARankThatGoesBeforeItsHelloIsNamed) {
  const auto visit = [](uint16_t port) {
    const int fd = testing_nodes::connected_to(port);
    const OpeningBytes own = opening(1, TlsKind::Off);
    EXPECT_EQ(write(fd, own.data(), own.size()), std::ssize(own));
    shutdown(fd, SHUT_WR);
    for (char byte = 0; read(fd, &byte, 1) > 0;) {
    }
    close(fd);
  };
  EXPECT_THAT(warnings_of(visit),
              HasSubstr("it said that it is rank 1, and closed the connection"));
}

// The right token, and still not the challenge of this connection.
TEST(Rendezvous, AHelloThatSomebodyHasRecordedTakesNoPlace) {
  const auto visit = [](uint16_t port) {
    const Hello hello{.rank = 1, .ranks = 2, .port = 1};
    std::array<char, kOpeningBytes + sizeof(Challenge)> heard;
    const int fd = testing_nodes::connected_to(port);
    EXPECT_EQ(recv(fd, heard.data(), heard.size(), MSG_WAITALL), std::ssize(heard));
    const OpeningBytes own = opening(1, TlsKind::Off);
    const HelloBytes recorded = encode(hello, fresh_challenge());
    EXPECT_EQ(write(fd, own.data(), own.size()), std::ssize(own));
    EXPECT_EQ(write(fd, recorded.data(), recorded.size()), std::ssize(recorded));
    std::string answer(200, '\0');
    EXPECT_GT(recv(fd, answer.data(), answer.size(), MSG_WAITALL), 0);
    EXPECT_THAT(answer, HasSubstr("the token is that of another job"));
    close(fd);
  };
  EXPECT_THAT(warnings_of(visit), HasSubstr("the token is that of another job"));
}

}  // namespace
}  // namespace penstock::net
