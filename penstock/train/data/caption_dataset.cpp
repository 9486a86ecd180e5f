#include "penstock/train/data/caption_dataset.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <set>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

CaptionDataset::CaptionDataset(std::string name, SampleSpec sample, CaptionedClips clips,
                               SpecialTokens special, int64_t ignore_index, bool one_of_each)
    : name_(std::move(name)),
      sample_(std::move(sample)),
      clips_(std::move(clips)),
      special_(special),
      ignore_index_(ignore_index) {
  check_inputs();
  check_clips();
  places_ = sample_.inputs[1].shape.front();
  check_tokens(clips_.captions, special_, sample_.inputs[1].values, "word");
  if (sample_.targets.needed)
    check_tokens(clips_.captions, special_, sample_.targets.classes, "word");
  find_captions(one_of_each);
}

void CaptionDataset::check_inputs() const {
  const bool fits = sample_.inputs.size() == 2 && at::isFloatingType(sample_.inputs[0].type) &&
                    at::isIntegralType(sample_.inputs[1].type, /*includeBool=*/false) &&
                    sample_.inputs[1].shape.size() == 1;
  if (!fits)
    throw ConfigError(
        "clips with captions are for models that read frames, then words, as s2vt does");
  const model::Shape& sizes = clips_.frames.sizes();
  const model::Shape frame(sizes.begin() + 1, sizes.end());
  if (sample_.inputs[0].shape != frame)
    throw ConfigError(fmt::format("the model's input '{}' is {}, the clips are {}",
                                  printable(sample_.inputs[0].name),
                                  describe(sample_.inputs[0].type, sample_.inputs[0].shape),
                                  describe(clips_.frames.type(), frame)));
  const model::TargetSpec& targets = sample_.targets;
  if (targets.needed && (targets.type != at::kLong || targets.shape != sample_.inputs[1].shape))
    throw ConfigError(
        fmt::format("expected a model that makes logits for each of {} words, found targets ({})",
                    sample_.inputs[1].shape.front(), describe(targets.type, targets.shape)));
}

void CaptionDataset::check_clips() const {
  if (std::ssize(clips_.clip_of) != clips_.captions.size())
    throw ConfigError(fmt::format("expected a clip for each of {} captions, found {}",
                                  clips_.captions.size(), clips_.clip_of.size()));
  for (const int64_t clip : clips_.clip_of) {
    if (clip < 0 || clip >= clips_.frames.size())
      throw ConfigError(fmt::format("a caption is of clip {}, and there are {} clips", clip,
                                    clips_.frames.size()));
  }
}

void CaptionDataset::find_captions(bool one_of_each) {
  std::set<int64_t> seen;
  int64_t longer = 0;
  for (int64_t i = 0; i < clips_.captions.size(); ++i) {
    const bool fits = clips_.captions.length(i) < places_;  // one more: the end, or the beginning
    longer += fits ? 0 : 1;
    const bool is_new =
        !one_of_each || !fits || seen.insert(clips_.clip_of[static_cast<size_t>(i)]).second;
    if (fits && is_new) captions_.push_back(i);
  }
  if (longer > 0) left_out_.add(fmt::format("captions of {} words or more", places_), longer);
  if (captions_.empty())
    throw ConfigError(fmt::format("none of {} captions fits into {} places with their end",
                                  clips_.captions.size(), places_));
}

TokenRows CaptionDataset::words_of(const std::vector<int64_t>& indices) const {
  std::vector<int64_t> numbers;
  for (const int64_t index : indices) numbers.push_back(captions_.at(static_cast<size_t>(index)));
  return rows_of(clips_.captions, numbers);
}

std::vector<int64_t> CaptionDataset::clips() const {
  std::vector<int64_t> clips;
  for (const int64_t caption : captions_)
    clips.push_back(clips_.clip_of[static_cast<size_t>(caption)]);
  return clips;
}

model::Tensors CaptionDataset::inputs(const std::vector<int64_t>& indices) const {
  return inputs_with_targets(indices, words_of(indices));
}

model::Tensors CaptionDataset::inputs_with_targets(
    const std::vector<int64_t>& indices, const std::vector<std::vector<int64_t>>& targets) const {
  std::vector<int64_t> clips;
  for (const int64_t index : indices)
    clips.push_back(clips_.clip_of[static_cast<size_t>(captions_.at(static_cast<size_t>(index)))]);
  at::Tensor frames = clips_.frames.rows(at::tensor(clips)).to(sample_.inputs[0].type);
  if (clips_.scale != 1) frames = frames.mul(clips_.scale);
  const at::Tensor words =
      padded(targets, {.before = special_.begin, .pad = special_.pad}, places_);
  return {frames.contiguous(), words.to(sample_.inputs[1].type).contiguous()};
}

at::Tensor CaptionDataset::targets(const std::vector<int64_t>& indices) const {
  if (!sample_.targets.needed) return {};
  return padded(words_of(indices), {.behind = special_.end, .pad = ignore_index_}, places_);
}

int64_t CaptionDataset::count_targets(const std::vector<int64_t>& indices) const {
  if (!sample_.targets.needed) return Dataset::count_targets(indices);
  int64_t count = 0;
  for (const int64_t index : indices)
    count += clips_.captions.length(captions_.at(static_cast<size_t>(index))) + 1;
  return count;
}

}  // namespace penstock::train
