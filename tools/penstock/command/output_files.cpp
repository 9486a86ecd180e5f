#include "tools/penstock/command/output_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "penstock/util/error.h"
#include "tools/penstock/command/command.h"

namespace penstock::tool {

namespace {

bool is_same(const std::string& a, const std::string& b) {
  std::error_code error;
  if (const auto status = std::filesystem::status(a, error);
      std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return false;
  if (std::filesystem::equivalent(a, b, error) && !error) return true;
  const auto normal = [](const std::string& path) {
    std::error_code failed;  // no working folder: then the names as they are
    const std::filesystem::path whole =
        std::filesystem::weakly_canonical(std::filesystem::absolute(path, failed), failed);
    return failed ? std::filesystem::path(path).lexically_normal() : whole;
  };
  return normal(a) == normal(b);
}

}  // namespace

void check_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    if (output.path.empty()) continue;
    for (size_t k = 0; k < i; ++k) {
      if (outputs[k].path.empty() || !is_same(outputs[k].path, output.path)) continue;
      throw ConfigError(fmt::format("{} and {} expected two files, found '{}' for both",
                                    outputs[k].option, output.option, output.path));
    }
    for (const NamedFile& input : inputs) {
      std::error_code error;
      if (!std::filesystem::exists(input.path, error) || !is_same(input.path, output.path))
        continue;
      throw ConfigError(fmt::format("{} '{}' would overwrite the file of {}: expected another name",
                                    output.option, output.path, input.option));
    }
  }
  for (const NamedFile& output : outputs) check_output(output.option, output.path);
}

}  // namespace penstock::tool
