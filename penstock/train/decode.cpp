#include "penstock/train/decode.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/data/lengths.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/check.h"
#include "penstock/util/process/mutex.h"

namespace penstock::train {

namespace {

/// A beginning that is followed: the place of its sample, and which of the sample's beam it is.
struct Row {
  int64_t sample = 0;
  size_t place = 0;
};

/// The beginnings that have not ended. A micro-batch's targets are the numbers of its rows.
class OpenRows : public runtime::BatchSource {
 public:
  /// `places`: of the target; 0: the model's own, also of the source.
  OpenRows(const Dataset& data, const std::vector<Beam>& beams, int64_t batch, int64_t places)
      : data_(data),
        beams_(beams),
        rows_(rows_of(beams)),
        cut_(cut_of(std::ssize(rows_), batch)),
        places_(places) {}

  const std::vector<Row>& rows() const { return rows_; }
  int64_t num_micro_batches() const { return cut_.num_micro_batches(); }
  int64_t first_row(MicroBatchId b) const { return cut_.range(b).begin; }

  model::Tensors inputs(MicroBatchId b) const override {
    const BatchCut::Range range = cut_.range(b);
    std::vector<int64_t> samples;
    std::vector<Tokens> so_far;
    for (int64_t r = range.begin; r < range.end; ++r) {
      const Row& row = rows_[static_cast<size_t>(r)];
      samples.push_back(row.sample);
      so_far.push_back(beams_[static_cast<size_t>(row.sample)].open()[row.place].tokens);
    }
    model::Tensors inputs = data_.inputs_with_targets(samples, so_far);
    if (places_ == 0) return inputs;
    const std::vector<model::Shape> sizes = data_.filled_with(samples, places_);
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = cut_to(inputs[i], sizes[i]);
    return inputs;
  }
  std::vector<model::Shape> input_shapes(MicroBatchId b) const override {
    if (places_ == 0) return {};
    const BatchCut::Range range = cut_.range(b);
    std::vector<int64_t> samples;
    for (int64_t r = range.begin; r < range.end; ++r)
      samples.push_back(rows_[static_cast<size_t>(r)].sample);
    std::vector<model::Shape> sizes = data_.filled_with(samples, places_);
    sizes.pop_back();
    return sizes;
  }
  at::Tensor targets(MicroBatchId b) const override {
    const BatchCut::Range range = cut_.range(b);
    return at::arange(range.begin, range.end, at::kLong);
  }
  int64_t samples(MicroBatchId b) const override { return cut_.range(b).end - cut_.range(b).begin; }
  int64_t mini_batch_samples(MiniBatchId t) const override { return cut_.mini_batch_samples(t); }
  uint64_t seed(MicroBatchId) const override { return 0; }

 private:
  static std::vector<Row> rows_of(const std::vector<Beam>& beams) {
    std::vector<Row> rows;
    for (size_t sample = 0; sample < beams.size(); ++sample) {
      for (size_t place = 0; place < beams[sample].open().size(); ++place)
        rows.push_back({static_cast<int64_t>(sample), place});
    }
    return rows;
  }
  static BatchCut cut_of(int64_t rows, int64_t batch) {
    return {rows, std::clamp<int64_t>(rows, 1, batch), 1};
  }

  const Dataset& data_;
  const std::vector<Beam>& beams_;
  std::vector<Row> rows_;
  BatchCut cut_;
  int64_t places_;
};

/// What workers find of rows: numbers without pointers.
template <class Found>
class FoundOfRows {
 public:
  void add(const std::vector<Found>& some) {
    const MutexLock lock(mutex_);
    found_.insert(found_.end(), some.begin(), some.end());
  }

  /// Of all ranks. Collective.
  std::vector<Found> of_all(const runtime::Ranks& ranks) const {
    const std::vector<Found> own = found();
    if (ranks.world == nullptr) return own;
    std::vector<Found> all;
    for (const std::string& text : runtime::together(ranks, [&own] {
           return std::string(reinterpret_cast<const char*>(own.data()),
                              own.size() * sizeof(Found));
         })) {
      for (size_t i = 0; i + sizeof(Found) <= text.size(); i += sizeof(Found))
        std::memcpy(&all.emplace_back(), text.data() + i, sizeof(Found));
    }
    return all;
  }

 private:
  std::vector<Found> found() const {
    const MutexLock lock(mutex_);
    return found_;
  }

  mutable Mutex mutex_;
  std::vector<Found> found_ GUARDED_BY(mutex_);
};

/// The likeliest next tokens of rows.
class NextTokens {
 public:
  NextTokens(int64_t place, int64_t width) : place_(place), width_(width) {}

  /// A loss that keeps the likeliest tokens; its targets are the numbers of the rows.
  model::LossResult add(const at::Tensor& logits, const at::Tensor& rows) {
    const at::Tensor here = at::log_softmax(logits.select(1, place_), -1, at::kFloat);
    const auto [likelihoods, tokens] = here.topk(std::min(width_, here.size(-1)), -1);
    const at::Tensor likelihood = likelihoods.to(at::kCPU, at::kDouble).contiguous();
    const at::Tensor token = tokens.to(at::kCPU).contiguous();
    std::vector<Found> found;
    for (int64_t r = 0; r < rows.numel(); ++r) {
      for (int64_t k = 0; k < token.size(1); ++k) {
        found.push_back({rows.data_ptr<int64_t>()[r],
                         token.data_ptr<int64_t>()[r * token.size(1) + k],
                         likelihood.data_ptr<double>()[r * token.size(1) + k]});
      }
    }
    found_.add(found);
    model::LossResult result;
    result.targets = rows.numel();
    return result;
  }

  /// Of all ranks, by row.
  std::vector<std::vector<Continuation>> of_all(const runtime::Ranks& ranks, size_t rows) const {
    std::vector<std::vector<Continuation>> all(rows);
    for (const Found& one : found_.of_all(ranks))
      all.at(static_cast<size_t>(one.row)).push_back({one.token, one.likelihood});
    return all;
  }

 private:
  struct Found {
    int64_t row = 0;
    int64_t token = 0;
    double likelihood = 0;
  };

  int64_t place_;
  int64_t width_;
  FoundOfRows<Found> found_;
};

/// What of their sources rows have covered, with the attention of their next tokens.
class Coverages {
 public:
  Coverages(Attending attending, int64_t place) : attending_(attending), place_(place) {}

  /// RunOptions::on_layer; `first`: the micro-batch's first row.
  void add(int64_t first, LayerId layer, model::TensorSpan weights, model::TensorSpan inputs) {
    if (layer != attending_.layer) return;
    const auto in_float32 = [](model::TensorSpan tensors) {
      model::Tensors all;
      for (const at::Tensor& one : tensors)
        all.push_back(one.is_floating_point() ? one.to(at::kFloat) : one);
      return all;
    };
    const std::vector<double> of_rows =
        coverage(attending_.attends->shares(in_float32(weights), in_float32(inputs)), place_);
    std::vector<Found> found;
    for (const double one : of_rows) found.push_back({first++, one});
    found_.add(found);
  }

  /// Of all ranks, by row.
  std::vector<double> of_all(const runtime::Ranks& ranks, size_t rows) const {
    std::vector<double> all(rows);
    for (const Found& one : found_.of_all(ranks)) all.at(static_cast<size_t>(one.row)) = one.value;
    return all;
  }

 private:
  struct Found {
    int64_t row = 0;
    double value = 0;
  };

  Attending attending_;
  int64_t place_;
  FoundOfRows<Found> found_;
};

/// What follows the rows, and what they have covered; no coverages: there is no penalty for it.
struct NextOfRows {
  std::vector<std::vector<Continuation>> tokens;
  std::vector<double> coverages;
};

/// One pass over all rows, whose next tokens come at `place`. Nothing: the run was stopped.
std::optional<NextOfRows> next_of(runtime::Pipeline& pipeline, const plan::Plan& plan,
                                  const OpenRows& batches, int64_t place,
                                  const DecodeOptions& options) {
  const schedule::Schedule schedule =
      evaluation_schedule(plan, pipeline.links(), batches.num_micro_batches());
  NextTokens next(place, options.beam);
  std::optional<Coverages> covered;
  runtime::RunOptions run_options = options.run_options(schedule);
  run_options.max_timeline_events = 0;
  run_options.loss = [&next](const at::Tensor& logits, const at::Tensor& targets,
                             const model::MiniBatchSize&) { return next.add(logits, targets); };
  if (options.penalties.coverage != 0) {
    covered.emplace(options.attending.value(), place);
    run_options.on_layer = [&](MicroBatchId b, LayerId layer, model::TensorSpan weights,
                               model::TensorSpan inputs) {
      covered->add(batches.first_row(b), layer, weights, inputs);
    };
  }
  const runtime::RunResult run = pipeline.run(schedule, batches, run_options);
  if (std::ssize(run.mini_batches) < batches.num_micro_batches()) return std::nullopt;
  const size_t rows = batches.rows().size();
  NextOfRows found{.tokens = next.of_all(options.ranks, rows), .coverages = {}};
  if (covered) found.coverages = covered->of_all(options.ranks, rows);
  return found;
}

/// The part of `all` that belongs to rows [first, last); empty where there is none.
template <class One>
std::vector<One> part_of(const std::vector<One>& all, size_t first, size_t last) {
  if (all.empty()) return {};
  return {all.begin() + static_cast<std::ptrdiff_t>(first),
          all.begin() + static_cast<std::ptrdiff_t>(last)};
}

}  // namespace

std::optional<std::vector<Tokens>> decode(runtime::Pipeline& pipeline, const plan::Plan& plan,
                                          const Dataset& data, const DecodeOptions& options) {
  PENSTOCK_CHECK(options.penalties.coverage == 0 || options.attending);
  std::vector<Beam> beams(static_cast<size_t>(data.size()), Beam(options.beam, options.penalties));
  for (int64_t place = 0; place < options.most_tokens; ++place) {
    const OpenRows batches(data, beams, options.batch, options.shortens ? place + 1 : 0);
    const std::vector<Row>& rows = batches.rows();
    if (rows.empty()) break;
    const std::optional<NextOfRows> next = next_of(pipeline, plan, batches, place, options);
    if (!next) return std::nullopt;
    for (size_t r = 0; r < rows.size();) {
      const size_t first = r;
      while (r < rows.size() && rows[r].sample == rows[first].sample) ++r;
      beams[static_cast<size_t>(rows[first].sample)].follow(
          part_of(next->tokens, first, r), part_of(next->coverages, first, r), options.end);
    }
  }
  std::vector<Tokens> written;
  for (const Beam& beam : beams) written.push_back(beam.best());
  return written;
}

}  // namespace penstock::train
