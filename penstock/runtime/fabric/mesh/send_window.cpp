#include "penstock/runtime/fabric/mesh/send_window.h"

#include <algorithm>
#include <utility>

namespace penstock::runtime {

void SendWindow::add(int urgency, Kind kind, double share, int64_t bytes, Send send) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    Turns& turns = turns_[urgency];
    double& free = turns.free[static_cast<size_t>(kind)];
    const double turn = std::max(turns.now, free);
    free = turn + static_cast<double>(bytes) / share;
    ++turns.waiting;
    waiting_.emplace(Order(-urgency, turn, next_++), Waiting{bytes, std::move(send)});
  }
  send_next();
}

void SendWindow::send_next() {
  while (true) {
    Waiting next;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty() || bytes_on_their_way_ >= most_bytes_) return;
      const Order& order = waiting_.begin()->first;
      const auto turns = turns_.find(-std::get<0>(order));
      turns->second.now = std::get<1>(order);
      if (--turns->second.waiting == 0) turns_.erase(turns);
      next = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      bytes_on_their_way_ += next.bytes;
    }
    const std::shared_ptr<net::Transfer> transfer = next.send();
    if (transfer->is_done()) {  // a short one has gone at once
      MutexLock lock(mutex_);
      bytes_on_their_way_ -= next.bytes;
      continue;
    }
    transfer->on_end([self = shared_from_this(), bytes = next.bytes](net::Transfer::Result) {
      {
        MutexLock lock(self->mutex_);
        self->bytes_on_their_way_ -= bytes;
      }
      self->send_next();
    });
  }
}

void SendWindow::close() {
  std::map<Order, Waiting> thrown_away;
  MutexLock lock(mutex_);
  closed_ = true;
  turns_.clear();
  waiting_.swap(thrown_away);
}

}  // namespace penstock::runtime
