// Turns a split into a complete plan: sums, links, memory and the simulated throughput. Internal to the planner.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/planner/context.h"
#include "penstock/schedule/generate.h"

namespace penstock::planner {

/// A split of the layers with what is needed to run it.
struct Split {
  schedule::Kind kind = schedule::Kind::OneFOneB;
  schedule::WeightPolicy policy = schedule::WeightPolicy::Stash;
  std::vector<std::vector<LayerId>> stages;
  std::vector<cluster::WorkerRange> places;  ///< one per stage, disjoint
  std::vector<bool> recompute;               ///< one per stage

  std::vector<int> replicas() const;
  int num_workers() const;
};

/// Micro-batches per optimiser step when the user asks for none: one for serial and mp, one per replica for dp, the least common multiple
/// of the replica counts for 1f1b, the smallest multiple of it that reaches the depth for 2bw, and that reaches four per stage for gpipe
/// and 1f1b-flush. Where the multiple would be absurd, as many as there are workers.
int64_t chosen_micro_batches(schedule::Kind kind, const std::vector<int>& replicas);

/// The same within the user's mini-batch, all of which the synchronous kinds use.
int64_t chosen_micro_batches(const Context& context, schedule::Kind kind, const std::vector<int>& replicas);

/// The memory model that a search for plans of this kind uses.
MemoryModel memory_model(const Context& context, schedule::Kind kind, schedule::WeightPolicy policy, int64_t micro_batches);

/// What a stage keeps that holds these layers, between boundaries crossed by this many bytes.
StageMemory stage_memory(const Context& context, const std::vector<LayerId>& layers, int64_t input_bytes, int64_t output_bytes,
                         bool recompute);

/// The plan of a split, without alternatives and notes on them; 0 micro-batches: the user's, or chosen. Throws ConfigError when the kind
/// cannot run the split.
plan::Plan price(const Context& context, const Split& split, int64_t micro_batches = 0);

}  // namespace penstock::planner
