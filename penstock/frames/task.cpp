#include "penstock/frames/task.h"

#include <fmt/format.h>

#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::frames {

std::string_view to_string(Task task) {
  switch (task) {
    case Task::Reconstruct:
      return "reconstruct";
    case Task::Predict:
      return "predict";
    case Task::Pixels:
      return "pixels";
    case Task::Label:
      return "label";
  }
  return "?";
}

Task parse_task(std::string_view name) {
  for (const Task task : kTasks) {
    if (to_string(task) == name) return task;
  }
  throw ConfigError(fmt::format("unknown task '{}', expected reconstruct, predict, pixels or label",
                                name.substr(0, 40)));
}

int64_t outputs_of(Task task, const FrameKind& kind) {
  PENSTOCK_CHECK(!needs_labels(task) || kind.classes > 0, to_string(task), kind.classes);
  switch (task) {
    case Task::Reconstruct:
    case Task::Predict:
      return kind.channels;
    case Task::Pixels:
      return int64_t{kind.classes} + kind.channels;
    case Task::Label:
      return kind.classes;
  }
  PENSTOCK_CHECK(false, "unknown task");
}

}  // namespace penstock::frames
