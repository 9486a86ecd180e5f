#include "penstock/job/saved_options.h"

#include <fmt/format.h>

#include "penstock/util/text/printable.h"

namespace penstock::job {

std::map<std::string, std::string> saved_settings(const train::CheckpointPosition& position) {
  if (!position.settings.empty()) return position.settings;
  std::map<std::string, std::string> settings{
      {"--batch-size", fmt::to_string(position.mini_batch_size)},
      {"--optimizer", position.optimizer}};
  if (position.shuffle) settings["--no-shuffle"] = *position.shuffle ? "no" : "yes";
  return settings;
}

std::string changed_settings(const std::map<std::string, std::string>& saved,
                             const std::map<std::string, std::string>& now) {
  std::string changes;
  for (const auto& [name, value] : now) {
    const auto before = saved.find(name);
    if (before == saved.end() || before->second == value) continue;
    changes += fmt::format("{}{} {} (was {})", changes.empty() ? "" : ", ", name, value,
                           printable(before->second));
  }
  if (changes.empty()) return {};
  return fmt::format("warning: options differ from those of the checkpoint: {}\n", changes);
}

}  // namespace penstock::job
