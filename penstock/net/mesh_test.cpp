// Meshes of several ranks in one process, over the loopback.
#include "penstock/net/mesh.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <numeric>
#include <thread>

#include "penstock/net/testing_nodes.h"
#include "penstock/util/error.h"
#include "penstock/util/process/mutex.h"

namespace penstock::net {
namespace {

using namespace testing_nodes;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// With messages over the connections, and copied from memory to memory.
class MeshPaths : public ::testing::TestWithParam<bool> {
 protected:
  /// Two ranks that have started.
  static std::vector<Node> two(size_t piece_bytes) {
    std::vector<Node> nodes = connected(
        2, {.piece_bytes = piece_bytes, .same_host_memory = GetParam(), .same_host_bytes = 1});
    start_quietly(nodes);
    EXPECT_EQ(!GetParam() || read_each_other(nodes), true);
    return nodes;
  }
};

INSTANTIATE_TEST_SUITE_P(Mesh, MeshPaths, ::testing::Bool(),
                         [](const auto& path) { return path.param ? "ByMemory" : "ByConnection"; });

TEST(Mesh, AJobOfOneRankNeedsNoPort) {
  const auto mesh = Mesh::connect({});
  mesh->start({});
  EXPECT_EQ(mesh->ranks(), 1);
}

TEST(Mesh, GivesUpWhenAnotherRankHasFailedBefore) {
  for (const int rank : {0, 1}) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(pipe2(pipe.data(), O_CLOEXEC), 0);
    MeshOptions options{.rank = rank, .ranks = 3, .port = free_port()};
    options.failure_pipe = pipe[0];
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(100));
      close(pipe[1]);
    });
    const auto begin = std::chrono::steady_clock::now();
    try {
      Mesh::connect(options);
      ADD_FAILURE() << "connected";
    } catch (const TransportError& error) {
      EXPECT_STREQ(error.what(), "another rank of the job has ended before all were connected");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    other.join();
    close(pipe[0]);
  }
}

TEST(Mesh, NotesArriveInTheirOrder) {
  constexpr int kRanks = 5;
  constexpr int kNotes = 200;
  const std::vector<Node> nodes = connected(kRanks);
  Mutex mutex;
  CondVar changed;
  std::map<std::pair<int, int>, std::vector<std::string>> notes;
  int count = 0;
  for (int r = 0; r < kRanks; ++r) {
    nodes[static_cast<size_t>(r)].mesh->start({.note =
                                                   [&, r](int peer, std::string note) {
                                                     MutexLock lock(mutex);
                                                     notes[{peer, r}].push_back(std::move(note));
                                                     ++count;
                                                     changed.notify_all();
                                                   },
                                               .lost = [](int, const std::string&) {}});
  }
  const auto text = [](int from, int to, int i) {
    return std::string(static_cast<size_t>(i) * 997 % 100'000, static_cast<char>('a' + from)) +
           std::to_string(to) + "-" + std::to_string(i);
  };
  for (int i = 0; i < kNotes; ++i) {
    for (int from = 0; from < kRanks; ++from) {
      for (int to = 0; to < kRanks; ++to) {
        if (from != to) nodes[static_cast<size_t>(from)].mesh->tell(to, text(from, to, i));
      }
    }
  }
  MutexLock lock(mutex);
  ASSERT_TRUE(
      changed.wait_until(mutex, soon(), [&] { return count == kNotes * kRanks * (kRanks - 1); }));
  for (const auto& [pair, received] : notes) {
    for (int i = 0; i < kNotes; ++i)
      EXPECT_EQ(received[static_cast<size_t>(i)], text(pair.first, pair.second, i));
  }
}

TEST_P(MeshPaths, MessagesLandInTheirPlacesInAnyOrder) {
  const std::vector<Node> nodes = two(1000);
  const Traffic before = nodes[0].mesh->traffic();
  const Traffic before_1 = nodes[1].mesh->traffic();
  constexpr uint64_t kMessages = 60;
  const auto parts_of = [](uint64_t m) {
    return std::vector<size_t>{1 + m * 211 % 5000, 0, 1 + m * 97 % 300};
  };
  std::vector<std::shared_ptr<Parts>> received;
  std::vector<std::shared_ptr<Transfer>> transfers;
  const auto post = [&](uint64_t m) {
    received.push_back(std::make_shared<Parts>());
    transfers.push_back(
        nodes[1].mesh->receive(0, {.run = 1, .channel = 7, .sequence = m}, into(received.back())));
  };
  for (uint64_t m = 0; m < kMessages / 2; ++m) post(m);
  std::vector<std::shared_ptr<Transfer>> sends;
  std::vector<std::weak_ptr<Block>> kept;
  int64_t bytes = 0;
  for (uint64_t i = 0; i < kMessages; ++i) {
    const uint64_t m = (i * 23) % kMessages;
    auto keep = std::make_shared<std::vector<std::shared_ptr<Block>>>();
    std::vector<Bytes> parts;
    for (const size_t size : parts_of(m)) {
      keep->push_back(block_of(size, m));
      parts.emplace_back(*keep->back());
      bytes += static_cast<int64_t>(size);
    }
    parts.emplace_back();  // left out
    // A part of 0 bytes is there all the same.
    static const std::byte kNothing{};
    parts[1] = Bytes(&kNothing, 0);
    kept.push_back(keep->front());
    sends.push_back(nodes[0].mesh->send(1, {.run = 1, .channel = 7, .sequence = m}, parts, keep,
                                        static_cast<int>(m % 3)));
  }
  for (uint64_t m = kMessages / 2; m < kMessages; ++m) post(m);
  for (const auto& transfer : transfers) ASSERT_EQ(transfer->wait(soon()), Transfer::Result::Done);
  for (const auto& transfer : sends) ASSERT_EQ(transfer->wait(soon()), Transfer::Result::Done);
  for (uint64_t m = 0; m < kMessages; ++m) {
    const std::vector<size_t> sizes = parts_of(m);
    EXPECT_EQ(received[m]->sizes, (std::vector<uint64_t>{sizes[0], 0, sizes[2], kAbsent}));
    EXPECT_EQ(received[m]->blocks[0], *block_of(sizes[0], m));
    EXPECT_EQ(received[m]->blocks[2], *block_of(sizes[2], m));
  }
  const Traffic after = nodes[0].mesh->traffic();
  const Traffic after_1 = nodes[1].mesh->traffic();
  EXPECT_EQ(after.sent - before.sent, bytes);
  EXPECT_EQ(after_1.received - before_1.received, bytes);
  EXPECT_EQ(after.sent_by_memory - before.sent_by_memory, GetParam() ? bytes : 0);
  EXPECT_EQ(after_1.received_by_memory - before_1.received_by_memory, GetParam() ? bytes : 0);
  // What has been sent is held no longer.
  for (int i = 0; i < 1000 && !kept.back().expired(); ++i)
    std::this_thread::sleep_for(milliseconds(1));
  for (const auto& block : kept) EXPECT_TRUE(block.expired());
}

// What a message's end calls runs on the mesh's thread or on one that waits, which is this one
// here.
TEST_P(MeshPaths, TheEndOfAMessageMaySendTheNextOne) {
  constexpr uint64_t kMessages = 500;
  const std::vector<Node> nodes = two(1000);
  const auto block = block_of(700, 1);
  std::vector<std::shared_ptr<Transfer>> came;
  for (uint64_t m = 0; m < kMessages; ++m) {
    came.push_back(
        nodes[1].mesh->receive(0, {.run = 1, .sequence = m}, into(std::make_shared<Parts>())));
  }
  std::function<void(uint64_t)> send = [&](uint64_t m) {
    const auto sent = nodes[0].mesh->send(1, {.run = 1, .sequence = m}, {Bytes(*block)}, block);
    if (m + 1 == kMessages) return;
    came[m]->on_end([&send, m](Transfer::Result) { send(m + 1); });
  };
  send(0);
  EXPECT_EQ(came.back()->wait(soon()), Transfer::Result::Done);
}

TEST_P(MeshPaths, AMessageWaitsUntilItsReceiveIsPosted) {
  const std::vector<Node> nodes = two(512 << 10);
  const int64_t before = nodes[1].mesh->traffic().received;
  const auto block = block_of(4 << 20, 3);
  const auto send = nodes[0].mesh->send(1, {.run = 1}, {Bytes(*block)}, block);
  EXPECT_EQ(send->wait(soon(milliseconds(50))), Transfer::Result::TimedOut);
  EXPECT_EQ(nodes[1].mesh->traffic().received, before);
  const auto parts = std::make_shared<Parts>();
  EXPECT_EQ(nodes[1].mesh->receive(0, {.run = 1}, into(parts))->wait(soon()),
            Transfer::Result::Done);
  EXPECT_EQ(send->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(parts->blocks[0], *block);
}

TEST_P(MeshPaths, AnUrgentMessageOvertakesALargeOne) {
  const std::vector<Node> nodes = two(GetParam() ? 4 << 10 : 64 << 10);
  const auto large = block_of(64 << 20, 1);
  const auto small = block_of(100, 2);
  const auto large_parts = std::make_shared<Parts>();
  const auto small_parts = std::make_shared<Parts>();
  // The small one is asked for once the large one has begun, by the thread that reads that.
  std::atomic<Transfer*> large_transfer = nullptr;
  std::atomic<bool> overtook = false;
  std::promise<std::shared_ptr<Transfer>> small_in;
  const auto post_small = [&] {
    small_in.set_value(nodes[1].mesh->receive(0, {.run = 1, .channel = 2},
                                              [&, place = into(small_parts)](const auto& sizes) {
                                                overtook = !large_transfer.load()->is_done();
                                                return place(sizes);
                                              }));
  };
  const auto large_in = nodes[1].mesh->receive(0, {.run = 1, .channel = 1},
                                               [&, place = into(large_parts)](const auto& sizes) {
                                                 post_small();
                                                 return place(sizes);
                                               });
  large_transfer = large_in.get();
  nodes[0].mesh->send(1, {.run = 1, .channel = 2}, {Bytes(*small)}, small, /*urgency=*/1);
  nodes[0].mesh->send(1, {.run = 1, .channel = 1}, {Bytes(*large)}, large);
  auto posted = small_in.get_future();
  ASSERT_EQ(posted.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(posted.get()->wait(soon()), Transfer::Result::Done);
  EXPECT_TRUE(overtook);
  EXPECT_EQ(large_in->wait(soon()), Transfer::Result::Done);
  EXPECT_EQ(large_parts->blocks[0], *large);
}

TEST_P(MeshPaths, AClosedRunEndsItsTransfersAndLeavesTheNextOneAlone) {
  const std::vector<Node> nodes = two(4096);
  for (uint32_t run = 1; run <= 20; ++run) {
    const auto block = block_of(3 << 20, run);
    const auto parts = std::make_shared<Parts>();
    const auto unsent = nodes[1].mesh->receive(0, {.run = run, .channel = 9}, into(parts));
    const auto unposted =
        nodes[0].mesh->send(1, {.run = run, .channel = 8}, {Bytes(*block)}, block);
    // Closed while the bytes of this one are on their way.
    const auto cut = std::make_shared<Parts>();
    const auto receive = nodes[1].mesh->receive(0, {.run = run, .channel = 1}, into(cut));
    const auto send = nodes[0].mesh->send(1, {.run = run, .channel = 1}, {Bytes(*block)}, block);
    std::this_thread::sleep_for(std::chrono::microseconds(200 * run));
    nodes[run % 2].mesh->close_run(run);
    nodes[1 - run % 2].mesh->close_run(run);
    EXPECT_EQ(unsent->wait(soon()), Transfer::Result::Closed);
    EXPECT_EQ(unposted->wait(soon()), Transfer::Result::Closed);
    EXPECT_NE(receive->wait(soon()), Transfer::Result::TimedOut);
    EXPECT_NE(send->wait(soon()), Transfer::Result::TimedOut);
    EXPECT_EQ(nodes[0].mesh->send(1, {.run = run}, {}, nullptr)->wait(soon()),
              Transfer::Result::Closed);
  }
  const auto block = block_of(100'000, 3);
  const auto parts = std::make_shared<Parts>();
  nodes[0].mesh->send(1, {.run = 21}, {Bytes(*block)}, block);
  EXPECT_EQ(nodes[1].mesh->receive(0, {.run = 21}, into(parts))->wait(soon()),
            Transfer::Result::Done);
  EXPECT_EQ(parts->blocks[0], *block);
}

TEST(Mesh, APeerThatGoesIsNoticedAtOnce) {
  std::vector<Node> nodes = connected(3);
  Mutex mutex;
  CondVar changed;
  std::map<int, std::string> lost;
  nodes[0].mesh->start({.note = [](int, const std::string&) {},
                        .lost =
                            [&](int peer, std::string why) {
                              MutexLock lock(mutex);
                              lost[peer] = std::move(why);
                              changed.notify_all();
                            }});
  for (const size_t r : {1, 2})
    nodes[r].mesh->start(
        {.note = [](int, const std::string&) {}, .lost = [](int, const std::string&) {}});
  const auto parts = std::make_shared<Parts>();
  const auto receive = nodes[0].mesh->receive(2, {.run = 1}, into(parts));
  nodes[2].mesh.reset();
  EXPECT_EQ(receive->wait(soon()), Transfer::Result::Closed);
  MutexLock lock(mutex);
  ASSERT_TRUE(changed.wait_until(mutex, soon(), [&] { return lost.contains(2); }));
  EXPECT_EQ(lost[2], "has ended");
  EXPECT_FALSE(lost.contains(1));
}

TEST(Mesh, APeerThatIsSilentIsLost) {
  // Connected, but never started: it neither reads nor answers.
  const std::vector<Node> nodes = connected(2, {.silence = milliseconds(300)});
  Mutex mutex;
  CondVar changed;
  std::string why;
  const auto start = std::chrono::steady_clock::now();
  nodes[0].mesh->start({.note = [](int, const std::string&) {},
                        .lost =
                            [&](int, std::string text) {
                              MutexLock lock(mutex);
                              why = std::move(text);
                              changed.notify_all();
                            }});
  MutexLock lock(mutex);
  ASSERT_TRUE(changed.wait_until(mutex, soon(), [&] { return !why.empty(); }));
  EXPECT_EQ(why, "has not answered for 0.3 s");
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(290));
}

TEST(Mesh, PeersThatAreQuietStayConnected) {
  const std::vector<Node> nodes = connected(2, {.silence = milliseconds(500)});
  std::atomic<int> lost = 0;
  for (const Node& node : nodes)
    node.mesh->start(
        {.note = [](int, const std::string&) {}, .lost = [&](int, const std::string&) { ++lost; }});
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_EQ(lost, 0);
  // In one process both read the same clock.
  EXPECT_LT(std::abs(nodes[1].mesh->clock_offset(0).ns), nodes[1].mesh->clock_offset(0).error_ns);
  EXPECT_LT(nodes[1].mesh->clock_offset(0).error_ns, 100'000'000);
}

TEST(Mesh, EndsWhileItsSignsOfLifeAreDue) {
  for (int round = 0; round < 30; ++round) {
    const std::vector<Node> nodes = connected(2, {.silence = milliseconds(5)});
    start_quietly(nodes);
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 100 * round));
  }
}

TEST(Mesh, WhoDoesNotComeIsNamed) {
  MeshOptions options{.rank = 0, .ranks = 4, .port = free_port(), .patience = milliseconds(700)};
  std::string of_rank_2;
  std::jthread rank_2([options, &of_rank_2]() mutable {
    options.rank = 2;
    try {
      Mesh::connect(options);
    } catch (const Error& error) {
      of_rank_2 = error.what();
    }
  });
  try {
    Mesh::connect(options);
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ranks 1, 3 of 4 did not come to 127.0.0.1:"));
  }
  rank_2.join();
  EXPECT_THAT(of_rank_2, HasSubstr("ranks 1, 3 of 4 did not come"));
}

TEST(Mesh, NobodyAtTheAddressOfRank0IsATimeout) {
  try {
    Mesh::connect({.rank = 1, .ranks = 2, .port = free_port(), .patience = milliseconds(300)});
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot reach rank 0 at 127.0.0.1:"));
  }
  EXPECT_THROW(Mesh::connect({.rank = 2, .ranks = 2, .port = 1}), ConfigError);
  EXPECT_THROW(Mesh::connect({.rank = 0, .ranks = 2}), ConfigError);
}

// Rank 0 that waits, a rank that looks for rank 0, one that looks for its name, and one that waits
// for its answer.
TEST(Mesh, TheWaitingForOthersEndsWhenItIsStopped) {
  Warnings warnings;
  const uint16_t port = free_port();
  std::jthread rank_0([&] {
    EXPECT_THROW(Mesh::connect({.ranks = 3, .port = port, .patience = milliseconds(2000)}),
                 TimeoutError);
  });
  for (const MeshOptions& waits :
       {MeshOptions{.rank = 0, .port = free_port()}, MeshOptions{.rank = 1, .port = free_port()},
        MeshOptions{.rank = 1, .address = "no.such.host.invalid", .port = 1},
        MeshOptions{.rank = 1, .port = port}}) {
    std::atomic<bool> stop{false};
    MeshOptions options = waits;
    options.ranks = 3;
    options.stop = &stop;
    std::jthread stopper([&stop] {
      std::this_thread::sleep_for(milliseconds(200));
      stop = true;
    });
    const auto began = std::chrono::steady_clock::now();
    try {
      Mesh::connect(options);
      ADD_FAILURE() << "rank " << options.rank << " is connected";
    } catch (const RuntimeError& error) {
      EXPECT_THAT(error.what(), HasSubstr("interrupted while"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  }
}

TEST(Mesh, ARankThatIsStoppedTellsThoseThatWaitForIt) {
  Warnings warnings;
  std::atomic<bool> stop{false};
  const MeshOptions options{.ranks = 3, .port = free_port(), .stop = &stop};
  std::jthread rank_0([&] { EXPECT_THROW(Mesh::connect(options), RuntimeError); });
  std::jthread stopper([&stop] {
    std::this_thread::sleep_for(milliseconds(500));
    stop = true;
  });
  try {
    Mesh::connect({.rank = 1, .ranks = 3, .port = options.port});
    FAIL();
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), HasSubstr("refused this rank: interrupted while the ranks"));
  }
}

TEST(Mesh, ANameThatIsNotKnownIsLookedUpAgain) {
  const auto began = std::chrono::steady_clock::now();
  for (int rank : {0, 1}) {
    EXPECT_THROW(Mesh::connect({.rank = rank,
                                .ranks = 2,
                                .address = "no.such.host.invalid",
                                .port = 1,
                                .patience = milliseconds(1200)}),
                 ConfigError);
  }
  EXPECT_GE(std::chrono::steady_clock::now() - began, milliseconds(1200));
}

// As where /etc/hosts gives a machine's own name the address 127.0.1.1 there: ranks 0 and 1 are on
// that machine, rank 2 knows it by another address. "127.1" is no address to asio, but a name that
// the resolver knows; 127.0.0.2 reaches only who listens there or at all addresses.
TEST(Mesh, ANameThatIsALoopbackAddressIsNoneForOtherMachines) {
  const uint16_t port = free_port();
  std::vector<std::unique_ptr<Mesh>> meshes(3);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < 3; ++r) {
      threads.emplace_back([&meshes, port, r] {
        meshes[static_cast<size_t>(r)] = Mesh::connect({.rank = r,
                                                        .ranks = 3,
                                                        .address = r == 2 ? "127.0.0.2" : "127.1",
                                                        .port = port,
                                                        .other_hosts = true});
      });
    }
  }
  for (const auto& mesh : meshes) EXPECT_EQ(mesh->ranks(), 3);
}

TEST(Mesh, AnAddressOfAnotherMachineIsSaid) {
  try {
    Mesh::connect({.ranks = 2, .address = "192.0.2.1", .port = free_port()});
    FAIL();
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 must run on the machine with that address"));
  }
}

TEST(Mesh, APortInUseIsSaid) {
  const std::vector<Node> nodes = connected(2);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  listen(fd, 1);
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  try {
    Mesh::connect({.ranks = 2, .port = ntohs(address.sin_port)});
    FAIL();
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot listen at 127.0.0.1:"));
    EXPECT_THAT(error.what(), HasSubstr("another job listens there"));
  }
  close(fd);
}

/// Connects to the port and sends the text.
int stranger(uint16_t port, const std::string& text) {
  const int fd = connected_to(port);
  EXPECT_EQ(write(fd, text.data(), text.size()), std::ssize(text));
  return fd;
}

TEST(Mesh, StrangersAreRefusedAndDoNotDisturb) {
  Warnings warnings;
  MeshOptions options{.rank = 0, .ranks = 2, .port = free_port(), .token = "right"};
  std::unique_ptr<Mesh> first;
  std::jthread rank_0([&] { first = Mesh::connect(options); });
  // One that talks, one that hangs up, one that says nothing at all.
  const int talks = stranger(options.port, "GET / HTTP/1.1\r\n\r\n" + std::string(500, 'x'));
  const int goes = stranger(options.port, "PENST");
  close(goes);
  const int silent = stranger(options.port, "");
  MeshOptions wrong = options;
  wrong.rank = 1;
  wrong.token = "wrong";
  try {
    Mesh::connect(wrong);
    ADD_FAILURE();
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), HasSubstr("refused this rank: the token is that of another job"));
  }
  MeshOptions right = options;
  right.rank = 1;
  const auto second = Mesh::connect(right);
  rank_0.join();
  ASSERT_NE(first, nullptr);
  EXPECT_THAT(warnings.text(), HasSubstr("no rank of Penstock"));
  EXPECT_THAT(warnings.text(), HasSubstr("closed the connection after 5 bytes"));
  EXPECT_THAT(warnings.text(), HasSubstr("token is that of another job"));
  close(talks);
  close(silent);
}

TEST(Mesh, TheSameRankTwiceIsRefused) {
  Warnings warnings;
  MeshOptions options{.rank = 0, .ranks = 3, .port = free_port()};
  std::vector<std::unique_ptr<Mesh>> meshes(3);
  std::vector<std::string> failures(4);
  std::vector<std::jthread> threads;
  const auto come = [&](int rank, size_t as) {
    threads.emplace_back([&, options, rank, as]() mutable {
      options.rank = rank;
      try {
        auto mesh = Mesh::connect(options);
        meshes[static_cast<size_t>(rank)] = std::move(mesh);
      } catch (const Error& error) {
        failures[as] = error.what();
      }
    });
  };
  come(0, 0);
  come(1, 1);
  come(1, 3);
  std::this_thread::sleep_for(milliseconds(300));
  come(2, 2);
  threads.clear();
  const std::string refused = failures[1].empty() ? failures[3] : failures[1];
  EXPECT_THAT(refused, HasSubstr("rank 1 is there already, from 127.0.0.1:"));
  EXPECT_EQ(failures[0], "");
  EXPECT_EQ(failures[2], "");
}

/// A rank's connection to rank 0 with its hello; the file descriptor.
int rank_by_hand(const MeshOptions& options, int rank) {
  const int fd = connected_to(options.port);
  EXPECT_TRUE(say_hello_by_hand(fd, {.token = options.token,
                                     .version = options.version,
                                     .rank = rank,
                                     .ranks = options.ranks,
                                     .port = 1}));
  return fd;
}

TEST(Mesh, ARankThatGoesBeforeAllHaveComeFreesItsPlace) {
  Warnings warnings;
  const MeshOptions options{.ranks = 3, .port = free_port()};
  std::array<std::unique_ptr<Mesh>, 3> meshes;
  const auto come = [&](size_t rank) {
    MeshOptions own = options;
    own.rank = static_cast<int>(rank);
    meshes[rank] = Mesh::connect(own);
  };
  std::jthread rank_0([&] { come(0); });
  close(rank_by_hand(options, 1));
  while (warnings.text().empty()) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_THAT(warnings.text(), HasSubstr("rank 1, from 127.0.0.1:"));
  EXPECT_THAT(warnings.text(), HasSubstr("closed the connection before all ranks had come"));
  std::jthread rank_1([&] { come(1); });
  std::jthread rank_2([&] { come(2); });
  rank_0.join(), rank_1.join(), rank_2.join();
  EXPECT_TRUE(meshes[0] && meshes[1] && meshes[2]);
}

TEST(Mesh, ARankThatHasGoneIsNamedWhenNoneComesInItsPlace) {
  Warnings warnings;
  const MeshOptions options{.ranks = 3, .port = free_port(), .patience = milliseconds(600)};
  std::jthread other([&] { close(rank_by_hand(options, 1)); });
  try {
    Mesh::connect(options);
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ranks 1, 2 of 3 did not come to 127.0.0.1:"));
    EXPECT_THAT(error.what(), HasSubstr("; rank 1 had come and closed the connection"));
  }
}

/// Rank 2 has its table; the rank that it waits for or goes to ends then.
TEST(Mesh, ARankThatGoesWhileTheOthersConnectEndsThemAtOnce) {
  for (const int rank : {1, 2}) {
    Warnings warnings;
    const MeshOptions options{.ranks = 3, .port = free_port()};
    std::string failure;
    std::jthread rank_0([&] { Mesh::connect(options); });  // ends its connections at once
    const int other = rank_by_hand(options, 3 - rank);
    MeshOptions own = options;
    own.rank = rank;
    const auto begin = std::chrono::steady_clock::now();
    try {
      Mesh::connect(own);
      ADD_FAILURE() << "connected";
    } catch (const TransportError& error) {
      EXPECT_THAT(error.what(), HasSubstr(rank == 1 ? "rank 0 closed the connection before all"
                                                    : "rank 1 (at 127.0.0.1:1) has ended before"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    close(other);
  }
}

TEST(Mesh, AFloodOfStrangersIsSaidInFewLines) {
  Warnings warnings;
  MeshOptions options{.ranks = 2, .port = free_port()};
  std::jthread rank_0([&] { Mesh::connect(options); });
  for (int i = 0; i < 100; ++i) close(stranger(options.port, "PENST"));
  MeshOptions other = options;
  other.rank = 1;
  Mesh::connect(other);
  rank_0.join();
  const std::string text = warnings.text();
  size_t refused = 0;
  for (size_t at = 0; (at = text.find("refused a connection", at)) != std::string::npos; ++at)
    ++refused;
  EXPECT_EQ(refused, 6u) << text;
  EXPECT_THAT(text, HasSubstr(" more connections refused, the last one: refused a connection"));
}

TEST(Mesh, AnotherVersionIsRefused) {
  Warnings warnings;
  MeshOptions options{
      .ranks = 2, .port = free_port(), .version = "0.1.0", .patience = milliseconds(1000)};
  std::jthread rank_0([options] { EXPECT_THROW(Mesh::connect(options), TimeoutError); });
  options.rank = 1;
  options.version = "0.2.0";
  try {
    Mesh::connect(options);
    FAIL();
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 runs Penstock 0.2.0"));
    EXPECT_THAT(error.what(), HasSubstr("rank 0 runs Penstock 0.1.0"));
  }
}

}  // namespace
}  // namespace penstock::net
