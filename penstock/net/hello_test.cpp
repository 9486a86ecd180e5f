#include "penstock/net/hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"

namespace penstock::net {
namespace {

using ::testing::HasSubstr;

const Challenge kChallenge = fresh_challenge();

Hello own() { return {.token = "secret", .version = "0.1.0", .rank = 0, .ranks = 4}; }

Hello other() {
  Hello hello = own();
  hello.rank = 2;
  hello.port = 4711;
  return hello;
}

std::string problem(const Hello& comes) {
  Hello found;
  return decode(encode(comes, kChallenge), own(), kChallenge, found);
}

TEST(Hello, OfARankOfTheSameJobIsRead) {
  Hello found;
  EXPECT_EQ(decode(encode(other(), kChallenge), own(), kChallenge, found), "");
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.ranks, 4);
  EXPECT_EQ(found.port, 4711);
  EXPECT_EQ(found.version, "0.1.0");
}

TEST(Hello, WhatDiffersIsNamed) {
  Hello hello = other();
  hello.token = "secreT";
  EXPECT_THAT(problem(hello), HasSubstr("token"));
  hello = other();
  hello.token = "";
  EXPECT_THAT(problem(hello), HasSubstr("token"));
  hello = other();
  hello.version = "0.2.0";
  EXPECT_THAT(problem(hello), HasSubstr("rank 2 runs Penstock 0.2.0"));
  hello = other();
  hello.ranks = 5;
  EXPECT_THAT(problem(hello), HasSubstr("rank 2 was told that the job has 5 ranks, rank 0"));
  hello = other();
  hello.rank = 4;
  EXPECT_THAT(problem(hello), HasSubstr("its rank is 4, expected 0 to 3"));
  hello.rank = -1;
  EXPECT_THAT(problem(hello), HasSubstr("its rank is -1"));
}

TEST(Hello, OfAnotherConnectionIsRefused) {
  Hello found;
  const HelloBytes recorded = encode(other(), kChallenge);
  EXPECT_THAT(decode(recorded, own(), fresh_challenge(), found), HasSubstr("token"));
  HelloBytes changed = recorded;
  changed[76] ^= std::byte{1};  // another rank's number
  EXPECT_THAT(decode(changed, own(), kChallenge, found), HasSubstr("token"));
}

TEST(Hello, HidesTheToken) {
  const HelloBytes bytes = encode(other(), kChallenge);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(text.find(other().token), std::string_view::npos);
}

TEST(Hello, AnythingElseIsNoRankOfPenstock) {
  HelloBytes bytes = {};
  Hello found;
  EXPECT_THAT(decode(bytes, own(), kChallenge, found), HasSubstr("no rank of Penstock"));
  bytes = encode(other(), kChallenge);
  bytes[0] = std::byte{'G'};
  EXPECT_THAT(decode(bytes, own(), kChallenge, found), HasSubstr("no rank of Penstock"));
}

std::string problem_of_opening(TlsKind theirs, TlsKind own) {
  return opening_problem(opening(2, theirs), 0, own);
}

TEST(Opening, OfARankThatEncryptsInTheSameWayFits) {
  for (const TlsKind tls : {TlsKind::Off, TlsKind::Secret, TlsKind::Certificates})
    EXPECT_EQ(problem_of_opening(tls, tls), "");
}

TEST(Opening, NamesBothRanksThatEncryptInAnotherWay) {
  EXPECT_THAT(problem_of_opening(TlsKind::Off, TlsKind::Secret),
              HasSubstr("rank 2 has TLS off, and rank 0 has TLS by a secret: all ranks must have "
                        "the same (PENSTOCK_TLS, or the option tls)"));
  EXPECT_THAT(problem_of_opening(TlsKind::Certificates, TlsKind::Off),
              HasSubstr("rank 2 has TLS by certificates, and rank 0 has TLS off"));
}

TEST(Opening, OfAnotherProtocolOrOfNobodyIsRefused) {
  OpeningBytes bytes = opening(2, TlsKind::Off);
  bytes[8] ^= std::byte{1};
  EXPECT_THAT(opening_problem(bytes, 0, TlsKind::Off), HasSubstr("it speaks protocol"));
  bytes = {};
  EXPECT_THAT(opening_problem(bytes, 0, TlsKind::Off), HasSubstr("no rank of Penstock"));
}

TEST(Hello, ATokenThatIsTooLongIsRefused) {
  Hello hello = own();
  hello.token = std::string(65, 'x');
  EXPECT_THROW(encode(hello, kChallenge), ConfigError);
}

}  // namespace
}  // namespace penstock::net
