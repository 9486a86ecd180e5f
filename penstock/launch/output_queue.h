// What waits to be written to standard output or standard error. A reader that pauses (a pager)
// must not keep the launcher from hearing signals, so nothing here blocks: what does not fit yet
// stays in the queue, and while it is full the ranks' output is left in their pipes.
//
//   OutputQueue queue(STDERR_FILENO);
//   queue.add("rank 2 ended with exit code 3\n");
//   if (queue.pending()) poll(...POLLOUT on queue.fd()...), queue.write_some();
#pragma once

#include <string>
#include <string_view>

#include "penstock/launch/file_descriptor.h"

namespace penstock::launch {

/// Not thread-safe. SIGPIPE must be blocked or ignored: a reader that is gone only empties the
/// queue for good.
class OutputQueue {
 public:
  static constexpr size_t kFullBytes = size_t{1} << 20;

  /// Writes to `fd`, which stays the caller's.
  explicit OutputQueue(int fd);

  /// The descriptor to wait for.
  int fd() const { return own_.is_open() ? own_.get() : fd_; }
  bool pending() const { return begin_ < text_.size(); }
  /// Whether more should wait; add() takes it all the same.
  bool full() const { return text_.size() - begin_ >= kFullBytes; }
  void add(std::string_view text);
  /// Writes what can be written at once. Never blocks, but for the storage under a regular file.
  void write_some();

 private:
  int fd_;
  bool socket_ = false;
  bool gone_ = false;
  FileDescriptor own_;  // the same pipe or terminal, opened again as non-blocking
  std::string text_;
  size_t begin_ = 0;
};

}  // namespace penstock::launch
