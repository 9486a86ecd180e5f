// What an evaluation on the test set is judged by: one enumerator and one row each, without
// tensors.
//
//   parse_metric("perplexity") == Metric::Perplexity;
//   reaches(Metric::Perplexity, /*value=*/78.2, /*target=*/80) == true;
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/util/error.h"

namespace penstock::train {

/// In the order of kMetrics.
enum class Metric : uint8_t { Loss, Accuracy, Top5, Perplexity, Bleu, Meteor, MeteorStem };

struct MetricRow {
  Metric metric = Metric::Loss;
  std::string_view name;
  bool rises = false;     ///< more is better
  bool is_share = false;  ///< from 0 to 1, shown as a percentage
  bool writes = false;    ///< of sentences that the model writes of the test set by itself
  std::string_view help;
};

inline constexpr std::array<MetricRow, 7> kMetrics = {
    {{.metric = Metric::Loss, .name = "loss", .help = "the mean over the test set's targets"},
     {.metric = Metric::Accuracy,
      .name = "accuracy",
      .rises = true,
      .is_share = true,
      .help = "the share of targets that the largest output names, from 0 to 1"},
     {.metric = Metric::Top5,
      .name = "top5",
      .rises = true,
      .is_share = true,
      .help = "the share of targets that one of the five largest outputs names, from 0 to 1"},
     {.metric = Metric::Perplexity,
      .name = "perplexity",
      .help = "e to the mean cross-entropy of a token"},
     {.metric = Metric::Bleu,
      .name = "bleu",
      .rises = true,
      .writes = true,
      .help = "of the sentences that the model writes of the test set by itself, from 0 to 100"},
     {.metric = Metric::Meteor,
      .name = "meteor",
      .rises = true,
      .is_share = true,
      .writes = true,
      .help = "of such sentences, by equal words, stems and WordNet's synonyms, from 0 to 1"},
     {.metric = Metric::MeteorStem,
      .name = "meteor-stem",
      .rises = true,
      .is_share = true,
      .writes = true,
      .help = "the same without synonyms"}}};

constexpr const MetricRow& traits(Metric metric) { return kMetrics[static_cast<size_t>(metric)]; }
constexpr std::string_view to_string(Metric metric) { return traits(metric).name; }

/// "loss: the mean ...; accuracy: ...": for help texts.
inline std::string metric_help() {
  std::string help;
  for (const MetricRow& row : kMetrics)
    help += fmt::format("{}{}: {}", help.empty() ? "" : "; ", row.name, row.help);
  return help;
}

/// Throws ConfigError that lists the names when `name` is none of them.
inline Metric parse_metric(std::string_view name) {
  std::string names;
  for (const MetricRow& row : kMetrics) {
    if (row.name == name) return row.metric;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  throw ConfigError(fmt::format("unknown metric '{:.40}', expected one of {}", name, names));
}

/// Whether `value` is at least as good as `other`.
constexpr bool reaches(Metric metric, double value, double other) {
  return traits(metric).rises ? value >= other : value <= other;
}

/// One pass over the test set.
struct Evaluation {
  int64_t step = 0;                    ///< optimiser steps before it, over all runs
  int64_t samples = 0;                 ///< trained with in this run
  int64_t train_ns = 0;                ///< spent in training in this run
  double loss = 0;                     ///< mean over the targets
  std::optional<double> accuracy;      ///< empty: the loss knows nothing that is right
  std::optional<double> top5 = {};     ///< empty: there are at most five classes, or no classes
  std::optional<double> written = {};  ///< of the run's metric, where it is one of sentences

  /// Not a number: it has none.
  double of(Metric metric) const {
    switch (metric) {
      case Metric::Loss:
        return loss;
      case Metric::Accuracy:
        return accuracy.value_or(std::numeric_limits<double>::quiet_NaN());
      case Metric::Top5:
        return top5.value_or(std::numeric_limits<double>::quiet_NaN());
      case Metric::Perplexity:
        return std::exp(loss);
      case Metric::Bleu:
      case Metric::Meteor:
      case Metric::MeteorStem:
        return written.value_or(std::numeric_limits<double>::quiet_NaN());
    }
    return loss;
  }
};

}  // namespace penstock::train
