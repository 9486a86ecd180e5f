// Shows on a terminal that work of unknown length goes on; says nothing elsewhere, nor about work
// that is done within a second.
//
//   Spinner spinner("planning vgg16 for 16 workers");   // erased when it goes out of scope
#pragma once

#include <string>
#include <thread>

#include "penstock/util/process/mutex.h"

namespace penstock::tool {

/// Draws from a thread of its own, which ends with the object.
class Spinner {
 public:
  explicit Spinner(std::string label);
  ~Spinner();
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;

  /// What stands behind the label from now on.
  void detail(std::string text);

 private:
  void draw();

  const std::string label_;
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ GUARDED_BY(mutex_) = false;
  std::string detail_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace penstock::tool
