#include "penstock/net/transfer.h"

namespace penstock::net {

Transfer::Result Transfer::wait(CondVar::Deadline deadline) {
  if (engine_ != nullptr) watch_until(*engine_, deadline, [this] { return has_ended(); });
  MutexLock lock(mutex_);
  changed_.wait_until(mutex_, deadline,
                      [this]() NO_THREAD_SAFETY_ANALYSIS { return result_ != Result::TimedOut; });
  return result_;
}

bool Transfer::is_done() const {
  MutexLock lock(mutex_);
  return result_ == Result::Done;
}

void Transfer::on_end(std::function<void(Result)> then) {
  Result result = Result::TimedOut;
  {
    MutexLock lock(mutex_);
    result = result_;
    if (result == Result::TimedOut) {
      then_ = std::move(then);
      return;
    }
  }
  then(result);
}

void Transfer::end(Result result) {
  std::function<void(Result)> then;
  {
    MutexLock lock(mutex_);
    if (result_ != Result::TimedOut) return;
    result_ = result;
    then = std::move(then_);
    then_ = nullptr;
    changed_.notify_all();
  }
  if (then) then(result);
}

}  // namespace penstock::net
