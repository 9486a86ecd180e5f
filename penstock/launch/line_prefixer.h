// Cuts a stream of bytes into lines and puts a prefix before each, but for the JSON objects of a
// log (train --log-format json), which have their rank.
//
//   LinePrefixer lines("[rank 2] ");
//   lines.add("loss 0.5\nlo", out);  // out: "[rank 2] loss 0.5\n"
//   lines.finish(out);               // out: ... "[rank 2] lo\n"
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace penstock::launch {

/// Not thread-safe. Keeps at most kMostLineBytes.
class LinePrefixer {
 public:
  /// Longer lines are passed on in pieces of this size, each as a line of its own.
  static constexpr size_t kMostLineBytes = size_t{64} << 10;
  /// Takes whole lines, with prefix and newline.
  using Sink = std::function<void(std::string_view)>;

  explicit LinePrefixer(std::string prefix);
  void add(std::string_view bytes, const Sink& sink);
  /// Passes on a last line that has no newline.
  void finish(const Sink& sink);

 private:
  void pass_on(const Sink& sink);

  size_t prefix_size_;
  std::string line_;  // begins with the prefix
};

}  // namespace penstock::launch
