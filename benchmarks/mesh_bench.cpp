// Times messages between two processes of this host: mesh_bench {tcp|memory} BYTES...
//
// Prints a line per size: the size, the time of a message that goes and comes back, halved, and the
// time per message of a stream of eight at a time in one direction, both medians in microseconds.
// benchmarks/peers/mpi_messages.c prints the same; benchmarks/mesh_bench.py compares them.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/launch/free_port.h"
#include "penstock/net/mesh.h"

namespace {

using namespace penstock::net;
using Clock = std::chrono::steady_clock;

constexpr int kWindow = 8;
constexpr size_t kBytesPerMeasurement = 256 << 20;

class Side {
 public:
  Side(int rank, uint16_t port, bool memory) : peer_(1 - rank) {
    mesh_ = Mesh::connect(
        {.rank = rank, .ranks = 2, .port = port, .same_host_memory = memory, .same_host_bytes = 1});
    mesh_->start({.note = [](int, const std::string&) {}, .lost = [](int, const std::string&) {}});
  }

  void use(size_t bytes) {
    out_.assign(bytes, std::byte{1});
    in_.assign(kWindow, std::vector<std::byte>(bytes));
  }
  std::shared_ptr<Transfer> post(int place) {
    return mesh_->receive(peer_, {.run = 1, .sequence = received_++},
                          [this, place](const std::vector<uint64_t>&) {
                            return std::vector<Memory>{in_[static_cast<size_t>(place)]};
                          });
  }
  std::shared_ptr<Transfer> send() {
    return mesh_->send(peer_, {.run = 1, .sequence = sent_++}, {Bytes(out_)}, nullptr);
  }
  /// One message to the peer and one back, or the other way round.
  void ping_pong(bool first) {
    const auto in = post(0);
    if (!first) finish(in);
    const auto out = send();
    if (first) finish(in);
    finish(out);
  }
  void stream(bool sends) {
    std::vector<std::shared_ptr<Transfer>> transfers;
    for (int i = 0; i < kWindow; ++i) transfers.push_back(sends ? send() : post(i));
    for (const auto& transfer : transfers) finish(transfer);
  }
  bool by_memory() const { return mesh_->traffic().sent_by_memory > 0; }

 private:
  static void finish(const std::shared_ptr<Transfer>& transfer) {
    if (transfer->wait(Clock::now() + std::chrono::seconds(60)) != Transfer::Result::Done)
      throw std::runtime_error("a message was lost");
  }

  int peer_;
  std::unique_ptr<Mesh> mesh_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  std::vector<std::byte> out_;
  std::vector<std::vector<std::byte>> in_;
};

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void measure(Side& side, int rank, size_t bytes) {
  side.use(bytes);
  const int rounds =
      static_cast<int>(std::clamp<size_t>(kBytesPerMeasurement / (bytes + 1), 10, 2000));
  std::vector<double> ping_pong;
  std::vector<double> stream;
  for (int i = 0; i < rounds; ++i) {
    const auto start = Clock::now();
    side.ping_pong(rank == 0);
    if (i >= rounds / 10) ping_pong.push_back(us_since(start) / 2);
  }
  for (int i = 0; i < std::max(rounds / kWindow, 5); ++i) {
    const auto start = Clock::now();
    side.stream(rank == 0);
    if (i > 0) stream.push_back(us_since(start) / kWindow);
  }
  if (rank == 0) std::printf("%zu %.2f %.2f\n", bytes, median(ping_pong), median(stream));
}

void run(int rank, uint16_t port, bool memory, const std::vector<size_t>& sizes) {
  Side side(rank, port, memory);
  for (const size_t bytes : sizes) measure(side, rank, bytes);
  if (memory && !side.by_memory() && rank == 0)
    throw std::runtime_error("the kernel does not let these processes read each other");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view path = argc > 2 ? argv[1] : "";
  if (path != "tcp" && path != "memory") {
    std::fprintf(stderr, "usage: mesh_bench {tcp|memory} BYTES...\n");
    return 2;
  }
  std::vector<size_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  const auto port = static_cast<uint16_t>(penstock::launch::free_port("127.0.0.1"));
  const pid_t child = fork();
  try {
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(child == 0 ? 1 : 0, port, path == "memory", sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mesh_bench: %s\n", error.what());
    return 3;
  }
  if (child > 0) waitpid(child, nullptr, 0);
  return 0;
}
