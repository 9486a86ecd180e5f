// penstock verify: proves a schedule sound or says what is wrong with it.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "penstock/schedule/text_format.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/json.h"
#include "penstock/util/units.h"
#include "penstock/verify/verify.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

namespace {

struct Options : CommonOptions {
  std::string schedule;
  int64_t credits = 1;
  std::string memory_limit;
  std::string stash;
  std::string weight_bytes;
};

void print_json(const std::vector<verify::Violation>& violations, int64_t credits, const std::vector<verify::WorkerPeaks>& peaks) {
  Json list = Json::array();
  for (const auto& v : violations)
    list.push_back({{"rule", v.rule}, {"worker", v.worker.value}, {"action", v.action}, {"message", v.message}});
  Json workers = Json::array();
  for (const auto& p : peaks) workers.push_back({{"weight_versions", p.versions}, {"stashed_micro_batches", p.stashed_micro_batches}});
  const Json document{{"ok", violations.empty()}, {"violations", list}, {"min_credits", credits}, {"workers", workers}};
  write_output("", document.dump() + "\n");
}

int run(const Options& options) {
  if (options.credits < 0) throw ConfigError(fmt::format("--credits must be at least 0 (rendezvous), found {}", options.credits));
  const schedule::Schedule schedule = schedule::parse_schedule(read_file(options.schedule), options.schedule);
  verify::Options rules{.credits = options.credits};
  const size_t stages = schedule.shape.replicas.size();
  if (!options.memory_limit.empty()) {
    rules.memory_limit_bytes = parse_option("--memory-limit", options.memory_limit, parse_bytes);
    rules.stash_bytes.assign(stages, options.stash.empty() ? 0 : parse_option("--stash-bytes", options.stash, parse_bytes));
    rules.weight_bytes.assign(stages, options.weight_bytes.empty() ? 0 : parse_option("--weight-bytes", options.weight_bytes, parse_bytes));
  }
  const auto violations = verify::verify(schedule, rules);
  const int64_t credits = verify::min_credits(schedule);
  const auto peaks = verify::peaks(schedule);
  if (options.json) {
    print_json(violations, credits, peaks);
  } else if (violations.empty()) {
    int64_t versions = 0;
    int64_t stashed = 0;
    for (const auto& p : peaks) {
      versions = std::max(versions, p.versions);
      stashed = std::max(stashed, p.stashed_micro_batches);
    }
    write_output("", fmt::format("sound: {} ({} workers, {} actions); needs {} credit(s) per channel; at most {} weight version(s) and {} "
                                 "stashed micro-batch(es) on a worker\n",
                                 options.schedule, schedule.workers.size(), schedule.num_actions(), credits, versions, stashed));
  } else {
    std::string text = fmt::format("not sound: {} violation(s) in {}\n", violations.size(), options.schedule);
    for (const auto& v : violations) text += fmt::format("  [{}] {}\n", v.rule, v.message);
    write_output("", text);
  }
  return violations.empty() ? kExitYes : kExitNo;
}

}  // namespace

Command verify_command(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("verify", "Prove a schedule sound (exit 0) or say which rule it breaks (exit 1)");
  app->add_option("schedule", options->schedule, "Schedule in text form (penstock schedule, or PyTorch's CSV)")->required();
  app->add_option("--credits", options->credits, "Messages that fit into a channel before a send waits; 0: rendezvous")
      ->capture_default_str();
  auto* limit = app->add_option("--memory-limit", options->memory_limit, "Memory per worker, e.g. 16GB");
  app->add_option("--stash-bytes", options->stash, "Bytes a micro-batch keeps between forward and backward, per stage")->needs(limit);
  app->add_option("--weight-bytes", options->weight_bytes, "Bytes of one version of a stage's weights")->needs(limit);
  add_common(*app, *options);
  return {app, [options]() { return run(*options); }};
}

}  // namespace penstock::tool
