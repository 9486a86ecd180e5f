#include "penstock/train/data/caption_dataset.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

using Words = std::vector<std::vector<int64_t>>;

/// [rows, places]: the rows' words, with `pad` behind them.
at::Tensor word_rows(const Words& rows, int64_t places, int64_t pad) {
  at::Tensor result = at::full({std::ssize(rows), places}, pad, at::kLong);
  int64_t* place = result.data_ptr<int64_t>();
  for (const std::vector<int64_t>& row : rows) {
    std::copy_n(row.begin(), std::min<int64_t>(std::ssize(row), places), place);
    place += places;
  }
  return result;
}

/// Captions' words must be rows of the model's table.
void check_words(const Sentences& captions, const SpecialTokens& special, int64_t rows) {
  int64_t highest = std::max({special.pad, special.begin, special.end});
  captions.tokens.each_block([&](int64_t, const at::Tensor& block) {
    if (block.numel() > 0) highest = std::max(highest, block.max().item<int64_t>());
  });
  if (rows > 0 && highest >= rows)
    throw ConfigError(fmt::format("the word {} does not exist: the model knows those from 0 to {}",
                                  highest, rows - 1));
}

}  // namespace

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
  check_words(clips_.captions, special_, sample_.inputs[1].values);
  if (sample_.targets.needed) check_words(clips_.captions, special_, sample_.targets.classes);
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

Words CaptionDataset::words_of(const std::vector<int64_t>& indices) const {
  Words words;
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < size(), index, size());
    const int64_t caption = captions_[static_cast<size_t>(index)];
    const int64_t length = clips_.captions.length(caption);
    words.emplace_back(static_cast<size_t>(length));
    if (length == 0) continue;
    const at::Tensor tokens =
        clips_.captions.tokens.block(clips_.captions.offsets[static_cast<size_t>(caption)], length)
            .to(at::kLong)
            .contiguous();
    std::copy_n(tokens.data_ptr<int64_t>(), length, words.back().begin());
  }
  return words;
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
  Words said = targets;
  for (std::vector<int64_t>& words : said) words.insert(words.begin(), special_.begin);
  const at::Tensor words = word_rows(said, places_, special_.pad);
  return {frames.contiguous(), words.to(sample_.inputs[1].type).contiguous()};
}

at::Tensor CaptionDataset::targets(const std::vector<int64_t>& indices) const {
  if (!sample_.targets.needed) return {};
  Words next = words_of(indices);
  for (std::vector<int64_t>& words : next) words.push_back(special_.end);
  return word_rows(next, places_, ignore_index_);
}

int64_t CaptionDataset::count_targets(const std::vector<int64_t>& indices) const {
  if (!sample_.targets.needed) return Dataset::count_targets(indices);
  int64_t count = 0;
  for (const int64_t index : indices)
    count += clips_.captions.length(captions_.at(static_cast<size_t>(index))) + 1;
  return count;
}

}  // namespace penstock::train
