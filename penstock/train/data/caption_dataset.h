// Clips with captions: the model reads a clip's frames and the caption up to each place, and its
// targets are the words that come next.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"
#include "penstock/train/data/left_out.h"
#include "penstock/train/data/sentences.h"
#include "penstock/train/data/stored_array.h"

namespace penstock::train {

/// Clips and their captions; caption i is of clip `clip_of[i]`.
struct CaptionedClips {
  StoredArray frames;  ///< [clips, frames, numbers]
  double scale = 1;    ///< what the numbers are multiplied with: 1/255 of bytes
  Sentences captions;
  std::vector<int64_t> clip_of;
};

class CaptionDataset final : public Dataset {
 public:
  /// A sample is a caption with its clip; of a test (`one_of_each`) only the first caption of each
  /// clip is one. Of the model's inputs the first is the frames, [frames, numbers] of float32, the
  /// second the words with `special.begin` before them. Captions that do not fit are left out.
  /// Throws ConfigError: other inputs, frames of another shape, a token that is no row of the
  /// model's table, a clip that does not exist, no caption that fits.
  CaptionDataset(std::string name, SampleSpec sample, CaptionedClips clips, SpecialTokens special,
                 int64_t ignore_index, bool one_of_each);

  std::string name() const override { return name_; }
  int64_t size() const override { return static_cast<int64_t>(captions_.size()); }
  const SampleSpec& sample() const override { return sample_; }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override;
  model::Tensors inputs_with_targets(
      const std::vector<int64_t>& indices,
      const std::vector<std::vector<int64_t>>& targets) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;
  int64_t count_targets(const std::vector<int64_t>& indices) const override;
  LeftOut left_out() const override { return left_out_; }
  /// By sample: its clip.
  std::vector<int64_t> clips() const;

 private:
  void check_inputs() const;
  void check_clips() const;
  void find_captions(bool one_of_each);
  TokenRows words_of(const std::vector<int64_t>& indices) const;

  std::string name_;
  SampleSpec sample_;
  CaptionedClips clips_;
  SpecialTokens special_;
  int64_t ignore_index_;
  int64_t places_ = 0;             ///< of words
  std::vector<int64_t> captions_;  ///< of the samples
  LeftOut left_out_;
};

}  // namespace penstock::train
