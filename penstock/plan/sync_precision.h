// The type in which the gradients of replicas travel, and what that does to bytes and values.
//
// With n gradient groups over the replicas of a stage, and R(x) the nearest number of 16 bits:
//
//   float32              sum = g_0 + g_1 + ... + g_(n-1)
//   bfloat16, float16    sum = R(R(g_0) + R(g_1) + ... + R(g_(n-1))), the additions in float32
//
// in the order of the groups, whoever adds them: the same bits on threads and ranks, with and
// without servers. Half of the bytes travel. Around a ring every replica rounds the sum so far when
// it passes it on instead: R(R(R(g_0) + g_1) + g_2). A stage with one replica rounds nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "penstock/plan/gradient_sync.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::plan {

inline constexpr std::array kSyncPrecisions = {FloatType::Float32, FloatType::BFloat16,
                                               FloatType::Float16};

/// Throws ConfigError listing the names when `name` is none of them.
FloatType parse_sync_precision(std::string_view name);

/// What travels of gradients whose weights have so many bytes in float32. Even for odd numbers.
constexpr int64_t wire_bytes(int64_t weight_bytes, FloatType precision) {
  return is_short(precision) ? ceil_div(weight_bytes, 2) : weight_bytes;
}
/// How many bytes of float32 the gradients have that pass per second through a link of this
/// bandwidth. Saturates.
constexpr int64_t gradient_rate(int64_t bandwidth_bytes_per_s, FloatType precision) {
  return is_short(precision) ? saturating_mul(bandwidth_bytes_per_s, 2) : bandwidth_bytes_per_s;
}

/// Throws ConfigError for `asynchronous` with 16 bits: what travels there are changes of weights,
/// and replicas that round them away, each others' and their own, would drift apart.
void check_sync_precision(GradientSync sync, FloatType precision);

}  // namespace penstock::plan
