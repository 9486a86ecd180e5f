// One start of a job, as far as it concerns this machine.
#pragma once

#include <string>
#include <vector>

namespace penstock::launch {

struct JobStart {
  int restart = 0;               ///< how often the job was started before
  int ranks = 1;                 ///< of the whole job
  int servers = 0;               ///< of them, the last ones
  std::vector<int> local = {0};  ///< the numbers of this machine's ranks
  std::string address = {};      ///< where rank 0 listens
  int port = 0;
  std::string token = {};  ///< a secret
};

}  // namespace penstock::launch
