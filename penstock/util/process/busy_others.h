// How much of this machine's cores other processes use while something is measured.
//
//   const BusyOthers others;
//   measure();
//   if (others.cores() > 0.2) ...  // what was measured is not what the machine can do
#pragma once

#include <chrono>

namespace penstock {

/// Linux; elsewhere 0 cores.
class BusyOthers {
 public:
  struct Times {
    double all = 0;  ///< seconds in which cores were not idle, summed over them
    double own = 0;  ///< of this process
    std::chrono::steady_clock::time_point at = {};
  };

  BusyOthers() : begin_(now()) {}
  /// Since it was made, a mean; at least 0.
  double cores() const { return between(begin_, now()); }

  static Times now();
  static double between(const Times& begin, const Times& end);

 private:
  Times begin_;
};

}  // namespace penstock
