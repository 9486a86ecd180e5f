#include "penstock/job/git_state.h"

#include <array>
#include <cstdio>
#include <memory>

namespace penstock::job {

namespace {

/// What the command prints; nothing: it failed. A file system that hangs is waited for only so
/// long.
std::optional<std::string> output_of(const std::string& arguments) {
  const std::string command = "timeout 20 git --no-optional-locks " + arguments + " 2>/dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 4096> part{};
  for (size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), n);
  if (pclose(pipe) != 0) return std::nullopt;
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::optional<GitState> git_state() {
  const std::optional<std::string> commit = output_of("rev-parse --verify HEAD");
  const std::optional<std::string> folder = output_of("rev-parse --show-toplevel");
  if (!commit || !folder) return std::nullopt;
  const std::optional<std::string> changes = output_of("status --porcelain --untracked-files=no");
  return GitState{*commit, *folder, !changes || !changes->empty()};
}

}  // namespace penstock::job
