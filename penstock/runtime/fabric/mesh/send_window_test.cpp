// What is sent when, with transfers that the test ends itself.
#include "penstock/runtime/fabric/mesh/send_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "penstock/runtime/fabric/mesh/stage_sum.h"

namespace penstock::runtime {
namespace {

using ::testing::ElementsAre;
using Kind = SendWindow::Kind;
using Result = net::Transfer::Result;

class SendWindowTest : public ::testing::Test {
 protected:
  void add(const std::string& name, int urgency, int64_t bytes, Kind kind = Kind::Part,
           double share = 0.5) {
    window->add(urgency, kind, share, bytes, [this, name] {
      sent.push_back(name);
      transfers[name] = std::make_shared<net::Transfer>();
      return transfers[name];
    });
  }
  std::shared_ptr<SendWindow> window = std::make_shared<SendWindow>(100);
  std::vector<std::string> sent;
  std::map<std::string, std::shared_ptr<net::Transfer>> transfers;
};

TEST_F(SendWindowTest, TheMostUrgentGoFirstAFewAtATime) {
  add("a", -3, 60);
  add("b", -3, 60);  // begins below the window's end
  add("c", -3, 60);
  add("d", -1, 60);
  add("e", -1, 60);
  EXPECT_THAT(sent, ElementsAre("a", "b"));
  transfers["a"]->end(Result::Done);
  EXPECT_THAT(sent, ElementsAre("a", "b", "d"));
  transfers["d"]->end(Result::Done);
  transfers["b"]->end(Result::Done);
  EXPECT_THAT(sent, ElementsAre("a", "b", "d", "e", "c"));
}

TEST_F(SendWindowTest, OneLargerThanTheWindowGoesAlone) {
  add("large", 0, 1000);
  add("small", 0, 1);
  EXPECT_THAT(sent, ElementsAre("large"));
  transfers["large"]->end(Result::Done);
  EXPECT_THAT(sent, ElementsAre("large", "small"));
}

/// Four parts for each result. Results that come late do not get the turns that they missed.
TEST_F(SendWindowTest, PartsAndResultsTakeTurnsInTheProportionOfTheirBytes) {
  add("first", 0, 100);
  for (const char* name : {"p1", "p2", "p3", "p4", "p5", "p6", "p7"})
    add(name, 0, 100, Kind::Part, 0.8);
  transfers["first"]->end(Result::Done);
  transfers["p1"]->end(Result::Done);
  for (const char* name : {"r1", "r2", "r3"}) add(name, 0, 100, Kind::Result, 0.2);
  for (size_t i = 2; i < 10; ++i) transfers[sent[i]]->end(Result::Done);
  EXPECT_THAT(sent,
              ElementsAre("first", "p1", "p2", "r1", "p3", "p4", "p5", "p6", "r2", "p7", "r3"));
}

/// A small result for a late rank does not wait behind the next round's parts, which are large.
TEST(SumUrgency, EarlierRoundsGoFirstThenWhatIsNeededFirst) {
  EXPECT_LT(urgency_of_sum(0, 0), 0);
  EXPECT_GT(urgency_of_sum(7, 0), urgency_of_sum(7, 1));
  EXPECT_GT(urgency_of_sum(7, 3), urgency_of_sum(8, 0));
  EXPECT_GT(urgency_of_sum(7, 1'000'000), urgency_of_sum(8, 0));
}

TEST_F(SendWindowTest, NothingIsSentAfterItIsClosed) {
  add("a", 0, 100);
  add("b", 0, 100);
  window->close();
  transfers["a"]->end(Result::Closed);
  add("c", 0, 100);
  EXPECT_THAT(sent, ElementsAre("a"));
}

/// A transfer that has ended before anybody asks, as on a fast connection.
TEST_F(SendWindowTest, TransfersThatEndAtOnceLetAllGo) {
  int count = 0;
  for (int i = 0; i < 1000; ++i) {
    window->add(0, Kind::Part, 0.5, 100, [&count] {
      ++count;
      auto transfer = std::make_shared<net::Transfer>();
      transfer->end(Result::Done);
      return transfer;
    });
  }
  EXPECT_EQ(count, 1000);
}

}  // namespace
}  // namespace penstock::runtime
