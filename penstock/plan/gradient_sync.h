// How the replicas of a stage add their gradients: the methods, and how each shares the work out.
//
// n replicas, each on a machine of its own with a NIC of B bytes/s per direction, M bytes of
// gradients, k machines without replicas (servers) with NICs of r B:
//
//   method            bytes that each replica sends (and receives)   time of the slowest NIC
//   ordered, ring     2(n-1)/n M                                     2(n-1)/n M/B
//   parameter-server  M                                              max(1, n/(kr)) M/B
//   summation         (1 + (n-2) g) M, kr <= n                       2n(n-1)/(n^2 + kr(n-2)) M/B
//                     M, kr > n                                      M/B
//
// where an owner adds a part of every gradient: with `summation` a replica g = (n - kr) / D of it
// and a server c = 2r(n-1) / D, with D = n^2 + kr(n-2) (Jiang et al., BytePS, OSDI 2020, section
// 4.2, equations 1, 2 and 6; equation 4 lacks the factor n of the bytes of a server). k = 0 gives
// g = 1/n, an all-reduce; kr >= n gives g = 0, c = 1/k; with n = 2 servers bring nothing. Without
// servers a parameter server is spread over the replicas and costs the same as ordered.
// `asynchronous` moves the bytes of a parameter server.
//
// `hierarchical` first adds inside each machine, whose replicas share a NIC: to that, n machines
// are what n replicas are to `summation`. Of `ordered` r replicas per machine send
// 2 r (n r - r)/(n r) M = 2 r (n-1)/n M through it, r times as much.
//
// `diloco:H` adds changes of weights instead of gradients, and only at the end of each round of H
// steps, as `ordered` does: 2(n-1)/(nH) M per step, in 2(n-1)/(nH) M/B.
//
// `powersgd:R` adds factors of R columns instead of matrices, as `ordered` does: its M is that of
// the factors (low_rank.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::plan {

enum class GradientSync : uint8_t {
  /// Owners add in the order of the gradient groups: the bits of one thread, the bytes of a ring.
  Ordered,
  /// Around a ring; the order of the additions differs from slice to slice (Patarasuk and Yuan,
  /// 2009).
  Ring,
  /// All of it on the servers (Li et al., OSDI 2014).
  ParameterServer,
  /// BytePS: shares over servers and replicas so that all NICs finish together.
  Summation,
  /// A parameter server for which nobody waits longer than a bound: stale synchronous parallel (Ho
  /// et al., NIPS 2013); without a bound PipeDream's ASP (SOSP 2019, section 5.2).
  Asynchronous,
  /// First inside each machine, then between the machines as `summation`: the communication service
  /// of BytePS (OSDI 2020, section 4.3), whose CPUs add what the devices of a machine have made.
  Hierarchical,
  /// Each replica steps its own weights with an optimiser of its own. After every H steps an outer
  /// optimiser steps the weights that all had before, by the mean of what the replicas have changed
  /// since, and all go on from there (Douillard et al., 2023, algorithm 1).
  DiLoCo,
  /// Gradients of matrices are added as the factors of an approximation of low rank, and what it
  /// leaves out of a step is added to the replica's next gradients (Vogels, Karimireddy and Jaggi,
  /// PowerSGD, 2019, algorithms 1 and 2).
  PowerSgd,
};

inline constexpr std::array kGradientSyncs = {
    GradientSync::Ordered,   GradientSync::Ring,         GradientSync::ParameterServer,
    GradientSync::Summation, GradientSync::Asynchronous, GradientSync::Hierarchical,
    GradientSync::DiLoCo,    GradientSync::PowerSgd};

/// A method, after how many steps it adds, and in which rank.
struct SyncMethod {
  GradientSync sync = GradientSync::Ordered;
  int64_t every = 1;  ///< steps of a round, H; 1 for all methods but DiLoCo
  int64_t rank = 0;   ///< of PowerSGD, R; 0 for all others

  // Most methods are their names.
  constexpr SyncMethod(GradientSync the_sync = GradientSync::Ordered, int64_t the_every = 1,
                       int64_t the_rank = 0)
      : sync(the_sync), every(the_every), rank(the_rank) {}
  bool operator==(const SyncMethod&) const = default;
};
inline constexpr int64_t kMostStepsOfRound = 1'000'000'000;
inline constexpr int64_t kMostSyncRank = 1024;

/// How the outer optimiser of DiLoCo steps: SGD with Nesterov momentum. The paper's values.
struct OuterStep {
  double learning_rate = 0.7;
  double momentum = 0.9;  ///< 0: none

  /// What each replica keeps for it, per weight: the weights of the round's beginning, and this.
  double state_per_weight() const { return momentum > 0 ? 2 : 1; }
  bool operator==(const OuterStep&) const = default;
};

/// "ordered", "ring", "parameter-server", "summation", "asynchronous", "hierarchical", "diloco",
/// "powersgd".
std::string_view to_string(GradientSync sync);
/// The same, with the steps of a round or the rank: "diloco:500", "powersgd:4".
std::string to_string(const SyncMethod& method);
/// Throws ConfigError listing the names when `name` is none of them, or has no steps of a round or
/// rank where it needs one.
SyncMethod parse_gradient_sync(std::string_view name);

/// As parse_gradient_sync(), but nothing for "auto": the method is to be chosen.
std::optional<SyncMethod> parse_sync_choice(std::string_view name);

/// Whether a replica's weights are its own between the sums, which are of changes of weights.
constexpr bool steps_alone(GradientSync sync) {
  return sync == GradientSync::Asynchronous || sync == GradientSync::DiLoCo;
}

/// Whether servers add everything, if there are any.
constexpr bool all_on_servers(GradientSync sync) {
  return sync == GradientSync::ParameterServer || sync == GradientSync::Asynchronous;
}

/// What each owner adds, as shares of the gradients: n of `replica` and k of `server` are 1.
struct SumShares {
  double replica = 0;
  double server = 0;
};

/// The shares of the table above; `hierarchical`: `replicas` are machines. `server_speed`: r.
/// Throws ConfigError unless replicas >= 1, servers >= 0 and server_speed > 0.
SumShares sum_shares(GradientSync sync, int replicas, int servers, double server_speed = 1.0);

// Between ranks a sum leaves bucket by bucket while the last backward pass of a mini-batch goes on,
// and each bucket is waited for when the next forward pass comes to its first layer.

/// Buckets: whole layers of a stage, in their order, of at least this many bytes of gradients, the
/// last one excepted.
inline constexpr int64_t kBucketBytes = int64_t{256} << 10;

/// The layer behind the last one of each bucket; layers without weights after the last bucket
/// belong to none. `weight_bytes`: per layer. Nothing where no layer has weights. O(layers).
std::vector<size_t> bucket_ends(const std::vector<int64_t>& weight_bytes);

/// A bucket, and where it is in the passes of its stage; times are from the beginning of the pass.
struct GradientBucket {
  int64_t weight_bytes = 0;
  int64_t forward_ns = 0;          ///< F needs the sum: comes to the first layer that has weights
  int64_t backward_ns = 0;         ///< B has made all of its gradients
  int64_t backward_weight_ns = 0;  ///< W has
  int64_t step_ns = 0;             ///< its part of the optimiser step
  int64_t wire_ns = 0;             ///< how long its sum occupies a replica's NIC
  int64_t server_ns = 0;           ///< and a server's
  /// What moving and adding it takes from the computing of each replica, where its cores do that.
  int64_t processor_ns = 0;
  bool operator==(const GradientBucket&) const = default;
};

}  // namespace penstock::plan
