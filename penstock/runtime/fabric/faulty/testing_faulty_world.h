// A world whose fabrics misbehave on purpose, by seed: messages are late, overtake each other or
// get lost, workers die or stop answering. Wraps any other world, for tests of what must hold then:
// the same results where nothing is lost, otherwise an error in time and no hang.
//
//   auto world = make_faulty_world(make_local_world(4), {.seed = 7, .delay_share = 0.2});
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "penstock/runtime/fabric/world.h"

namespace penstock::runtime {

struct Faults {
  uint64_t seed = 1;
  /// Share of the calls of a worker that are delayed, each by up to `max_delay`.
  double delay_share = 0;
  std::chrono::microseconds max_delay{500};
  /// Share of the messages that the same worker's next message overtakes; only where the schedule
  /// lets the worker send it without waiting for anything in between.
  double reorder_share = 0;
  /// Share of the messages that never arrive.
  double drop_share = 0;

  struct Kill {
    WorkerId worker;
    int64_t call = 0;  ///< the worker's n-th call of a fabric, from 0; begin() does not count
    /// False: the call throws RuntimeError, as a worker that fails. True: the worker stops
    /// answering until the fabric is closed.
    bool silent = false;
  };
  std::optional<Kill> kill = {};
};

/// Delays and reordering change nothing that a correct user can see. Fabrics are opened with one
/// credit more, because an overtaken message needs it.
std::unique_ptr<World> make_faulty_world(std::unique_ptr<World> inner, const Faults& faults);

}  // namespace penstock::runtime
