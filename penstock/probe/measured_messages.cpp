#include "penstock/probe/measured_messages.h"

#include <fmt/format.h>

#include <chrono>

#include "penstock/util/error.h"

namespace penstock::probe {

std::shared_ptr<net::Transfer> MeasuredMessages::send(Number number,
                                                      const std::shared_ptr<Block>& block,
                                                      size_t bytes) {
  return mesh_.send(*peers_.to, tag(number), {{block->data(), bytes}}, block);
}

MeasuredMessages::Incoming MeasuredMessages::receive(Number number,
                                                     const std::shared_ptr<Block>& block) {
  Incoming incoming{.transfer = nullptr, .size = std::make_shared<uint64_t>(0)};
  incoming.transfer = mesh_.receive(
      *peers_.from, tag(number), [block, size = incoming.size](const std::vector<uint64_t>& sizes) {
        if (sizes.size() != 1 || sizes.front() > block->size())
          throw TransportError("sent a message of another size while links are measured");
        *size = sizes.front();
        return std::vector<net::Memory>{{block->data(), sizes.front()}};
      });
  return incoming;
}

std::string MeasuredMessages::partners() const {
  if (sends() && receives() && *peers_.to != *peers_.from)
    return fmt::format("ranks {} and {}", *peers_.from, *peers_.to);
  return fmt::format("rank {}", sends() ? *peers_.to : *peers_.from);
}

void MeasuredMessages::wait(net::Transfer& transfer, const std::function<void()>& meanwhile) const {
  const std::chrono::milliseconds look_every(meanwhile ? 1 : 100);
  const auto deadline = Clock::now() + std::chrono::minutes(1);
  net::Transfer::Result result = net::Transfer::Result::TimedOut;
  while (result == net::Transfer::Result::TimedOut && Clock::now() < deadline) {
    if (peers_.stop != nullptr && *peers_.stop)
      throw RuntimeError("interrupted while the links between ranks were measured");
    if (meanwhile) meanwhile();
    result = transfer.wait(Clock::now() + look_every);
  }
  switch (result) {
    case net::Transfer::Result::Done:
      return;
    case net::Transfer::Result::TimedOut:
      throw TimeoutError(fmt::format(
          "measuring the links between ranks: no message has passed {} for a minute", partners()));
    case net::Transfer::Result::Closed:
      throw TransportError(fmt::format(
          "measuring the links between ranks: the connection of {} is lost", partners()));
  }
}

}  // namespace penstock::probe
