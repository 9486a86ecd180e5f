// What is made of a vocabulary, rows of a table or classes of logits, of which each member of a
// team has a part (Shoeybi et al. 2019, section 3): for built-in layers and those of imported
// programs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "penstock/model/team.h"

namespace penstock::model {

/// The member's rows or classes of all.
struct VocabularyPart {
  int64_t first = 0;
  int64_t own = 0;
  int64_t all = 0;
};

/// Rows of the member's part `table` [own, features] for tokens [places...]: zeros for tokens of
/// others, so that the sum over the members is at::embedding() of the whole. `padding`: a token of
/// the whole whose row has no gradient; -1: none. Throws c10::IndexError for a token that no member
/// has; a GPU stops instead.
at::Tensor spread_embedding(const at::Tensor& table, const at::Tensor& tokens, int64_t padding,
                            const VocabularyPart& part);

struct SpreadLosses {
  at::Tensor losses;   ///< per target, on every member the same; 0 where it is ignored
  at::Tensor largest;  ///< the largest of each target's logits, of all members
};

/// at::cross_entropy_loss() without reduction. `logits`: the member's classes, [targets, own, ...]
/// or [own]. Members exchange the largest logit of each target and two sums, three with smoothing,
/// never logits. Null `team`: as if the others had nothing. Throws c10::IndexError for a target
/// that is no class; a GPU stops instead.
SpreadLosses spread_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                  const VocabularyPart& part, int64_t ignored, double smoothing,
                                  Team* team);

}  // namespace penstock::model
