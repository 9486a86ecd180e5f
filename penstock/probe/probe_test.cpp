#include "penstock/probe/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "tests/support/mutate.h"

namespace penstock::probe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Measurements that no machine has, so that whole outputs can be compared.
ProbeResult two_workers() {
  ProbeResult result;
  result.machine = {"Test CPU", 2, 16'500'000'000};
  result.workers = 2;
  result.message_bytes = 4'000'000;
  result.summed_bytes = 64'000'000;
  result.hand_over_ns = {8'123, 8'000, 9'000, 4'096};
  result.copied_bytes_per_s = {9.87654e9, 9.5e9, 1e10, 500};
  result.tcp_ns = Measurement{21'987, 21'000, 22'000, 4'096};
  result.tcp_bytes_per_s = Measurement{4.321e9, 4.3e9, 4.4e9, 300};
  result.sum_alone_bytes_per_s = {1e10, 9.9e9, 1.01e10, 40};
  result.sum_shared_bytes_per_s = {6.54321e9, 6.5e9, 6.6e9, 60};
  result.compute_alone_flops = {1.23456e11, 1.2e11, 1.25e11, 400};
  result.compute_shared_flops = {1.2e11, 1.1e11, 1.25e11, 800};
  return result;
}

TEST(ClusterOf, ThreadsMoveTensorsByReferenceAndSumAtTheSharedSpeed) {
  cluster::Cluster expected = cluster::local_cluster(2, 6'540'000'000);
  expected.levels[0].latency_ns = 8'120;
  expected.device = {"Test CPU", 8'200'000'000, 1.0};
  EXPECT_EQ(cluster_of(two_workers()), expected);
}

TEST(ClusterOf, ProcessesAreJoinedByTcp) {
  ProbeResult result = two_workers();
  result.transport = Transport::Tcp;
  EXPECT_THAT(cluster_of(result).levels,
              ElementsAre(cluster::Level{"loopback", 2, 4'320'000'000, 22'000, false}));
}

TEST(ToToml, ParsesBackAndShowsTheFiguresAsComments) {
  for (const Transport transport : {Transport::Threads, Transport::Tcp}) {
    ProbeResult result = two_workers();
    result.transport = transport;
    const std::string text = to_toml(result);
    EXPECT_EQ(cluster::parse_cluster(text, "c.toml"), cluster_of(result)) << text;
    EXPECT_THAT(
        text,
        AllOf(
            HasSubstr(
                "hand-over between threads             8.12 us   8.00 us to 9.00 us, 4096 samples"),
            HasSubstr("compute, one worker               123 GFLOP/s"), HasSubstr("6.54 GB/s")));
  }
}

TEST(Notes, NameWhatMakesFiguresDoubtful) {
  ProbeResult result = two_workers();
  EXPECT_THAT(notes(result), IsEmpty());
  result.workers = 3;
  result.sum_shared_bytes_per_s = {1e9, 0.5e9, 1.5e9, 9};
  result.tcp_ns.reset();
  result.tcp_bytes_per_s.reset();
  result.tcp_failure = "no port";
  EXPECT_THAT(notes(result),
              ElementsAre(HasSubstr("3 workers share 2 cores"), "no port",
                          HasSubstr("summation: the middle half of the samples spans 100 %")));
  EXPECT_EQ(cluster::parse_cluster(to_toml(result), "c.toml"), cluster_of(result));
}

TEST(ClusterOf, IsValidForAbsurdFigures) {
  for (const double measured : {0.0, 1e-9, 1e300, std::nan(""), HUGE_VAL}) {
    ProbeResult result = two_workers();
    result.hand_over_ns.median = result.sum_shared_bytes_per_s.median = measured;
    result.machine.memory_bytes = 0;
    EXPECT_EQ(cluster::parse_cluster(to_toml(result), "c.toml"), cluster_of(result)) << measured;
  }
}

TEST(Probe, RefusesOptionsWithoutSense) {
  const auto refusal = [](const ProbeOptions& options) {
    return tests::message_of<ConfigError>([&] { probe(options); });
  };
  EXPECT_THAT(refusal({.workers = -1}), HasSubstr("found -1"));
  EXPECT_THAT(refusal({.workers = 1'025}), HasSubstr("1024 workers"));
  EXPECT_THAT(refusal({.message_bytes = 7}), HasSubstr("found 7"));
  EXPECT_THAT(refusal({.message_bytes = int64_t{1} << 60}), HasSubstr("bytes"));
  for (const double seconds : {0.0, -1.0, std::nan(""), HUGE_VAL, 601.0})
    EXPECT_THAT(refusal({.seconds = seconds}), HasSubstr("seconds")) << seconds;
  EXPECT_THAT(tests::message_of<ConfigError>([] { parse_transport("udp"); }),
              HasSubstr("'udp': expected threads or tcp"));
  EXPECT_EQ(parse_transport(to_string(Transport::Tcp)), Transport::Tcp);
  EXPECT_EQ(parse_transport(to_string(Transport::Threads)), Transport::Threads);
}

TEST(Probe, MeasuresThisMachineWithinPlausibleBounds) {
  ProbeOptions options{
      .workers = 2, .transport = Transport::Tcp, .message_bytes = 1 << 20, .seconds = 0.4};
  int last_done = -1, last_total = 0, calls = 0;
  options.progress = [&](int done, int total, const std::string& what) {
    EXPECT_GT(done, last_done) << what;
    last_done = done;
    last_total = total;
    ++calls;
  };
  ProbeResult result;
  const double ns = time_ns([&] { result = probe(options); });
  EXPECT_LT(ns, 30e9);
  EXPECT_EQ(last_done, last_total);
  EXPECT_EQ(calls, last_total + 1);

  ASSERT_TRUE(result.tcp_ns && result.tcp_bytes_per_s);
  const auto within = [](const Measurement& measured, double least, double most) {
    EXPECT_GE(measured.samples, kFewestSamples);
    EXPECT_GT(measured.median, least);
    EXPECT_LT(measured.median, most);
    EXPECT_LE(measured.low, measured.median);
    EXPECT_LE(measured.median, measured.high);
  };
  within(result.hand_over_ns, 10, 1e9);
  within(*result.tcp_ns, 100, 1e9);
  within(result.copied_bytes_per_s, 1e6, 1e13);
  within(*result.tcp_bytes_per_s, 1e6, 1e13);
  within(result.sum_alone_bytes_per_s, 1e6, 1e13);
  within(result.sum_shared_bytes_per_s, 1e6, 1e13);
  within(result.compute_alone_flops, 1e6, 1e14);
  within(result.compute_shared_flops, 1e6, 1e14);
  EXPECT_EQ(cluster::parse_cluster(to_toml(result), "c.toml"), cluster_of(result));
  EXPECT_EQ(parse_json(to_json(result), "probe")["figures"]["tcp_ns"]["samples"],
            result.tcp_ns->samples);
}

TEST(Probe, OneWorkerAloneIsAClusterToo) {
  const ProbeResult result = probe({.workers = 1, .message_bytes = 8, .seconds = 0.1});
  EXPECT_EQ(result.sum_alone_bytes_per_s, result.sum_shared_bytes_per_s);
  EXPECT_EQ(cluster_of(result).num_workers(), 1);
}

}  // namespace
}  // namespace penstock::probe
