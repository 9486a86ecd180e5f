#include "tools/penstock/schedule/schedule_file.h"

#include <fmt/format.h>

#include <vector>

#include "penstock/report/text/text.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/verify/verify.h"

namespace penstock::tool {

namespace {

std::vector<schedule::StageLink> links_of(const plan::Plan* plan, int num_stages) {
  if (plan == nullptr) return schedule::chain_links(num_stages);
  std::vector<schedule::StageLink> links;
  for (const plan::Link& link : plan->links) links.push_back({link.from, link.to});
  return links;
}

void refuse_unsound(const schedule::Schedule& schedule, const std::string& path, int64_t credits) {
  const auto violations = verify::verify(schedule, {.credits = credits, .max_violations = 1});
  if (violations.empty()) return;
  const verify::Violation& first = violations.front();
  if (first.rule != "deadlock")
    throw ConfigError(fmt::format("{}: not sound ({}): {}", path, first.rule, first.message));
  const int64_t needed = verify::min_credits(schedule);
  throw ConfigError(
      fmt::format("{}: not sound with {} per channel ({}): {}; {}", path,
                  report::plural(credits, "credit"), first.rule, first.message,
                  needed < 0 ? "no number of credits helps" : fmt::format("it needs {}", needed)));
}

}  // namespace

schedule::Schedule parse_schedule_file(const std::string& path, std::vector<std::string>* notes) {
  const std::string text = read_file(path);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') {
    throw ConfigError(
        fmt::format("{}: expected a schedule, found JSON; of a plan, `penstock schedule --plan {} "
                    "-o schedule.txt` makes one",
                    path, path));
  }
  if (first != std::string::npos && text[first] == '<')
    throw ConfigError(fmt::format("{}: expected a schedule, found a page or a picture", path));
  return schedule::parse_schedule(text, path, notes);
}

schedule::Schedule read_schedule(const std::string& path, const plan::Plan* plan, int64_t credits) {
  schedule::Schedule schedule = parse_schedule_file(path);
  if (plan != nullptr && schedule.shape.replicas.size() != plan->stages.size()) {
    throw ConfigError(fmt::format("{}: the schedule has {} stages, the plan {}", path,
                                  schedule.shape.replicas.size(), plan->stages.size()));
  }
  if (!schedule.lowered) {
    // lower() takes any compute actions that fit the shape; what is wrong with them is better said
    // of what the file holds.
    refuse_unsound(schedule, path, credits);
    schedule = schedule::lower(schedule, links_of(plan, schedule.shape.num_stages()));
  }
  refuse_unsound(schedule, path, credits);
  return schedule;
}

}  // namespace penstock::tool
