#include "penstock/util/process/processor.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

namespace penstock {

namespace {

/// What stands behind the colon of the first line of that name.
std::string line_of(std::string_view name) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with(name) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

/// "flags" of x86, "Features" of ARM.
std::set<std::string> features() {
  std::istringstream words(line_of("flags") + ' ' + line_of("Features"));
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

std::string processor_name() {
  const std::string name = line_of("model name");
  return name.empty() ? "CPU" : name;
}

std::string processor_features() {
  std::string text;
  for (const std::string& feature : features()) text += feature + ' ';
  return text;
}

bool multiplies(FloatType type) {
  static const std::set<std::string> kFeatures = features();
  const auto has = [](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [](const char* name) { return kFeatures.contains(name); });
  };
  switch (type) {
    case FloatType::Float32:
      return true;
    case FloatType::BFloat16:
      return has({"avx512_bf16", "amx_bf16", "bf16"});
    case FloatType::Float16:
      return has({"avx512_fp16", "amx_fp16", "asimdhp"});
  }
  return false;
}

}  // namespace penstock
