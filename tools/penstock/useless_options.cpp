#include "tools/penstock/useless_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/plan/gradient_sync.h"

namespace penstock::tool {

std::string useless_options(const CLI::App& app, const TrainArguments& arguments, bool in_job) {
  const train::TrainOptions& train = arguments.train;
  std::string text;
  const auto warn = [&](const char* option, const std::string& why) {
    if (!app.get_option(option)->empty())
      text += fmt::format("warning: {} has no effect: {}\n", option, why);
  };
  if (train.learning_rate.schedule != "step") {
    for (const char* option : {"--lr-factor", "--lr-every"})
      warn(option, fmt::format("--lr-schedule is {}, expected step", train.learning_rate.schedule));
  }
  if (train.optimizer.name != "sgd")
    warn("--momentum", fmt::format("--optimizer is {}, expected sgd", train.optimizer.name));
  const bool has_replicas = train.plan.replicas() != std::vector<int>(train.plan.stages.size(), 1);
  if (!has_replicas) {
    const std::string why = "the plan has no replicas, so there are no gradients to add";
    if (arguments.sync != "auto") warn("--sync", why);
    warn("--sync-precision", why);
    warn("--staleness", why);
    warn("--shard-optimizer",
         "the plan has no replicas that could share out the optimiser's state");
  } else if (train.plan.sync != to_string(plan::GradientSync::Asynchronous)) {
    warn("--staleness", fmt::format("the plan's replicas wait for each other (--sync {}), expected "
                                    "--sync asynchronous",
                                    train.plan.sync));
  }
  if (!in_job) {
    for (const char* option : {"--silence", "--patience"})
      warn(option, "this process is not a rank of a job of several");
  }
  return text;
}

}  // namespace penstock::tool
