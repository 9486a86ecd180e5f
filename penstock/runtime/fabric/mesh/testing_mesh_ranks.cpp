#include "penstock/runtime/fabric/mesh/testing_mesh_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace penstock::runtime::testing {

uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  close(fd);
  return ntohs(address.sin_port);
}

std::vector<std::unique_ptr<World>> make_mesh_ranks(const std::vector<int>& rank_of_worker,
                                                    net::MeshOptions options) {
  options.ranks = 1 + *std::max_element(rank_of_worker.begin(), rank_of_worker.end());
  options.port = free_port();
  std::vector<std::unique_ptr<World>> worlds(static_cast<size_t>(options.ranks));
  std::vector<std::jthread> ranks;
  for (int r = 0; r < options.ranks; ++r) {
    ranks.emplace_back([&worlds, &rank_of_worker, options, r]() mutable {
      options.rank = r;
      worlds[static_cast<size_t>(r)] =
          make_mesh_world(make_mesh_hub(net::Mesh::connect(options)), rank_of_worker);
    });
  }
  ranks.clear();
  return worlds;
}

}  // namespace penstock::runtime::testing
