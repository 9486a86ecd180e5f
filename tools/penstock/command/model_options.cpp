#include "tools/penstock/command/model_options.h"

namespace penstock::tool {

CLI::App* add_import(CLI::App& parent, ImportArguments& arguments) {
  CLI::App* app = parent.add_subcommand(
      "import", "Show what is in a model exported from PyTorch, or why it cannot be trained here");
  app->add_option("model", arguments.path, "The file of torch.export.save: FILE.pt2")->required();
  add_common(*app, arguments);
  return app;
}

CLI::App* add_models(CLI::App& parent, CommonOptions& options) {
  CLI::App* app = parent.add_subcommand("models", "List the models that come with Penstock");
  add_common(*app, options);
  return app;
}

}  // namespace penstock::tool
