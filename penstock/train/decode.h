// Sentences that a model with a source and a target writes by itself, one token after another,
// through the pipeline: greedily, or by beam search.
//
//   const auto written = decode(pipeline, plan, *data.test, {.end = 3, .beam = 5, .batch = 32});
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/ranks.h"
#include "penstock/train/beams.h"
#include "penstock/train/coverage.h"
#include "penstock/train/data/dataset.h"

namespace penstock::train {

struct DecodeOptions {
  int64_t end = 3;           ///< the token that ends a sentence
  int64_t most_tokens = 64;  ///< of a sentence, without its end
  int64_t beam = 1;          ///< beginnings of a sentence that are followed; 1: greedily
  BeamPenalties penalties = {};
  /// Of the pipeline's model; needed where there is a penalty for coverage.
  std::optional<Attending> attending = {};
  int64_t batch = 32;  ///< beginnings per micro-batch
  /// The source ends with the longest of its micro-batch, the target where the next token comes:
  /// for models that take shorter sequences.
  bool shortens = false;
  runtime::Ranks ranks = {};
  /// For a schedule: what the run needs beside its loss.
  std::function<runtime::RunOptions(const schedule::Schedule&)> run_options = {};
};

using Tokens = std::vector<int64_t>;

/// Of every sample of `data` (pairs of sentences), the likeliest tokens that were found, without
/// the end. The model makes logits [batch, places, tokens], and those of a place depend on no later
/// place of the target. Every place is a forward pass over all that have not ended. Nothing: the
/// run was stopped. Collective; the same on every rank. With a penalty for coverage the attention
/// is computed twice.
std::optional<std::vector<Tokens>> decode(runtime::Pipeline& pipeline, const plan::Plan& plan,
                                          const Dataset& data, const DecodeOptions& options);

}  // namespace penstock::train
