// From when on the messages of this process's workers may be read: events beside the fabric, which
// moves tensors and knows nothing of devices. Internal to runtime.
#pragma once

#include <map>
#include <utility>

#include "penstock/model/device/device_stream.h"
#include "penstock/runtime/fabric/message.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class ReadyBoard {
 public:
  struct Note {
    model::EventPtr ready;
    at::Device from = at::kCPU;
  };

  /// Before the message is sent.
  void put(const Message& message, Note note) {
    MutexLock lock(mutex_);
    notes_.insert_or_assign(message, std::move(note));
  }
  /// Of a message that has been received; of one from another rank, nothing: it is in the host's
  /// memory, complete.
  Note take(const Message& message) {
    MutexLock lock(mutex_);
    auto node = notes_.extract(message);
    return node.empty() ? Note{} : std::move(node.mapped());
  }
  /// What a failed run has left.
  void clear() {
    MutexLock lock(mutex_);
    notes_.clear();
  }

 private:
  Mutex mutex_;
  std::map<Message, Note> notes_ GUARDED_BY(mutex_);
};

}  // namespace penstock::runtime
