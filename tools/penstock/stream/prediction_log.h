// What the model made of each frame of a stream, as JSON lines.
//
//   PredictionLog log("cats.jsonl", {"cat", "dog"});
//   log.add(result);     // {"frame":12,"loss":0.31,"class":"cat","share":0.73,"label":"cat"}
//   log.finish();
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "penstock/stream/frame_loss.h"

namespace penstock::tool {

/// Used by one thread at a time.
class PredictionLog {
 public:
  /// Begins the file anew. `names` of the classes; empty: their numbers. Throws ConfigError if the
  /// file cannot be written.
  PredictionLog(std::string path, std::vector<std::string> names);

  void add(const stream::FrameResult& result);
  /// What kept lines from being written; empty: nothing did.
  std::string finish();

 private:
  std::string name_of(int cls) const;

  std::string path_;
  std::vector<std::string> names_;
  std::ofstream file_;
};

}  // namespace penstock::tool
