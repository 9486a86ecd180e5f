// What the ranks of one job do together outside of the runs of a pipeline.
//
//   const std::vector<std::string> texts = together(ranks, [&] { return write_my_part(); });
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace penstock::runtime {

class World;

struct Ranks {
  World* world = nullptr;                       ///< null: this process alone
  std::chrono::milliseconds deadline{300'000};  ///< for every single wait

  /// Whether this is rank 0, which does what one rank must do for all.
  bool is_first() const;
};

/// Runs `part` on this rank, tells all ranks how it ended, and returns every rank's text. When any
/// rank's part throws, all throw: that rank its own exception, the others, and those that have the
/// same failure as rank 0, one of the same kind that names rank and reason. Collective; blocks
/// until all ranks are here; throws TimeoutError.
std::vector<std::string> together(const Ranks& ranks, const std::function<std::string()>& part);

}  // namespace penstock::runtime
