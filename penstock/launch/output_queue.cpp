#include "penstock/launch/output_queue.h"

#include <fcntl.h>
#include <limits.h>  // NOLINT(modernize-deprecated-headers): PIPE_BUF is POSIX
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace penstock::launch {

OutputQueue::OutputQueue(int fd) : fd_(fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return;
  socket_ = S_ISSOCK(status.st_mode);
  // Marking `fd` itself as non-blocking would mark it for every process that shares it.
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  own_.reset(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

void OutputQueue::add(std::string_view text) {
  if (!gone_) text_ += text;
}

void OutputQueue::write_some() {
  while (pending()) {
    // Where the descriptor could not be opened again, at most what a writable pipe surely takes.
    const size_t size = std::min<size_t>(text_.size() - begin_, PIPE_BUF);
    const char* data = text_.data() + begin_;
    const ssize_t written =
        socket_ ? send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL) : write(fd(), data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (written < 0) {
      gone_ = true;
      break;
    }
    begin_ += static_cast<size_t>(written);
    if (!own_.is_open() && !socket_) break;  // it may block now
  }
  if (pending() && !gone_) return;
  text_.clear();
  begin_ = 0;
}

}  // namespace penstock::launch
