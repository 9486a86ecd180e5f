// Messages between two ranks of a mesh, timed. Shared by mesh_bench and carrier_bench.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include "penstock/net/mesh.h"

namespace penstock::bench {

using Clock = std::chrono::steady_clock;

inline constexpr int kWindow = 8;
inline constexpr size_t kBytesPerMeasurement = 256 << 20;

/// One of the two ranks; the mesh is started.
class Side {
 public:
  explicit Side(net::Mesh& mesh) : mesh_(mesh), peer_(1 - mesh.rank()) {}

  void use(size_t bytes) {
    out_.assign(bytes, std::byte{1});
    in_.assign(kWindow, std::vector<std::byte>(bytes));
  }
  std::shared_ptr<net::Transfer> post(int place) {
    return mesh_.receive(peer_, {.run = 1, .sequence = received_++},
                         [this, place](const std::vector<uint64_t>&) {
                           return std::vector<net::Memory>{in_[static_cast<size_t>(place)]};
                         });
  }
  std::shared_ptr<net::Transfer> send() {
    return mesh_.send(peer_, {.run = 1, .sequence = sent_++}, {net::Bytes(out_)}, nullptr);
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
    std::vector<std::shared_ptr<net::Transfer>> transfers;
    for (int i = 0; i < kWindow; ++i) transfers.push_back(sends ? send() : post(i));
    for (const auto& transfer : transfers) finish(transfer);
  }

 private:
  static void finish(const std::shared_ptr<net::Transfer>& transfer) {
    if (transfer->wait(Clock::now() + std::chrono::seconds(60)) != net::Transfer::Result::Done)
      throw std::runtime_error("a message was lost");
  }

  net::Mesh& mesh_;
  int peer_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  std::vector<std::byte> out_;
  std::vector<std::vector<std::byte>> in_;
};

inline double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Rank 0 prints a line: the size, the time of a message that goes and comes back, halved, and the
/// time per message of a stream of eight at a time, both medians in microseconds.
inline void measure(Side& side, int rank, size_t bytes) {
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

}  // namespace penstock::bench
