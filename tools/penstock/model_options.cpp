#include "tools/penstock/model_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/model/zoo_names.h"

namespace penstock::tool {

void add_model_options(CLI::App& app, ModelOptions& options, bool required) {
  app.add_option(
         "--model", options.name,
         fmt::format("A model exported from PyTorch (FILE.pt2; penstock import), or one of: "
                     "{}",
                     fmt::join(model::kZooNames, ", ")))
      ->required(required);
  app.add_option("--width", options.width,
                 "mlp, tied_mlp: width of the hidden layers; partime: features")
      ->check(whole_number(1));
  app.add_option("--depth", options.depth,
                 "mlp, tied_mlp: number of hidden layers; partime: convolutions")
      ->check(whole_number(1));
  app.add_option("--kernel", options.kernel, "partime: side of the convolutions' kernels")
      ->check(whole_number(1));
  app.add_option("--classes", options.classes, "Number of classes (default: the model's own)")
      ->check(whole_number(1));
  app.add_option("--input", options.input,
                 "Shape of one sample, e.g. 3x32x32 (default: the model's own)");
}

void add_loss_options(CLI::App& app, model::LossSpec& loss) {
  app.add_option("--loss", loss.name,
                 fmt::format("{} (default: model where the model makes its loss itself, otherwise "
                             "cross-entropy)",
                             model::kLossNames));
  app.add_option("--label-smoothing", loss.label_smoothing,
                 "cross-entropy: spread this share of a target over all classes")
      ->capture_default_str();
  app.add_option("--ignore-index", loss.ignore_index,
                 "cross-entropy: targets of this value count nothing")
      ->capture_default_str();
}

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
