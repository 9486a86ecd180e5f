#include "tools/penstock/schedule/schedule_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "penstock/report/text/text.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/teams.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/verify/verify.h"

namespace penstock::tool {

namespace {

/// Between the stages of the schedule: the plan's, or from each stage to the next.
std::vector<schedule::StageLink> links_of(const plan::Plan* plan,
                                          const schedule::ScheduleShape& shape) {
  if (plan != nullptr) return schedule::links_of(*plan);
  const size_t stages = shape.teams.empty() ? shape.replicas.size() : shape.teams.size();
  return schedule::links_of_members(schedule::chain_links(static_cast<int>(stages)), shape.teams);
}

void check_stages(const schedule::ScheduleShape& shape, const plan::Plan& plan,
                  const std::string& path) {
  if (shape.teams != plan.teams()) {
    throw ConfigError(fmt::format(
        "{}: the schedule has teams of {} members by stage, the plan of {}: expected the same",
        path, shape.teams.empty() ? "1" : fmt::format("{}", fmt::join(shape.teams, ", ")),
        plan.teams().empty() ? "1" : fmt::format("{}", fmt::join(plan.teams(), ", "))));
  }
  const size_t stages = shape.teams.empty() ? shape.replicas.size() : shape.teams.size();
  if (stages == plan.stages.size()) return;
  throw ConfigError(
      fmt::format("{}: the schedule has {} stages, the plan {}", path, stages, plan.stages.size()));
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
  if (plan != nullptr) check_stages(schedule.shape, *plan, path);
  if (!schedule.lowered) {
    // lower() takes any compute actions that fit the shape; what is wrong with them is better said
    // of what the file holds.
    refuse_unsound(schedule, path, credits);
    schedule = schedule::lower(schedule, links_of(plan, schedule.shape));
  }
  refuse_unsound(schedule, path, credits);
  return schedule;
}

}  // namespace penstock::tool
