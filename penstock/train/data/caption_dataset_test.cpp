#include "penstock/train/data/caption_dataset.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// [2 frames, 3 numbers] and 4 words, of 9.
SampleSpec clip_sample() {
  SampleSpec sample;
  sample.inputs = {{.name = "frames", .shape = {2, 3}, .type = at::kFloat},
                   {.name = "target", .shape = {4}, .type = at::kLong, .values = 9}};
  sample.targets = {.shape = {4}, .type = at::kLong, .classes = 9};
  return sample;
}

/// Two clips; captions 5 6, 7, 8 5 6 7 (too long), of clips 1, 0, 0.
CaptionedClips two_clips() {
  return {.frames = at::arange(12).to(at::kByte).view({2, 2, 3}),
          .scale = 0.5,
          .captions = {.tokens = at::tensor(std::vector<int64_t>{5, 6, 7, 8, 5, 6, 7}),
                       .offsets = {0, 2, 3, 7}},
          .clip_of = {1, 0, 0}};
}

CaptionDataset dataset(CaptionedClips clips, bool one_of_each = false) {
  return {"clips", clip_sample(), std::move(clips), {}, -100, one_of_each};
}

TEST(CaptionDataset, HasAClipWithEachCaption) {
  const CaptionDataset data = dataset(two_clips());
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(data.left_out().text(), "1 captions of 4 words or more");
  const model::Tensors inputs = data.inputs({0, 1});
  EXPECT_TRUE(at::equal(inputs[0], at::arange(12).view({2, 2, 3}).flip(0).to(at::kFloat) / 2));
  EXPECT_TRUE(
      at::equal(inputs[1], at::tensor(std::vector<int64_t>{2, 5, 6, 0, 2, 7, 0, 0}).view({2, 4})));
  EXPECT_TRUE(
      at::equal(data.targets({0, 1}),
                at::tensor(std::vector<int64_t>{5, 6, 3, -100, 7, 3, -100, -100}).view({2, 4})));
  EXPECT_EQ(data.count_targets({0, 1}), 5);
  const at::Tensor said = data.inputs_with_targets({1}, {{8}})[1];
  EXPECT_TRUE(at::equal(said, at::tensor(std::vector<int64_t>{2, 8, 0, 0}).view({1, 4})));
}

TEST(CaptionDataset, OfATestEachClipIsOneSample) {
  CaptionedClips clips = two_clips();
  clips.clip_of = {1, 1, 1};
  EXPECT_EQ(dataset(clips).size(), 2);
  const CaptionDataset test = dataset(clips, /*one_of_each=*/true);
  EXPECT_EQ(test.size(), 1);
  EXPECT_EQ(test.clips(), std::vector<int64_t>{1});
}

TEST(CaptionDataset, RefusesWhatDoesNotFit) {
  const auto refused = [](auto change) {
    return [change] {
      CaptionedClips clips = two_clips();
      SampleSpec sample = clip_sample();
      change(clips, sample);
      return CaptionDataset("clips", sample, clips, {}, -100, false).size();
    };
  };
  EXPECT_THAT(refused([](CaptionedClips& c, SampleSpec&) { c.clip_of[1] = 2; }),
              ThrowsMessage<ConfigError>(HasSubstr("of clip 2, and there are 2 clips")));
  EXPECT_THAT(refused([](CaptionedClips& c, SampleSpec&) { c.clip_of.pop_back(); }),
              ThrowsMessage<ConfigError>(HasSubstr("a clip for each of 3 captions, found 2")));
  EXPECT_THAT(refused([](CaptionedClips&, SampleSpec& s) { s.inputs[1].values = 8; }),
              ThrowsMessage<ConfigError>(HasSubstr("the word 8 does not exist")));
  EXPECT_THAT(refused([](CaptionedClips&, SampleSpec& s) {
                s.inputs[0].shape = {2, 4};
              }),
              ThrowsMessage<ConfigError>(HasSubstr("the model's input 'frames'")));
  EXPECT_THAT(refused([](CaptionedClips&, SampleSpec& s) { s.inputs.pop_back(); }),
              ThrowsMessage<ConfigError>(HasSubstr("read frames, then words")));
}

}  // namespace
}  // namespace penstock::train
