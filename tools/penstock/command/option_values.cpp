#include "tools/penstock/command/option_values.h"

#include <sstream>

namespace penstock::tool {

std::vector<std::pair<std::string, std::string>> option_values(const CLI::App& app) {
  std::vector<std::pair<std::string, std::string>> values;
  std::istringstream lines(app.config_to_str(/*default_also=*/true));
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (line.starts_with("data-folder") || line.starts_with("#") || equals == std::string::npos)
      continue;
    values.emplace_back("--" + line.substr(0, equals), line.substr(equals + 1));
  }
  return values;
}

}  // namespace penstock::tool
