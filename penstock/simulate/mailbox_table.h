// Where the messages of each link are kept; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/mailbox.h"

namespace penstock::simulate::detail {

/// A mailbox for each link, direction and replica of the receiving stage, so that it is in the
/// cache of the worker that reads it; replicas share one where there would be too many.
class MailboxTable {
 public:
  MailboxTable(const std::vector<schedule::StageLink>& links, const schedule::WorkerTable& table) {
    int64_t total = 0;
    for (const schedule::StageLink& link : links)
      total += table.replicas(link.from) + table.replicas(link.to);
    const int most = total > kMostMailboxes ? 1 : INT32_MAX;
    size_t next = 0;
    rows_.reserve(2 * links.size());
    for (const schedule::StageLink& link : links) {
      for (const StageId receiving : {link.to, link.from}) {
        rows_.push_back({next, std::min(table.replicas(receiving), most)});
        next += static_cast<size_t>(rows_.back().size);
      }
    }
    mailboxes_.resize(next);
  }

  /// `lane`: twice the link's number, plus one for gradients. `replica`: of the stage that
  /// receives.
  Mailbox& at(int32_t lane, int32_t replica) {
    const Row& row = rows_[static_cast<size_t>(lane)];
    return mailboxes_[row.first +
                      static_cast<size_t>(replica < row.size ? replica : replica % row.size)];
  }

 private:
  static constexpr int64_t kMostMailboxes = 4'000'000;
  struct Row {
    size_t first = 0;
    int32_t size = 0;
  };

  std::vector<Row> rows_;
  std::vector<Mailbox> mailboxes_;
};

}  // namespace penstock::simulate::detail
