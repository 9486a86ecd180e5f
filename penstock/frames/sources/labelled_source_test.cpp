#include "penstock/frames/sources/labelled_source.h"

#include <gmock/gmock.h>

#include "penstock/frames/testing_frames.h"

namespace penstock::frames {
namespace {

using testing::HasSubstr;

/// Frames of one pixel, `rate` a second, or live ones that come when `times_ns` says.
class Numbers : public FrameSource {
 public:
  explicit Numbers(double rate, std::vector<int64_t> times_ns = {})
      : rate_(rate), times_ns_(std::move(times_ns)) {}
  FrameSize size() const override { return {1, 1, kGrey}; }
  double frames_per_second() const override { return rate_; }
  bool is_live() const override { return !times_ns_.empty(); }
  std::string describe() const override { return "numbers"; }
  Next next(Frame& frame, Deadline) override {
    const auto last = static_cast<int64_t>(times_ns_.empty() ? 6 : times_ns_.size());
    if (number_ == last) return Next::Ended;
    frame.number = number_++;
    frame.captured_ns = times_ns_.empty() ? 0 : times_ns_[static_cast<size_t>(frame.number)];
    frame.label = 77;
    return Next::Ready;
  }

 private:
  double rate_;
  std::vector<int64_t> times_ns_;
  int64_t number_ = 0;
};

/// -1: none.
std::vector<int> labels_of(FrameSource& source) {
  std::vector<int> labels;
  Frame frame;
  while (source.next(frame, soon()) == Next::Ready) labels.push_back(frame.label.value_or(-1));
  return labels;
}

std::unique_ptr<LabelledSource> labelled(const TestFolder& folder, const std::string& text,
                                         double rate = 2, std::vector<int64_t> times_ns = {}) {
  folder.write("labels.csv", text);
  return std::make_unique<LabelledSource>(std::make_unique<Numbers>(rate, std::move(times_ns)),
                                          folder / "labels.csv");
}

TEST(LabelledSource, HoldsALabelUntilTheNextRow) {
  const TestFolder folder;
  const auto source = labelled(folder, "seconds,label\n0.5,dog\n1.5,cat\n\n2.5,\n");
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(labels_of(*source), (std::vector<int>{-1, 1, 1, 0, 0, -1}));
  EXPECT_THAT(source->describe(), HasSubstr("labels.csv (2 classes)"));
  EXPECT_TRUE(source->labels_frames());
}

TEST(LabelledSource, CountsTheTimeOfCamerasFromTheirFirstFrame) {
  const TestFolder folder;
  const auto source = labelled(folder, "\xEF\xBB\xBFseconds,label\r\n1,2\r\n2,10\r\n", 30,
                               {5'000'000'000, 5'900'000'000, 6'100'000'000, 9'000'000'000});
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"2", "10"})) << "as people count";
  EXPECT_EQ(labels_of(*source), (std::vector<int>{-1, -1, 0, 1}));
}

TEST(LabelledSource, LabelsSingleFrames) {
  const TestFolder folder;
  const auto source = labelled(folder, "frame,label\n1,a\n3, b b \n");
  EXPECT_EQ(labels_of(*source), (std::vector<int>{-1, 0, -1, 1, -1, -1}));
  EXPECT_EQ(source->class_names().back(), "b b");
}

TEST(LabelledSource, NamesTheLineThatIsWrong) {
  const TestFolder folder;
  const auto refusal = [&](const std::string& text) {
    return message_of<ParseError>([&] { labelled(folder, text); });
  };
  EXPECT_THAT(refusal("time,class\n"), HasSubstr("expected the header 'seconds,label' or"));
  EXPECT_THAT(refusal(""), HasSubstr("found ''"));
  EXPECT_THAT(refusal("seconds,label\n1,a\nx,b\n"), HasSubstr(":3: expected seconds and a label"));
  EXPECT_THAT(refusal("seconds,label\n1\n"), HasSubstr(":2: expected seconds and a label"));
  EXPECT_THAT(refusal("seconds,label\n-1,a\n"), HasSubstr(":2: expected seconds"));
  EXPECT_THAT(refusal("seconds,label\nnan,a\n"), HasSubstr(":2: expected seconds"));
  EXPECT_THAT(refusal("frame,label\n1.5,a\n"), HasSubstr("expected a frame's number and a label"));
  EXPECT_THAT(refusal("frame,label\n2,a\n2,b\n"), HasSubstr(":3: 2 comes after 2"));
  EXPECT_THAT(refusal("frame,label\n2,a\n3,a\n"), HasSubstr("2 to 1000 different labels, found 1"));
  EXPECT_THAT(message_of<ConfigError>([&] { labelled(folder, "seconds,label\n1,a\n2,b\n", 0); }),
              HasSubstr("numbers has no rate: expected frames at a rate of their own"));
  EXPECT_THAT(message_of<ConfigError>([&] {
                LabelledSource source(std::make_unique<Numbers>(1), folder / "none.csv");
              }),
              HasSubstr("none.csv"));
}

}  // namespace
}  // namespace penstock::frames
