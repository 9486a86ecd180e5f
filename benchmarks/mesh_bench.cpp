// Times messages between two processes of this host: mesh_bench {tcp|tls|memory} BYTES...
//
// Prints a line per size (mesh_messages.h). benchmarks/peers/mpi_messages.c prints the same;
// benchmarks/mesh_bench.py compares them.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "benchmarks/mesh_messages.h"
#include "penstock/launch/free_port.h"

namespace {

using namespace penstock;

void run(int rank, uint16_t port, std::string_view path, const std::vector<size_t>& sizes) {
  const bool memory = path == "memory";
  const net::TlsKind tls = path == "tls" ? net::TlsKind::Secret : net::TlsKind::Off;
  const auto mesh = net::Mesh::connect({.rank = rank,
                                        .ranks = 2,
                                        .port = port,
                                        .token = "a secret of this benchmark",
                                        .tls = {.kind = tls},
                                        .same_host_memory = memory});
  mesh->start({.note = [](int, const std::string&) {}, .lost = [](int, const std::string&) {}});
  bench::Side side(*mesh);
  for (const size_t bytes : sizes) bench::measure(side, rank, bytes);
  if (memory && mesh->traffic().sent_by_memory == 0 && rank == 0)
    throw std::runtime_error("the kernel does not let these processes read each other");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view path = argc > 2 ? argv[1] : "";
  if (path != "tcp" && path != "tls" && path != "memory") {
    std::fprintf(stderr, "usage: mesh_bench {tcp|tls|memory} BYTES...\n");
    return 2;
  }
  std::vector<size_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  const auto port = static_cast<uint16_t>(launch::free_port());
  const pid_t child = fork();
  try {
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(child == 0 ? 1 : 0, port, path, sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mesh_bench: %s\n", error.what());
    return 3;
  }
  if (child > 0) waitpid(child, nullptr, 0);
  return 0;
}
