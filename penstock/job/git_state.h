// Which commit of a git repository the working folder has: what a run was made from.
//
//   if (const auto git = git_state()) use(git->commit);
#pragma once

#include <optional>
#include <string>

namespace penstock::job {

struct GitState {
  std::string commit;
  std::string folder;        ///< of the repository
  bool has_changes = false;  ///< tracked files differ from the commit
};

/// Of the working folder; nothing: it lies in no repository, or there is no git. Asks the program,
/// which may take some seconds where the repository is large.
std::optional<GitState> git_state();

}  // namespace penstock::job
