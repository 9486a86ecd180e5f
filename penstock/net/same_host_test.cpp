#include "penstock/net/same_host.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <vector>

#include "penstock/net/wire.h"

#include "penstock/util/error.h"

namespace penstock::net {
namespace {

/// A child that has the same memory at the same addresses, and waits until it is killed.
class Twin {
 public:
  Twin() : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) pause();
  }
  ~Twin() { end(); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

iovec part_of(std::vector<int>& values, size_t first, size_t count) {
  return {values.data() + first, count * sizeof(int)};
}

TEST(Seal, IsAnotherNumberEachTimeAndNoneWhenBroken) {
  Seal a;
  const Seal b;
  EXPECT_NE(a.value(), 0u);
  EXPECT_NE(a.value(), b.value());
  const RemoteMemory own(getpid());
  const uint64_t value = a.value();
  EXPECT_TRUE(own.holds(a.address(), value));
  a.break_now();
  EXPECT_FALSE(own.holds(a.address(), value));
}

TEST(ProcessCard, ItsTextReadsBackAndAShorterOneIsRefused) {
  const ProcessCard card{.host = "h", .pid = 7, .parent = 5, .address = 11, .nonce = 13};
  const std::string text = to_wire(card);
  const ProcessCard back = from_wire<ProcessCard>(text);
  EXPECT_EQ(back.host, "h");
  EXPECT_EQ(back.pid, 7);
  EXPECT_EQ(back.parent, 5);
  EXPECT_EQ(back.address, 11u);
  EXPECT_EQ(back.nonce, 13u);
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_THROW(from_wire<ProcessCard>(text.substr(0, length)), TransportError) << length;
}

TEST(ProcessCard, NamesTheHostAndTheProcess) {
  const Seal nonce;
  const ProcessCard own = own_card(nonce);
  EXPECT_EQ(own.pid, getpid());
  EXPECT_EQ(own.parent, getppid());
  EXPECT_EQ(own.nonce, nonce.value());
  ProcessCard other = own;
  EXPECT_TRUE(is_same_host(own, other));
  other.host += "x";
  EXPECT_FALSE(is_same_host(own, other));
  // Nobody knows where these are.
  EXPECT_FALSE(is_same_host({.pid = 1}, {.pid = 1}));
}

TEST(RemoteMemory, IsReadInOrderAcrossParts) {
  std::vector<int> values(1000);
  std::iota(values.begin(), values.end(), 0);
  const Twin twin;
  ASSERT_GT(twin.pid(), 0);
  const std::vector<int> expected = values;
  std::fill(values.begin(), values.end(), -1);
  const RemoteMemory memory(twin.pid());
  std::vector<int> found(1000);
  const std::array into{part_of(found, 500, 500), part_of(found, 0, 500)};
  const std::array from{part_of(values, 500, 200), part_of(values, 700, 300),
                        part_of(values, 0, 500)};
  EXPECT_EQ(memory.read(into, from), 1000 * sizeof(int));
  EXPECT_EQ(found, expected);
}

TEST(RemoteMemory, OfNobodyOrNowhereIsNotRead) {
  Twin twin;
  const RemoteMemory memory(twin.pid());
  const Seal seal;
  EXPECT_FALSE(memory.holds(8, 0));
  EXPECT_FALSE(memory.holds(UINT64_MAX - 3, 0));
  // Made after the fork: the twin does not have it.
  EXPECT_FALSE(memory.holds(seal.address(), seal.value()));
  twin.end();
  std::vector<int> values(10);
  const iovec part = part_of(values, 0, 10);
  EXPECT_EQ(memory.read({&part, 1}, {&part, 1}), 0u);
}

TEST(RemoteMemory, EndsWhereTheOtherOneEnds) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const pages =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(munmap(static_cast<char*>(pages) + page, page), 0);
  const Twin twin;
  const RemoteMemory memory(twin.pid());
  std::vector<int> found(2 * page / sizeof(int));
  const iovec into = part_of(found, 0, found.size());
  const iovec from{pages, 2 * page};
  EXPECT_EQ(memory.read({&into, 1}, {&from, 1}), page);
  munmap(pages, page);
}

}  // namespace
}  // namespace penstock::net
