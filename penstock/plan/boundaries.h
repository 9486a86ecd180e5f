// The codings of a plan's boundaries, and what travels over a link in its coding.
//
//   set_boundaries(plan, parse_boundary("int8"));
//   sent_over(plan.links.front(), plan.precision).bytes;
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/plan/plan.h"

namespace penstock::plan {

/// What a link costs in its coding.
struct SentOver {
  int64_t bytes = 0;
  int64_t bytes_back = 0;
  int64_t coding_ns = 0;       ///< of each end, for a message forward
  int64_t coding_back_ns = 0;  ///< and for one back
};
SentOver sent_over(const Link& link, Precision precision);

/// Adds a link of unknown size for each pair of stages between which values flow, where the plan
/// does not have it. Throws as stage_of_layer().
void add_links(Plan& plan, const graph::ModelGraph& graph);
/// Gives each link the coding, but those whose stages are always on one worker.
void set_boundaries(Plan& plan, const BoundaryCoding& coding);
/// Links whose coding depends on the width of tokens get this one.
void set_widths(Plan& plan, int64_t width);
/// Gives each link the coding of the given link between the same stages, if there is one.
void take_boundaries(Plan& plan, const std::vector<Link>& given);
/// "int8", "float32 and int8"; empty where no link is coded.
std::string boundaries_text(const Plan& plan);

}  // namespace penstock::plan
