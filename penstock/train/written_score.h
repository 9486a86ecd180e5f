// The score of sentences that a model has written, by a metric of metric.h that `writes`.
//
//   written_score(Metric::Bleu, texts, *data.translation);
#pragma once

#include <string>
#include <vector>

#include "penstock/train/data/translation.h"
#include "penstock/train/metric.h"

namespace penstock::train {

/// Throws ConfigError where the metric needs files that are missing (WordNet's): before a run.
void check_metric_files(Metric metric);

/// `texts`: of the first test samples. METEOR takes of several references the best one for each
/// sentence, BLEU all of them. Throws ConfigError as text::corpus_bleu and text::corpus_meteor.
double written_score(Metric metric, const std::vector<std::string>& texts,
                     const Translation& translation);

}  // namespace penstock::train
