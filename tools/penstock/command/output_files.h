// The files that a command is about to write, checked before its work begins.
//
//   check_outputs({{"--trace", options.trace}, {"--html", options.html}},
//                 {{"--plan", options.plan}});
#pragma once

#include <string>
#include <vector>

namespace penstock::tool {

struct NamedFile {
  std::string option;
  std::string path;  ///< empty: not given
};

/// check_output() of every output. Throws ConfigError, too, where two outputs are the same file, or
/// where one is the same file as an input, which would be lost. Devices and pipes may be both.
void check_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);

}  // namespace penstock::tool
