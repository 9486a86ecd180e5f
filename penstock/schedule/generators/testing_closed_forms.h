// The idle time of every flushed schedule in closed form, where it is exact (docs/schedules.md).
// One mini-batch of m micro-batches on p workers whose stages are alike; F, I, W and B = I + W are
// the times of one stage, of which a worker may hold several. The idle time is that of a worker
// from the start of the first action anywhere to the end of the last.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/generators/testing_clock.h"

namespace penstock::schedule::testing {

struct Case {
  Strategy kind = Strategy::GPipe;
  int64_t p = 1;
  int64_t m = 1;
  int chunks = 1;
  int64_t slack = 0;
};

/// Stages of the case's schedule.
inline int stages_of(const Case& c) { return static_cast<int>(c.p * c.chunks); }

inline ScheduleShape shape_of(const Case& c, int copies = 1) {
  const int replicas = traits(c.kind).replicas_per_copy() * copies;
  ScheduleShape shape{.replicas = std::vector<int>(static_cast<size_t>(stages_of(c)), replicas),
                      .micro_batches = c.m,
                      .accumulate = std::max<int64_t>(c.m, 1),
                      .slack = c.slack};
  return with_placement(c.kind, shape, c.chunks);
}

/// Nothing where no exact form is known.
inline std::optional<int64_t> closed_idle(const Case& c, const Times& t) {
  const int64_t p = c.p;
  const int64_t m = c.m;
  const int64_t F = t.forward;
  const int64_t I = t.backward_input;
  const int64_t W = t.backward_weight;
  const int64_t B = I + W;
  switch (c.kind) {
    case Strategy::GPipe:
    case Strategy::OneFOneBFlush:
    case Strategy::EagerOneFOneB:
      return (p - 1) * (F + B);
    case Strategy::Interleaved:
      if (m >= 2 * p && m % p != 0) return {};
      return (p - 1 + (c.chunks - 1) * std::max<int64_t>(p - m, 0)) * (F + B);
    case Strategy::InterleavedZb:
      if (m < p || (m >= 2 * p && m % p != 0) || W > std::min(F, I)) return {};
      return (p - 1) * (F + I - W);
    case Strategy::ZbH1:
      return (p - 1) * (F + I) - (std::min(m, p) - 1) * std::min({F, I, W});
    case Strategy::ZbH2:
      if (m >= 2 * p - 1) return (p - 1) * std::max({F, F + I - 2 * W, I - F});
      if (W <= std::min(F, I)) return std::max((p - 1) * F, (p - 1) * (F + I) - (m - 1) * W);
      return {};
    case Strategy::ZbV:
      if (m >= 2 * p - 1 && W <= F && F <= I) return (p - 1) * std::max(I, 2 * (I - W));
      if (m == p && F == I && I == W) return (p - 1) * F;
      return {};
    case Strategy::VHalf:
      if (2 * m <= p || W > F || F > I || 2 * I > W + 2 * F) return {};
      if (p == 2) return 2 * (F + I - W);
      return p % 2 != 0 ? (p - 1) * (F + 3 * I) - p * W : p * F + (3 * p - 4) * I - (p + 1) * W;
    case Strategy::VMin:
      if (F != I || I != W) return {};
      return (4 * p - 5) * F;
    case Strategy::DualPipeV:
      if (m >= 2 * p && W <= I && I <= F) return (p - 1) * std::max(F + I - W, 2 * (F - W));
      return {};
    case Strategy::DualPipe:
      if (m < 2 * p || m % 2 != 0 || W > F || F != I) return {};
      return (p / 2 - 1) * (F + 2 * B - 3 * W);
    case Strategy::Chimera: {
      if (m > p && F != B) return {};
      const int64_t last = (m - 1) % p + 1;  // micro-batches of the last round
      const int64_t alone = last % 2 == 0 ? 2 : 1;
      return (p - alone) * (F + B) - (last - alone) * std::min(F, B);
    }
    default:
      return {};
  }
}

/// The largest number of micro-batches that a worker keeps from F to B or W, summed over its
/// stages. `rank` is the worker within its copy. A bound for chimera, for dualpipe where m < 2p,
/// for zb-v and dualpipe-v where m < 2p - 1, and for all workers of v-half and v-min but the
/// busiest.
inline int64_t closed_stash(const Case& c, int64_t rank) {
  const int64_t p = c.p;
  const int64_t m = c.m;
  switch (c.kind) {
    case Strategy::GPipe:
      return m;
    case Strategy::OneFOneBFlush:
      return std::min(p - rank, m);
    case Strategy::EagerOneFOneB:
      return std::min((1 + c.slack) * (p - 1 - rank) + 1, m);
    case Strategy::Interleaved: {
      const int64_t group = m < 2 * p ? m : p;
      return std::min(2 * (p - 1 - rank) + (c.chunks - 1) * group + 1, c.chunks * m);
    }
    case Strategy::InterleavedZb: {
      const int64_t group = m < 2 * p ? m : p;
      return std::min((c.chunks - 1) * group + 2 * p - 1 - rank, c.chunks * m);
    }
    case Strategy::ZbH1:
      return std::min(p, m);
    case Strategy::ZbH2:
      return std::min(2 * p - 1, m);
    case Strategy::ZbV:
      return std::min(2 * p, 2 * m);
    case Strategy::VHalf:
      return std::min(2 * ((p + 2) / 2), 2 * m);
    case Strategy::VMin:
      return std::min(2 * ((p + 4) / 3), 2 * m);
    case Strategy::DualPipeV:
      return m < 2 * p ? std::min(2 * p, 2 * m) : 2 * p + 1;
    case Strategy::DualPipe:
      return std::min(p + 1, m);
    default:
      return std::min(p, m);  // chimera: at most
  }
}

/// All kinds that have closed forms, in all variants tested.
inline std::vector<Case> variants(int64_t p, int64_t m) {
  std::vector<Case> cases;
  for (const Strategy kind :
       {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::ZbH1, Strategy::ZbH2})
    cases.push_back({.kind = kind, .p = p, .m = m});
  for (const int64_t slack : {1, 2})
    cases.push_back({.kind = Strategy::EagerOneFOneB, .p = p, .m = m, .slack = slack});
  for (const Strategy kind : {Strategy::Interleaved, Strategy::InterleavedZb}) {
    for (const int chunks : {2, 3, 4})
      cases.push_back({.kind = kind, .p = p, .m = m, .chunks = chunks});
  }
  for (const Strategy kind : {Strategy::ZbV, Strategy::VHalf, Strategy::VMin, Strategy::DualPipeV})
    cases.push_back({.kind = kind, .p = p, .m = m, .chunks = 2});
  if (p % 2 == 0) {
    cases.push_back({.kind = Strategy::DualPipe, .p = p, .m = m});
    cases.push_back({.kind = Strategy::Chimera, .p = p, .m = m});
  }
  return cases;
}

/// Equal and unequal F, I, W: every order of the three, ties, a long and a short one of each, F =
/// B.
inline const std::vector<Times>& times_samples() {
  static const std::vector<Times> kSamples = {
      {1, 1, 1}, {2, 3, 4}, {2, 4, 3}, {3, 2, 4}, {4, 2, 3}, {3, 4, 2}, {4, 3, 2},
      {3, 3, 2}, {3, 2, 2}, {3, 3, 4}, {3, 4, 3}, {9, 1, 1}, {1, 9, 1}, {1, 1, 9},
      {7, 4, 3}, {2, 1, 1}, {5, 5, 5}, {2, 2, 1}, {4, 4, 1}, {5, 5, 2}};
  return kSamples;
}

inline std::string describe(const Case& c, const Times& t) {
  return std::string(to_string(c.kind)) + ", p " + std::to_string(c.p) + ", m " +
         std::to_string(c.m) + ", chunks " + std::to_string(c.chunks) + ", slack " +
         std::to_string(c.slack) + ", F " + std::to_string(t.forward) + ", I " +
         std::to_string(t.backward_input) + ", W " + std::to_string(t.backward_weight);
}

}  // namespace penstock::schedule::testing
