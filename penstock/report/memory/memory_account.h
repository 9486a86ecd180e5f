// What the memory of a run consisted of when it was largest, process by process and worker by
// worker, beside what was predicted: in words, as JSON, and as bars on a page.
//
//   MemoryAccount account = read_memory(root.at("memory"));
//   std::string text = memory_text(account);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/util/files/json.h"
#include "penstock/util/process/memory_kinds.h"

namespace penstock::report {

struct ProcessAccount {
  std::optional<int64_t> rank = {};  ///< none: the run's only process
  int64_t peak_bytes = 0;            ///< as the system says
  ProcessMemory memory = {};

  /// The part of the peak that has a name; 0: nothing was counted.
  double named_share() const;
};

struct WorkerAccount {
  MemoryBytes measured = {};   ///< its tensors, at their own peak
  MemoryBytes predicted = {};  ///< zeros: nothing is known
};

struct MemoryAccount {
  std::vector<ProcessAccount> processes = {};  ///< those that count
  std::vector<WorkerAccount> workers = {};

  bool empty() const { return processes.empty() && workers.empty(); }
};

/// The kind of a worker in which measurement and prediction are furthest apart.
struct MemoryDifference {
  size_t worker = 0;
  MemoryKind kind = MemoryKind::Other;
  int64_t measured = 0;
  int64_t predicted = 0;
};
/// Nothing where nothing was predicted.
std::optional<MemoryDifference> largest_difference(const MemoryAccount& account);

/// {"processes": [...], "workers": [...]}, as docs/formats.md says.
Json memory_json(const MemoryAccount& account);
/// Throws ParseError for what memory_json() does not write; unknown keys are left out.
MemoryAccount read_memory(const JsonReader& json);

/// A line for each of at most eight processes, a table of at most eight workers, the largest
/// difference; empty for nothing.
std::string memory_text(const MemoryAccount& account);
/// Stacked bars with a legend and a table; empty for nothing.
std::string memory_bars(const MemoryAccount& account);

}  // namespace penstock::report
