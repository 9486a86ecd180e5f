#include "penstock/net/same_host.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <bit>
#include <random>

#include "penstock/net/host_id.h"

namespace penstock::net {

namespace {

uint64_t random_number() {
  std::random_device source;
  return (uint64_t{source()} << 32) | source();
}

uint64_t next_value() {
  static std::atomic<uint64_t> next = random_number();
  uint64_t value = 0;
  while (value == 0) value = next++;
  return value;
}

void allow_tracer(int32_t pid) { prctl(PR_SET_PTRACER, static_cast<unsigned long>(pid), 0, 0, 0); }

}  // namespace

Seal::Seal() : value_(std::make_unique<std::atomic<uint64_t>>(next_value())) {}

ProcessCard own_card(const Seal& nonce) {
  ProcessCard card{
      .pid = getpid(), .parent = getppid(), .address = nonce.address(), .nonce = nonce.value()};
  const std::string host = host_id();
  const std::string pids = target_of("/proc/self/ns/pid");
  if (!host.empty() && !pids.empty()) card.host = host + " " + pids;
  return card;
}

bool is_same_host(const ProcessCard& a, const ProcessCard& b) {
  return !a.host.empty() && a.host == b.host && a.pid > 0 && b.pid > 0;
}

void ReadPermission::give(const ProcessCard& own, const ProcessCard& peer) {
  // A process may always read itself: ranks that are threads.
  if (peer.pid == own.pid || peer.pid == given_to_) return;
  // Not init, of which everything is a descendant.
  are_siblings_ = are_siblings_ && peer.parent == own.parent && own.parent > 1;
  if (given_to_ == 0)
    given_to_ = peer.pid;
  else if (are_siblings_)
    given_to_ = own.parent;
  else
    return;
  allow_tracer(given_to_);
}

ReadPermission::~ReadPermission() {
  if (given_to_ != 0) allow_tracer(0);
}

iovec remote_part(uint64_t address, size_t bytes) {
  static_assert(sizeof(void*) == sizeof address);
  return {std::bit_cast<void*>(address), bytes};
}

size_t RemoteMemory::read(std::span<const iovec> into, std::span<const iovec> from) const {
  const ssize_t count =
      process_vm_readv(pid_, into.data(), into.size(), from.data(), from.size(), 0);
  return count > 0 ? static_cast<size_t>(count) : 0;
}

size_t RemoteMemory::write(std::span<const iovec> from, std::span<const iovec> into) const {
  const ssize_t count =
      process_vm_writev(pid_, from.data(), from.size(), into.data(), into.size(), 0);
  return count > 0 ? static_cast<size_t>(count) : 0;
}

bool RemoteMemory::holds(uint64_t address, uint64_t number) const {
  uint64_t found = 0;
  const iovec into{&found, sizeof found};
  const iovec from = remote_part(address, sizeof found);
  return read({&into, 1}, {&from, 1}) == sizeof found && found == number;
}

}  // namespace penstock::net
