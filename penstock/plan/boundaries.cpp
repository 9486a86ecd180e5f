#include "penstock/plan/boundaries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace penstock::plan {

void add_links(Plan& plan, const graph::ModelGraph& graph) {
  for (const auto& cross : graph::crossing_values(graph, stage_of_layer(plan, graph))) {
    const bool is_known = std::any_of(plan.links.begin(), plan.links.end(), [&](const Link& link) {
      return link.from == cross.from && link.to == cross.to;
    });
    if (!is_known) plan.links.push_back({cross.from, cross.to});
  }
}

void set_boundaries(Plan& plan, const BoundaryCoding& coding) {
  const std::vector<std::vector<int>> workers = workers_by_stage(plan);
  for (Link& link : plan.links) {
    const bool stays =
        !workers.empty() && workers.at(link.from.index()) == workers.at(link.to.index());
    link.coding = stays ? BoundaryCoding{} : coding;
  }
}

void set_widths(Plan& plan, int64_t width) {
  for (Link& link : plan.links) link.width = traits(link.coding.kind).takes_rank ? width : 0;
}

void take_boundaries(Plan& plan, const std::vector<Link>& given) {
  for (Link& link : plan.links) {
    const auto same = std::find_if(given.begin(), given.end(), [&](const Link& other) {
      return other.from == link.from && other.to == link.to;
    });
    if (same == given.end()) continue;
    link.coding = same->coding;
    link.width = same->width;
  }
}

std::string boundaries_text(const Plan& plan) {
  std::set<std::string> names;
  for (const Link& link : plan.links) names.insert(to_string(link.coding));
  if (names.empty() || names == std::set<std::string>{to_string(BoundaryCoding{})}) return {};
  return fmt::format("{}", fmt::join(names, " and "));
}

SentOver sent_over(const Link& link, Precision precision) {
  const CodedValues there{.bytes = link.bytes, .precision = precision, .width = link.width};
  const CodedValues back{.bytes = link.bytes_back(), .precision = precision, .width = link.width};
  return {.bytes = coded_bytes(link.coding, there),
          .bytes_back = coded_bytes(link.coding, back),
          .coding_ns = coding_ns(link.coding, there),
          .coding_back_ns = coding_ns(link.coding, back)};
}

}  // namespace penstock::plan
