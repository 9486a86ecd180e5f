#include "tools/penstock/train/train_arguments.h"

#include "tools/penstock/command/output_files.h"
#include "tools/penstock/command/row_options.h"

namespace penstock::tool {

CLI::App* add_train(CLI::App& parent, TrainArguments& arguments) {
  CLI::App* app = parent.add_subcommand("train", "Train a model through a pipeline");
  add_rows(*app, arguments.request);
  return app;
}

void check(const TrainArguments& arguments) {
  const options::TrainRequest& request = arguments.request;
  options::check(request);
  check_outputs({{"--trace", request.output.trace},
                 {"--history", request.output.history},
                 {"--html", request.output.html},
                 {"--health-file", request.operation.health_file}},
                {{"--plan", request.plan.file},
                 {"--profile", request.plan.profile},
                 {"--model", request.model.name},
                 {"--config", request.file.config}});
}

}  // namespace penstock::tool
