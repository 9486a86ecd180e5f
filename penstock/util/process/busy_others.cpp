#include "penstock/util/process/busy_others.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace penstock {

BusyOthers::Times BusyOthers::now() {
  Times times{.at = std::chrono::steady_clock::now()};
  // Linux, proc(5): user, nice, system, idle, iowait, irq, softirq, in ticks.
  std::ifstream stat("/proc/stat");
  std::string name;
  stat >> name;
  for (int k = 0; k < 7 && stat; ++k) {
    double ticks = 0;
    stat >> ticks;
    if (k != 3 && k != 4) times.all += ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  times.own = seconds(own.ru_utime) + seconds(own.ru_stime);
  return times;
}

double BusyOthers::between(const Times& begin, const Times& end) {
  const double seconds = std::chrono::duration<double>(end.at - begin.at).count();
  const double others = (end.all - begin.all) - (end.own - begin.own);
  return seconds > 0 ? std::max(others / seconds, 0.0) : 0;
}

}  // namespace penstock
