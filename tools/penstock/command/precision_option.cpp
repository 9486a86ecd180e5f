#include "tools/penstock/command/precision_option.h"

#include "penstock/options/rows.h"
#include "penstock/util/error.h"

namespace penstock::tool {

CLI::Option* add_precision(CLI::App& app, std::string& value, const std::string& text) {
  return app.add_option("--precision", value, text + ": " + std::string(options::kPrecisionHelp))
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
