// The same work on several threads at once, so that what they share (memory bandwidth, caches,
// clock rate) is charged as in a real run.
#pragma once

#include <functional>

#include "penstock/probe/measurement.h"

namespace penstock::probe {

/// `make` is called on each thread and sets its work up; what it returns does the work once and
/// says how fast it was. All threads work for `budget`, from the moment when the last is ready. The
/// result covers the samples of all threads: the speed of one of them. Throws RuntimeError when the
/// threads cannot be started, and what the first of them throws.
Measurement measure_concurrently(int threads, Seconds budget,
                                 const std::function<std::function<double()>()>& make);

}  // namespace penstock::probe
