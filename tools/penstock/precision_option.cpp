#include "tools/penstock/precision_option.h"

#include <fmt/format.h>

#include "penstock/util/error.h"

namespace penstock::tool {

CLI::Option* add_precision(CLI::App& app, std::string& value, const std::string& text) {
  return app
      .add_option("--precision", value,
                  text +
                      ": float32, tf32 (GPUs), bfloat16 or float16. 16 bits halve activations, "
                      "messages between stages and versions of the weights; the trained weights "
                      "stay float32")
      ->check([](const std::string& name) -> std::string {
        try {
          parse_precision(name);
          return {};
        } catch (const ConfigError& error) {
          return error.what();
        }
      });
}

}  // namespace penstock::tool
