// How long pieces of work take on a stream: on the host at once, on a GPU by events that are read
// later, so that measuring does not wait after every piece.
//
//   Laps laps(*stream);
//   const Laps::Start start = laps.start();
//   ...
//   laps.add(start, {&times.forward_ns});
//   laps.read();   // now it is there
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "penstock/model/device/device_stream.h"

namespace penstock::model::detail {

/// Not thread-safe.
class Laps {
 public:
  struct Start {
    std::chrono::steady_clock::time_point time;
    EventPtr event;
  };

  explicit Laps(DeviceStream& stream) : stream_(stream) {}

  Start start();
  /// Adds the time since then to each number; on a GPU at read(), until when they must stay there.
  void add(const Start& start, std::initializer_list<int64_t*> numbers);
  /// Blocks until the work is done.
  void read();
  /// As read(), of laps in the work of a graph, behind each launch: the laps stay. `event_ns`: what
  /// an event takes in a graph, and each lap is too long by.
  void read_launch(int64_t event_ns);

 private:
  struct Lap {
    EventPtr begin;
    EventPtr end;
    std::vector<int64_t*> numbers;
  };

  DeviceStream& stream_;
  std::vector<Lap> laps_;
};

}  // namespace penstock::model::detail
