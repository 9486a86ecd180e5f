// A stream that is learned from until it ends: the loop, what looks at it, its page.
//
//   StreamRun run(parts, std::move(source), std::move(state));
//   const stream::StreamSummary summary = run.run();
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/frames/frame_queue.h"
#include "penstock/job/stream/prepare_stream.h"
#include "penstock/job/stream/stream_weights.h"
#include "penstock/live/live_server.h"
#include "penstock/options/stream_request.h"
#include "penstock/stream/online_loop.h"
#include "penstock/stream/recent_stages.h"
#include "tools/penstock/stream/prediction_log.h"
#include "tools/penstock/stream/stream_live.h"
#include "tools/penstock/stream/stream_view.h"

namespace penstock::tool {

/// What the user asks for while it runs.
struct StreamSignals {
  const std::atomic<bool>& stop;
  std::atomic<bool>& save;  ///< the weights; taken back when it was seen
};

/// What looks at the stream now and then, from the watching thread.
class StreamWatcher {
 public:
  StreamWatcher(const options::StreamRequest& request, const StreamSignals& signals,
                bool has_deadline);

  /// `live`: null without a page.
  void look(const stream::StreamLook& now, stream::OnlineLoop& loop, StreamLive* live);

  /// Since the last plan.
  const stream::RecentStages& stages() const { return stages_; }
  void begin_anew() { stages_.clear(); }
  /// A line on standard error.
  void say(const std::string& line);
  const std::atomic<bool>* stop() const { return &stop_; }
  /// Whether --seconds are over.
  bool timed_out() const { return timed_out_; }
  void finish() { view_.finish(); }

 private:
  const options::StreamRequest& request_;
  const StreamSignals signals_;
  StreamView view_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point saved_ = begun_;
  std::atomic<bool> stop_{false};
  bool timed_out_ = false;
  stream::RecentStages stages_;
};

/// All of them outlive the run.
struct StreamParts {
  const options::StreamRequest& request;
  const job::StreamSubject& subject;
  const job::PreparedStream& prepared;
  job::StreamWeights& weights;
  StreamSignals signals;
};

/// Not thread-safe.
class StreamRun {
 public:
  /// Begins to read the source and to show the page. `state`: where the weights begin; nothing:
  /// anew. Throws ConfigError.
  StreamRun(const StreamParts& parts, std::unique_ptr<frames::FrameSource> source,
            std::optional<stream::StreamState> state);

  /// Learns until the stream ends, and stops reading. What a stage fails with ends the stream as a
  /// broken source does, without weights.
  stream::StreamSummary run();

  std::string source() const { return queue_.description(); }
  /// Medians of the last looks.
  std::vector<stream::StageTimes> stages() const { return watcher_.stages().medians(); }

 private:
  stream::StreamOptions loop_options(std::optional<stream::StreamState> state);
  std::optional<plan::Plan> better_than(const plan::Plan& now);

  const StreamParts parts_;
  frames::FrameQueue queue_;
  StreamWatcher watcher_;
  std::unique_ptr<StreamLive> page_;
  std::unique_ptr<PredictionLog> predictions_;  ///< null: none are wanted
  stream::OnlineLoop loop_;
  std::optional<live::LiveServer> server_;
};

}  // namespace penstock::tool
