#include "penstock/frames/paced_source.h"

#include <gmock/gmock.h>

#include <limits>

#include "penstock/frames/testing_frames.h"

namespace penstock::frames {
namespace {

using testing::HasSubstr;

std::unique_ptr<FrameSource> frames_of_script(int64_t frames) {
  return std::make_unique<ScriptedSource>(ScriptedSource::Script{.frames = frames});
}

TEST(PacedSource, FramesComeWhenTheyAreDue) {
  PacedSource source(frames_of_script(4), 100);
  EXPECT_EQ(source.frames_per_second(), 100);
  const int64_t begin_ns = steady_ns();
  Frame frame;
  std::vector<int64_t> due_ns;
  while (source.next(frame, soon()) == Next::Ready) {
    EXPECT_GE(steady_ns(), frame.captured_ns);
    due_ns.push_back(frame.captured_ns);
  }
  ASSERT_EQ(due_ns.size(), 4u);
  EXPECT_GE(due_ns[0], begin_ns);
  for (size_t k = 1; k < due_ns.size(); ++k)
    EXPECT_EQ(due_ns[k] - due_ns[0], static_cast<int64_t>(k) * 10'000'000);
}

TEST(PacedSource, AFrameThatIsTakenLateWasCapturedWhenItWasDue) {
  PacedSource source(frames_of_script(10), 1000);
  Frame frame;
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  const int64_t start_ns = frame.captured_ns;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int64_t k = 1; k < 10; ++k) {
    ASSERT_EQ(source.next(frame, in_ms(-1)), Next::Ready) << k;
    EXPECT_EQ(frame.captured_ns, start_ns + k * 1'000'000);
    EXPECT_EQ(frame.number, k);
  }
}

TEST(PacedSource, AFrameThatIsNotDueIsKept) {
  PacedSource source(frames_of_script(2), 1);
  Frame frame;
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_EQ(source.next(frame, in_ms(5)), Next::Stalled);
  EXPECT_EQ(source.next(frame, in_ms(5)), Next::Stalled);
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_EQ(frame.number, 1);
  EXPECT_EQ(source.next(frame, soon()), Next::Ended);
}

TEST(PacedSource, LeavesOutLateFramesOfASlowSource) {
  constexpr double kRate = 5000;  // the source makes 500 at most
  for (const bool skips : {true, false}) {
    PacedSource source(
        std::make_unique<ScriptedSource>(ScriptedSource::Script{
            .frames = 1'000'000, .pause = std::chrono::milliseconds(2), .skips = skips}),
        kRate, LateFrames::LeaveOut);
    Frame frame;
    for (int k = 0; k < 50; ++k) {
      const int64_t asked_ns = steady_ns();
      ASSERT_EQ(source.next(frame, soon()), Next::Ready);
      // Two periods and the slack: however many frames there were before it.
      EXPECT_GE(frame.captured_ns, asked_ns - 1'400'000) << k;
    }
    const int64_t skipped = source.counts().skipped;
    EXPECT_EQ(frame.number, 49 + skipped);
    EXPECT_EQ(skipped > 0, skips);
    EXPECT_THAT(source.remarks(), HasSubstr("the source did not keep 5000 frames/s: it delivered"));
    EXPECT_EQ(source.remarks().find("left out") != std::string::npos, skips);
  }
}

TEST(PacedSource, DeliversLateFramesWhereNothingMayBeLost) {
  PacedSource source(std::make_unique<ScriptedSource>(ScriptedSource::Script{
                         .frames = 20, .pause = std::chrono::milliseconds(1), .skips = true}),
                     100'000);
  Frame frame;
  for (int64_t k = 0; k < 20; ++k) {
    ASSERT_EQ(source.next(frame, soon()), Next::Ready);
    EXPECT_EQ(frame.number, k);
  }
  EXPECT_EQ(source.next(frame, soon()), Next::Ended);
  EXPECT_EQ(source.counts(), SourceCounts{});
  EXPECT_EQ(source.remarks(), "");
}

TEST(PacedSource, RefusesRatesAndLiveSources) {
  for (const double rate : {0.0, -1.0, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(message_of<ConfigError>([&] { PacedSource(frames_of_script(1), rate); }),
                HasSubstr("expected a rate"));
  }
  EXPECT_THAT(message_of<ConfigError>([] {
                PacedSource(
                    std::make_unique<ScriptedSource>(ScriptedSource::Script{.is_live = true}), 25);
              }),
              HasSubstr("scripted: its frames come at a rate of their own"));
}

}  // namespace
}  // namespace penstock::frames
