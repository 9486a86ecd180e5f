#include "penstock/report/timeline/action_labels.h"
#include "penstock/schedule/stages_in.h"

#include <fmt/format.h>

namespace penstock::report {

using schedule::Action;

ActionLabels::ActionLabels(const schedule::Schedule& schedule) {
  for (const auto& list : schedule.workers) {
    stages_.push_back(
        schedule::stages_in(list, [](const Action& action) -> const Action& { return action; }));
  }
  set_style();
}

ActionLabels::ActionLabels(const schedule::Timeline& timeline) {
  for (const auto& events : timeline.workers) {
    stages_.push_back(schedule::stages_in(
        events,
        [](const schedule::TimelineEvent& event) -> const Action& { return event.action; }));
  }
  set_style();
}

void ActionLabels::set_style() {
  size_t most = 0;
  for (const auto& stages : stages_) most = std::max(most, stages.size());
  style_ = most <= 1 ? Style::Plain : most == 2 ? Style::Case : Style::Stage;
}

std::string ActionLabels::text(size_t worker, const Action& action) const {
  const std::string plain = fmt::format("{}{}", letter(worker, action), action.micro_batch.value);
  return style_ == Style::Stage ? fmt::format("{}{}", action.stage.value, plain) : plain;
}

char ActionLabels::letter(size_t worker, const Action& action) const {
  const char upper = to_string(action.op)[0];
  const bool is_second = style_ == Style::Case && !stages_[worker].empty() &&
                         action.stage.value != stages_[worker].front();
  return is_second ? static_cast<char>(upper - 'A' + 'a') : upper;
}

std::string ActionLabels::legend() const {
  return style_ == Style::Case ? "f, b: second stage" : "";
}

}  // namespace penstock::report
