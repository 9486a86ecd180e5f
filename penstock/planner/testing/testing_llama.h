// A profile of a decoder like Llama's, counted and not measured: for tests of teams.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/profile/profile.h"

namespace penstock::planner::testing_llama {

/// Sizes of a decoder; the defaults are those of Llama 7 B, with micro-batches of one sequence.
struct Decoder {
  int64_t blocks = 32;
  int64_t hidden = 4096;
  int64_t inner = 11'008;
  int64_t heads = 32;
  int64_t vocabulary = 32'000;
  int64_t length = 2'048;
  double flops_per_s = 60e12;  ///< half of a V100's peak in 16 bits
};

namespace detail {

/// A layer with so many weights, each multiplied once per token. What members sum is one tensor of
/// [length, hidden] in 16 bits.
inline profile::LayerCost decoder_layer(const Decoder& sizes, int64_t weights, double other_flops,
                                        int64_t output_numbers, double stash_per_number,
                                        profile::TensorShare team) {
  const auto tokens = static_cast<double>(sizes.length);
  const double flops = 2 * static_cast<double>(weights) * tokens + other_flops;
  const auto forward_ns = static_cast<int64_t>(1e9 * flops / sizes.flops_per_s);
  const int64_t numbers = sizes.length * sizes.hidden;
  team.sum_bytes = 2 * numbers * team.sums;
  team.back_sum_bytes = 2 * numbers * team.back_sums;
  return {.forward_ns = forward_ns,
          .backward_ns = 2 * forward_ns,
          .backward_weight_ns = forward_ns,
          .step_ns = 12 * weights / 900,  // reads and writes at 900 GB/s
          .output_bytes = {2 * output_numbers},
          .weight_bytes = 4 * weights,
          .stash_bytes = static_cast<int64_t>(stash_per_number * static_cast<double>(numbers)),
          .short_weight_bytes = 4 * weights,
          .team = team};
}

}  // namespace detail

/// Embedding, blocks of attention and of a gated network, and the head. Activations are those of
/// Korthikanti et al. 2022 (section 4, 34 bytes per number in a block, without the scores of
/// attention), of which norms and inputs, 10 bytes, stay whole.
inline profile::Profile decoder_profile(const Decoder& sizes = {}) {
  profile::Profile profile;
  profile.model = "decoder";
  profile.device = "V100";
  profile.source = "analytic";
  profile.batch_size = 1;
  profile.precision = Precision::Float16;
  const int64_t numbers = sizes.length * sizes.hidden;
  const double scores = 4.0 * static_cast<double>(sizes.length) * static_cast<double>(numbers);
  std::vector<graph::LayerNode> layers;
  const auto add = [&](const std::string& name, profile::LayerCost cost) {
    const auto before = static_cast<int32_t>(layers.size()) - 1;
    layers.push_back(
        {name,
         "layer",
         {before < 0 ? graph::ValueRef::model_input(0) : graph::ValueRef{LayerId{before}, 0}},
         1});
    profile.costs.push_back(std::move(cost));
  };
  add("embedding", detail::decoder_layer(sizes, sizes.vocabulary * sizes.hidden, 0, numbers, 2,
                                         {.spread = 1, .sums = 1}));
  profile.costs.back().forward_ns = profile.costs.back().backward_ns / 400;  // a look-up
  profile.costs.back().backward_ns = profile.costs.back().backward_weight_ns =
      profile.costs.back().forward_ns;
  for (int64_t b = 0; b < sizes.blocks; ++b) {
    add("attention" + std::to_string(b),
        detail::decoder_layer(sizes, 4 * sizes.hidden * sizes.hidden, scores, numbers, 13,
                              {.spread = 0.99,
                               .spread_stash = 8.0 / 13,
                               .units = sizes.heads,
                               .sums = 1,
                               .back_sums = 1}));
    add("network" + std::to_string(b),
        detail::decoder_layer(
            sizes, 3 * sizes.hidden * sizes.inner, 0, numbers, 21,
            {.spread = 0.99, .spread_stash = 16.0 / 21, .sums = 1, .back_sums = 1}));
  }
  add("head", detail::decoder_layer(sizes, sizes.vocabulary * sizes.hidden, 0, sizes.length, 4,
                                    {.spread = 1, .spread_stash = 0.5, .back_sums = 1}));
  const auto last = LayerId{static_cast<int32_t>(layers.size()) - 1};
  profile.graph = graph::ModelGraph::build(1, std::move(layers), {{last, 0}});
  return profile;
}

/// Servers of four V100 of 32 GB joined by NVLink, 25 Gbps between them
/// (examples/clusters/v100-nvlink.toml).
inline cluster::Cluster v100_servers(int servers = 4) {
  return {.levels = {{.name = "server",
                      .count = 4,
                      .bandwidth_bytes_per_s = 150'000'000'000,
                      .latency_ns = 5'000,
                      .machine = true},
                     {.name = "rack",
                      .count = servers,
                      .bandwidth_bytes_per_s = 3'125'000'000,
                      .latency_ns = 20'000}},
          .device = {.name = "V100", .memory_bytes = 32'000'000'000}};
}

}  // namespace penstock::planner::testing_llama
