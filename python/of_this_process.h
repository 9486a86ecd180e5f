// An object with threads, as part of an object of Python: multiprocessing forks processes, and a
// fork has the objects but not their threads.
//
//   OfThisProcess<train::Session> session = std::make_unique<train::Session>(...);
//   session->step(...);   // in a fork: throws
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "penstock/util/error.h"

namespace penstock::python {

/// A std::unique_ptr that in another process than the one of its object neither uses nor destroys
/// it: what is waited for at its end is not there.
template <class T>
class OfThisProcess {
 public:
  OfThisProcess() = default;
  template <class Made>
  OfThisProcess(std::unique_ptr<Made> object) : object_(std::move(object)) {}
  OfThisProcess(OfThisProcess&&) = default;
  OfThisProcess& operator=(OfThisProcess&&) = default;
  ~OfThisProcess() {
    if (::getpid() != process_) static_cast<void>(object_.release());
  }

  /// Throws RuntimeError in another process.
  T* get() const {
    if (::getpid() == process_) return object_.get();
    throw RuntimeError(
        fmt::format("this belongs to process {}, of which process {} is a fork without its "
                    "threads: make a Trainer in the process that trains with it, or let "
                    "multiprocessing start processes by 'spawn'",
                    process_, ::getpid()));
  }
  T* operator->() const { return get(); }
  T& operator*() const { return *get(); }

 private:
  std::unique_ptr<T> object_;
  pid_t process_ = ::getpid();
};

}  // namespace penstock::python
