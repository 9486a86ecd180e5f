#include "penstock/job/listener.h"

#include <iostream>
#include <memory>

#include "penstock/report/console/progress_bar.h"

namespace penstock::job {

Listener console_listener() {
  return {.say = [](const std::string& text) { std::cerr << text; },  // tidy: allow(printing) asked
          .progress =
              [](const std::string& what) {
                const auto bar = std::make_shared<report::ProgressBar>(what);
                return [bar](int done, int total) { bar->update(done, total); };
              }};
}

}  // namespace penstock::job
