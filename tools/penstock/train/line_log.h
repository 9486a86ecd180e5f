// What `penstock train --log-format text|json` writes on standard error: a line, or an object, for
// each message, step now and then, epoch and evaluation, with the time and the rank.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "penstock/job/listener.h"
#include "penstock/job/log_lines.h"
#include "penstock/train/train_observer.h"

namespace penstock::tool {

/// Thread-safe.
class LineLog : public train::TrainObserver {
 public:
  LineLog(options::LogForm form, int rank) : form_(form), rank_(rank) {}

  /// As one piece: processes share the stream.
  void write(const job::LogRecord& record) const;
  /// Of the library and of complain(), too, from now on. The log must outlive the program's work.
  void take_all_messages() const;
  /// Texts that begin with "warning: " are of that level.
  job::Listener listener() const;

  /// At most every five seconds.
  void on_mini_batch(const train::Progress& progress) override;
  void on_epoch(const train::EpochSummary& summary) override;
  void on_evaluation(const train::Evaluation& evaluation) override;

 private:
  const options::LogForm form_;
  const int rank_;
  std::chrono::steady_clock::time_point last_ = {};  ///< step; one call at a time
};

}  // namespace penstock::tool
