// Pairs of sentences as tokens, as translation learns them: the model reads the source and the
// target up to each place, and its targets are the tokens of the target that come next.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"
#include "penstock/train/data/left_out.h"
#include "penstock/train/data/sentences.h"

namespace penstock::train {

class PairDataset final : public Dataset {
 public:
  /// `source` and `target` have as many sentences. Of the model's inputs, the first of tokens is
  /// the source, with `special.end` behind it; the second the target, with `special.begin` before
  /// it; "labels" the targets; those with "mask" in their name are one where tokens are, of the
  /// input that stands before them; all are padded to the input's length. The targets are padded
  /// with `ignore_index`. filled() has multiples of 4 places. Pairs that do not fit are left out.
  /// Throws ConfigError: other inputs, a token that is no row of the model's table, no pair that
  /// fits.
  PairDataset(std::string name, SampleSpec sample, Sentences source, Sentences target,
              SpecialTokens special, int64_t ignore_index);

  std::string name() const override { return name_; }
  int64_t size() const override { return static_cast<int64_t>(fitting_.size()); }
  const SampleSpec& sample() const override { return sample_; }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override;
  model::Tensors inputs_with_targets(
      const std::vector<int64_t>& indices,
      const std::vector<std::vector<int64_t>>& targets) const override;
  std::vector<model::Shape> filled(const std::vector<int64_t>& indices) const override;
  std::vector<model::Shape> filled_with(const std::vector<int64_t>& indices,
                                        int64_t target_places) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;
  int64_t count_targets(const std::vector<int64_t>& indices) const override;
  LeftOut left_out() const override { return left_out_; }
  /// The numbers of the samples' sentences, ascending.
  const std::vector<int64_t>& sentences() const { return fitting_; }

 private:
  enum class Role : uint8_t { Source, Target, Labels, SourceMask, TargetMask };

  /// The longest of these samples, with its end.
  int64_t longest(const Sentences& sentences, const std::vector<int64_t>& indices) const;
  void find_roles();
  void find_fitting();
  using Rows = TokenRows;
  Rows sentences_of(const Sentences& sentences, const std::vector<int64_t>& indices) const;
  model::Tensors inputs_of(const Rows& source, const Rows& target) const;
  at::Tensor values(Role role, const Rows& source, const Rows& target) const;

  std::string name_;
  SampleSpec sample_;
  Sentences source_;
  Sentences target_;
  SpecialTokens special_;
  int64_t ignore_index_;
  std::vector<Role> roles_;  ///< of the inputs
  int64_t source_length_ = 0;
  int64_t target_length_ = 0;
  std::vector<int64_t> fitting_;  ///< the sentences of the samples
  LeftOut left_out_;
};

}  // namespace penstock::train
