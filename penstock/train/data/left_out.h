// What a data set has that is not used, for people.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace penstock::train {

/// How many of each kind.
class LeftOut {
 public:
  void add(const std::string& kind, int64_t count = 1) { counts_[kind] += count; }
  void add(const LeftOut& other) {
    for (const auto& [kind, count] : other.counts_) add(kind, count);
  }
  /// "2 .gif, 1 hidden"; empty: nothing.
  std::string text() const;

 private:
  std::map<std::string, int64_t> counts_;
};

}  // namespace penstock::train
