#include "penstock/net/transfer.h"

namespace penstock::net {

Transfer::Result Transfer::wait(CondVar::Deadline deadline) {
  MutexLock lock(mutex_);
  changed_.wait_until(mutex_, deadline,
                      [this]() NO_THREAD_SAFETY_ANALYSIS { return result_ != Result::TimedOut; });
  return result_;
}

bool Transfer::is_done() const {
  MutexLock lock(mutex_);
  return result_ == Result::Done;
}

void Transfer::end(Result result) {
  MutexLock lock(mutex_);
  if (result_ == Result::TimedOut) result_ = result;
  changed_.notify_all();
}

}  // namespace penstock::net
