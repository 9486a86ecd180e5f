#include "penstock/runtime/fabric/mesh/send_window.h"

namespace penstock::runtime {

void SendWindow::add(int urgency, int64_t bytes, Send send) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    waiting_.emplace(std::pair(-urgency, next_++), Waiting{bytes, std::move(send)});
  }
  send_next();
}

void SendWindow::send_next() {
  while (true) {
    Waiting next;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty() || bytes_on_their_way_ >= most_bytes_) return;
      next = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      bytes_on_their_way_ += next.bytes;
    }
    next.send()->on_end([self = shared_from_this(), bytes = next.bytes](net::Transfer::Result) {
      {
        MutexLock lock(self->mutex_);
        self->bytes_on_their_way_ -= bytes;
      }
      self->send_next();
    });
  }
}

void SendWindow::close() {
  std::map<std::pair<int, uint64_t>, Waiting> thrown_away;
  MutexLock lock(mutex_);
  closed_ = true;
  waiting_.swap(thrown_away);
}

}  // namespace penstock::runtime
