#include "penstock/job/run_memory.h"

#include <algorithm>

namespace penstock::job {

report::MemoryAccount memory_account(const train::TrainResult& result,
                                     const Prediction* predicted) {
  report::MemoryAccount account;
  if (result.ranks.empty() && result.memory.resident > 0)
    account.processes.push_back({.peak_bytes = result.peak_memory_bytes, .memory = result.memory});
  for (size_t r = 0; r < result.ranks.size(); ++r) {
    const train::RankSummary& rank = result.ranks[r];
    if (rank.memory.resident <= 0) continue;
    account.processes.push_back({.rank = static_cast<int64_t>(r),
                                 .peak_bytes = rank.peak_memory_bytes,
                                 .memory = rank.memory});
  }
  const bool counted = std::any_of(result.worker_memory.begin(), result.worker_memory.end(),
                                   [](const MemoryBytes& bytes) { return bytes.sum() > 0; });
  if (!counted) return account;
  for (size_t w = 0; w < result.worker_memory.size(); ++w) {
    account.workers.push_back({.measured = result.worker_memory[w]});
    if (predicted != nullptr && w < predicted->memory.size())
      account.workers.back().predicted = predicted->memory[w];
  }
  return account;
}

}  // namespace penstock::job
