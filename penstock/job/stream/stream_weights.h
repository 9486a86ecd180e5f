// The weights of a stream in a folder, as those of a training without epochs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/job/listener.h"
#include "penstock/model/model.h"
#include "penstock/model/optimizer.h"
#include "penstock/options/stream_request.h"
#include "penstock/stream/online_loop.h"
#include "penstock/train/checkpoint/folder_lock.h"

namespace penstock::job {

/// Not thread-safe. Keeps references.
class StreamWeights {
 public:
  /// Takes the folder for this process, if one is given. Throws ConfigError when it cannot be
  /// written to, another run has it, or it holds weights and `resume` is not set.
  /// `classes`: the names of the source's classes; empty: those that the weights come with stay.
  StreamWeights(const options::StreamRequest& request, const model::Model& model,
                std::vector<std::string> classes = {});

  /// The newest weights, if they are wanted and there are any; tells which. Throws CheckpointError,
  /// and ConfigError for weights of other classes.
  std::optional<stream::StreamState> load(const Listener& listener);

  /// Returns a line that says what was saved, or why not; empty where no folder is given. A disk
  /// may be full for a while: the next time it is tried again.
  std::string save(const stream::StreamState& state);
  /// Why the newest save failed; empty: it did not.
  const std::string& failure() const { return failure_; }

 private:
  const options::StreamRequest& request_;
  const model::Model& model_;
  std::unique_ptr<model::Optimizer> optimizer_;
  std::string folder_;  ///< empty: nothing is saved
  std::optional<train::RunLock> lock_;
  std::string failure_;
  std::vector<std::string> classes_;  ///< their names; empty: not known
};

}  // namespace penstock::job
