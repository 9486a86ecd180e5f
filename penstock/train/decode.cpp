#include "penstock/train/decode.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/check.h"
#include "penstock/util/process/mutex.h"

namespace penstock::train {

namespace {

/// The samples that have not ended, with what is written so far. A micro-batch's targets are the
/// numbers of its samples.
class UnfinishedBatches : public runtime::BatchSource {
 public:
  UnfinishedBatches(const Dataset& data, const std::vector<int64_t>& open,
                    const std::vector<Tokens>& written, int64_t batch)
      : data_(data),
        open_(open),
        written_(written),
        cut_(static_cast<int64_t>(open.size()), std::min<int64_t>(batch, std::ssize(open)), 1) {}

  model::Tensors inputs(MicroBatchId b) const override {
    const std::vector<int64_t> samples = samples_of(b);
    std::vector<Tokens> so_far;
    for (const int64_t sample : samples) so_far.push_back(written_[static_cast<size_t>(sample)]);
    return data_.inputs_with_targets(samples, so_far);
  }
  at::Tensor targets(MicroBatchId b) const override { return at::tensor(samples_of(b)); }
  int64_t samples(MicroBatchId b) const override { return cut_.range(b).end - cut_.range(b).begin; }
  int64_t mini_batch_samples(MiniBatchId t) const override { return cut_.mini_batch_samples(t); }
  uint64_t seed(MicroBatchId) const override { return 0; }
  int64_t num_micro_batches() const { return cut_.num_micro_batches(); }

 private:
  std::vector<int64_t> samples_of(MicroBatchId b) const {
    const BatchCut::Range range = cut_.range(b);
    return {open_.begin() + range.begin, open_.begin() + range.end};
  }

  const Dataset& data_;
  const std::vector<int64_t>& open_;
  const std::vector<Tokens>& written_;
  BatchCut cut_;
};

/// The next tokens of samples, as workers find them.
class NextTokens {
 public:
  explicit NextTokens(int64_t place) : place_(place) {}

  /// A loss that keeps the likeliest tokens; its targets are the numbers of the samples.
  model::LossResult add(const at::Tensor& logits, const at::Tensor& samples) {
    const at::Tensor best = logits.select(1, place_).argmax(-1).to(at::kCPU).contiguous();
    const std::lock_guard lock(mutex_);
    for (int64_t i = 0; i < samples.numel(); ++i) {
      found_.push_back(samples.data_ptr<int64_t>()[i]);
      found_.push_back(best.data_ptr<int64_t>()[i]);
    }
    model::LossResult result;
    result.targets = samples.numel();
    return result;
  }

  /// Of all ranks: sample, token, sample, token, ...
  std::vector<int64_t> of_all(const runtime::Ranks& ranks) const {
    const std::vector<int64_t> own = found();
    if (ranks.world == nullptr) return own;
    const auto texts = runtime::together(ranks, [&own]() -> std::string {
      return {reinterpret_cast<const char*>(own.data()), own.size() * sizeof(int64_t)};
    });
    std::vector<int64_t> all;
    for (const std::string& text : texts) {
      const size_t first = all.size();
      all.resize(first + text.size() / sizeof(int64_t));
      std::memcpy(all.data() + first, text.data(), text.size());
    }
    return all;
  }

 private:
  std::vector<int64_t> found() const {
    const std::lock_guard lock(mutex_);
    return found_;
  }

  int64_t place_;
  mutable Mutex mutex_;
  std::vector<int64_t> found_ GUARDED_BY(mutex_);
};

}  // namespace

std::optional<std::vector<Tokens>> decode_greedily(runtime::Pipeline& pipeline,
                                                   const plan::Plan& plan, const Dataset& data,
                                                   const DecodeOptions& options) {
  std::vector<Tokens> written(static_cast<size_t>(data.size()));
  std::vector<int64_t> open(written.size());
  std::iota(open.begin(), open.end(), int64_t{0});
  for (int64_t place = 0; place < options.most_tokens && !open.empty(); ++place) {
    const UnfinishedBatches batches(data, open, written, options.batch);
    const schedule::Schedule schedule =
        evaluation_schedule(plan, pipeline.links(), batches.num_micro_batches());
    NextTokens next(place);
    runtime::RunOptions run_options = options.run_options(schedule);
    run_options.max_timeline_events = 0;
    run_options.loss = [&next](const at::Tensor& logits, const at::Tensor& samples,
                               const model::MiniBatchSize&) { return next.add(logits, samples); };
    const runtime::RunResult run = pipeline.run(schedule, batches, run_options);
    if (std::ssize(run.mini_batches) < batches.num_micro_batches()) return std::nullopt;
    const std::vector<int64_t> tokens = next.of_all(options.ranks);
    PENSTOCK_CHECK(tokens.size() == 2 * open.size(), tokens.size(), open.size());
    open.clear();
    for (size_t i = 0; i < tokens.size(); i += 2) {
      if (tokens[i + 1] == options.end) continue;
      written[static_cast<size_t>(tokens[i])].push_back(tokens[i + 1]);
      open.push_back(tokens[i]);
    }
    std::sort(open.begin(), open.end());
  }
  return written;
}

}  // namespace penstock::train
