#include "penstock/report/timeline/lane_data.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "penstock/schedule/testing_timelines.h"

namespace penstock::report {
namespace {

using schedule::event_of;
using schedule::random_timeline;
using schedule::two_workers;

using schedule::Op;
using schedule::Timeline;

/// What page/data.js does.
class Decoder {
 public:
  explicit Decoder(const LaneData& data) : data_(data) {}

  std::vector<Timeline> timelines() {
    std::vector<Timeline> result;
    for (const Json& lane : data_.header.at("lanes")) {
      std::vector<std::string_view> columns;
      for (const Json& size : lane.at("columns")) {
        columns.push_back(std::string_view(data_.bytes).substr(at_, size.get<size_t>()));
        at_ += size.get<size_t>();
      }
      Timeline timeline{lane.at("name").get<std::string>(), {}};
      for (const Json& count : lane.at("counts"))
        timeline.workers.emplace_back(count.get<size_t>());
      if (lane.at("same_as").is_null()) {
        read_actions(timeline, columns);
      } else {
        const Timeline& same = result.at(lane.at("same_as").get<size_t>());
        for (size_t w = 0; w < same.workers.size(); ++w) {
          for (size_t k = 0; k < same.workers[w].size(); ++k)
            timeline.workers[w][k].action = same.workers[w][k].action;
        }
      }
      read_times(timeline, columns, lane.at("tick_ns").get<int64_t>());
      for (const std::string_view column : columns) EXPECT_TRUE(column.empty());
      result.push_back(timeline);
    }
    EXPECT_EQ(at_, data_.bytes.size());
    return result;
  }

 private:
  static int64_t next(std::string_view& column) {
    int64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(column.at(0));
      column.remove_prefix(1);
      value |= int64_t{byte & 127} << shift;
      if (byte < 128) return value;
    }
  }
  static int64_t next_signed(std::string_view& column) {
    const int64_t value = next(column);
    return value % 2 != 0 ? -(value + 1) / 2 : value / 2;
  }
  static bool can_wait(Op op) {
    return schedule::is_message(op) || op == Op::SyncGradients || op == Op::NormGradients ||
           op == Op::Offload;
  }

  static void read_actions(Timeline& timeline, std::vector<std::string_view>& columns) {
    for (auto& events : timeline.workers) {
      int64_t stage = 0, mini_batch = 0, batch[16] = {}, version[16] = {};
      for (schedule::TimelineEvent& event : events) {
        const auto code = static_cast<size_t>(next(columns[0]));
        const auto op = static_cast<Op>(code);
        stage += next_signed(columns[1]);
        if (schedule::has_micro_batch(op)) batch[code] += next_signed(columns[2]);
        mini_batch += next_signed(columns[3]);
        const int64_t peer = stage + (schedule::is_message(op) ? next_signed(columns[4]) : 0);
        version[code] += next_signed(columns[5]);
        const int64_t b = schedule::has_micro_batch(op) ? batch[code] : 0;
        event.action = {op,
                        StageId{static_cast<int32_t>(stage)},
                        MicroBatchId{b},
                        MiniBatchId{mini_batch},
                        StageId{static_cast<int32_t>(peer)},
                        false,
                        0,
                        WeightVersion{version[code]}};
      }
    }
  }
  static void read_times(Timeline& timeline, std::vector<std::string_view>& columns, int64_t tick) {
    for (auto& events : timeline.workers) {
      int64_t before = 0;
      for (schedule::TimelineEvent& event : events) {
        const int64_t begin = before + next_signed(columns[6]);
        const int64_t length = next(columns[7]);
        const int64_t part = next(columns[8]);
        before = begin + length;
        event.start_ns = begin * tick;
        event.end_ns = before * tick;
        event.waiting_ns = (can_wait(event.action.op) ? length - part : part) * tick;
      }
    }
  }

  const LaneData& data_;
  size_t at_ = 0;
};

/// From 0 on, as the page has it, which does not say what runs together.
Timeline shifted(Timeline timeline) {
  int64_t origin = INT64_MAX;
  for (const auto& events : timeline.workers) {
    for (const auto& event : events) origin = std::min(origin, event.start_ns);
  }
  for (auto& events : timeline.workers) {
    for (auto& event : events) {
      event.action.with_next = false;
      event.start_ns -= origin;
      event.end_ns -= origin;
    }
  }
  return timeline;
}

TEST(LaneData, OfShortRunsIsExact) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Timeline a = random_timeline(seed, 3, 4, 15);
    Timeline b = a;
    b.source = "slower";
    for (auto& events : b.workers) {
      for (auto& event : events) event.end_ns += 7;
    }
    const Timeline c = random_timeline(seed + 100, 2, 4, 10);
    const LaneData data = lane_data({&a, &b, &c});
    EXPECT_EQ(Decoder(data).timelines(),
              (std::vector<Timeline>{shifted(a), shifted(b), shifted(c)}))
        << "seed " << seed;
    EXPECT_EQ(data.header.at("lanes").at(1).at("same_as"), 0)
        << "the same actions are written once";
    EXPECT_EQ(data.header.at("workers"), 3);
  }
}

TEST(LaneData, OfLongRunsIsRoundedToATick) {
  Timeline timeline{"long",
                    {{event_of(Op::Forward, 0, 0, 0, 1'234'567'891),
                      event_of(Op::Forward, 0, 1, 1'234'567'891, 90'000'000'000'123)}}};
  const LaneData data = lane_data({&timeline});
  EXPECT_EQ(data.header.at("lanes").at(0).at("tick_ns"), 1'000'000);
  const Timeline read = Decoder(data).timelines().at(0);
  EXPECT_EQ(read.workers[0][0].end_ns, 1'235'000'000);
  EXPECT_EQ(read.workers[0][1].start_ns, 1'235'000'000);
  EXPECT_EQ(read.workers[0][1].end_ns, 90'000'000'000'000);
}

TEST(LaneData, OfNothingIsEmpty) {
  EXPECT_TRUE(lane_data({}).bytes.empty());
  const Timeline idle{"idle", {{}, {}}};
  EXPECT_EQ(Decoder(lane_data({&idle})).timelines().at(0), idle);
}

TEST(LaneData, IsDeflatedSoThatItInflatesToTheSame) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string(100'000, 'x'), lane_data({}).header.dump()}) {
    const std::string packed = deflated(text);
    std::string read(text.size() + 1, '\0');
    uLongf size = read.size();
    ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(read.data()), &size,
                         reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
              Z_OK);
    read.resize(size);
    EXPECT_EQ(read, text);
  }
}

TEST(Base64, IsThatOfRfc4648) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64(std::string("\xff\xfe\x00", 3)), "//4A");
}

TEST(LaneData, SumsAreRowsOfTheSameSpan) {
  schedule::Timeline timeline{
      "predicted",
      {{{{.op = schedule::Op::Forward}, 5, 10, 0}}, {{{.op = schedule::Op::Forward}, 5, 40, 0}}}};
  timeline.sums = {{.worker = WorkerId{1},
                    .events = {{.stage = StageId{2},
                                .mini_batch = MiniBatchId{3},
                                .bucket = 4,
                                .start_ns = 12,
                                .end_ns = 20}}},
                   {.server = 0, .events = {{.start_ns = 1, .end_ns = 2}}}};
  const schedule::Timeline rows = sum_rows(timeline);
  EXPECT_EQ(rows.source, "sums, predicted");
  EXPECT_EQ(rows.makespan_ns(), timeline.makespan_ns());
  EXPECT_EQ(origin_of(rows), origin_of(timeline));
  ASSERT_EQ(rows.workers.size(), 2U);
  ASSERT_EQ(rows.workers[1].size(), 1U);
  EXPECT_EQ(rows.workers[1][0].action.op, schedule::Op::SyncGradients);
  EXPECT_EQ(rows.workers[1][0].action.version, WeightVersion{4});
  EXPECT_EQ(rows.workers[1][0].start_ns, 12);
}

}  // namespace
}  // namespace penstock::report
