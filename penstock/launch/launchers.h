// The launchers that Penstock knows, a row each: in which variables they tell a process that it is
// a rank. Internal to launch; job_environment() reads them.
//
//   for (const Launcher& row : launchers()) if (applies(row, variables)) ...
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "penstock/launch/environment_variables.h"

namespace penstock::launch {

/// Where a launcher's ranks run, so that it may have started another launcher: a batch system's
/// own tasks, or processes that it starts for a user.
enum class Level : uint8_t {
  Marked,       ///< starts ranks and tells each that it did: what stands beside is left over
  Operator,     ///< RANK and WORLD_SIZE of anybody
  Launcher,     ///< starts ranks
  BatchSystem,  ///< starts ranks, or one process per machine of another launcher
};

/// Names of variables; null: the launcher has none.
struct Launcher {
  std::string_view name;
  Level level = Level::Launcher;
  const char* rank = nullptr;
  const char* ranks = nullptr;
  const char* local_rank = nullptr;
  const char* local_ranks = nullptr;
  /// Number of machines, over which ranks are dealt evenly, where `local_ranks` is null.
  const char* machines = nullptr;
  /// Without it a row does not apply: others have the variables of `rank` and `ranks`, too.
  const char* mark = nullptr;
  const char* address = "MASTER_ADDR";
  const char* port = "MASTER_PORT";
  /// Whether `address` and `port` are the launcher's own, so that a job of several ranks has them.
  bool brings_address = false;
  /// How its command passes `address` on; empty: as it does any variable.
  std::string_view passes = {};
  /// Whether this process is one of its ranks, beside the names above. Null: yes.
  bool (*is_rank)(const Variables& variables) = nullptr;
  /// Ranks on this machine, where no variable has just that. Null: by the names above.
  int (*count_local)(const Variables& variables, int ranks) = nullptr;
  /// Rank 0's machine, where `address` does not have it. Null: nobody knows.
  std::string (*find_address)(const Variables& variables) = nullptr;
  /// What a user may have meant otherwise; empty: nothing. Null: nothing.
  std::string (*doubt)(const Variables& variables) = nullptr;
};

/// The first that applies counts: a launcher before those that may have started it.
std::span<const Launcher> launchers();

/// Whether its variables are there.
bool applies(const Launcher& row, const Variables& variables);

/// "RANK=1 and WORLD_SIZE=4", as they are found.
std::string told_by(const Launcher& row, const Variables& variables);

}  // namespace penstock::launch
