// What a running stream shows: a block of lines that is drawn again on a terminal, a plain line now
// and then elsewhere; at the end a summary as text or JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/stream/online_loop.h"
#include "penstock/stream/recent_numbers.h"

namespace penstock::tool {

/// `recent`: of the last seconds; the latencies are those since the look before.
/// "in 312  out 300  dropped 10  29.8 frames/s  latency 41.0 ms (99 %: 63.2 ms)  loss 0.0123".
std::string line_of(const stream::StreamLook& look, const stream::StreamNumbers& recent,
                    bool has_deadline);

/// Not thread-safe. On standard error.
class StreamView {
 public:
  explicit StreamView(bool has_deadline);
  void show(const stream::StreamLook& look);
  /// Leaves what is drawn, so that other lines may follow.
  void finish();

 private:
  void draw(const stream::StreamLook& look, const stream::StreamNumbers& recent);

  bool has_deadline_;
  bool terminal_;
  stream::RecentNumbers recent_;
  int drawn_lines_ = 0;
  std::chrono::steady_clock::time_point last_;
  bool shown_ = false;
};

struct StreamReport {
  const stream::StreamSummary& summary;
  std::string source;
  frames::Task task;
  std::string error = {};  ///< why the stream failed; empty: it did not
  double wanted_fps = 0;   ///< 0: none
  double predicted_fps = 0;
  int64_t deadline_ns = 0;                 ///< 0: none
  std::vector<stream::StageTimes> stages;  ///< medians of the last looks
  std::vector<at::Device> devices = {};    ///< of the stages; empty: the CPU
};
std::string stream_text(const StreamReport& report);
std::string stream_json(const StreamReport& report);

}  // namespace penstock::tool
