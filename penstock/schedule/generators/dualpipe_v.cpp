#include "penstock/schedule/generators/dualpipe_v.h"

#include <algorithm>
#include <deque>

#include "penstock/schedule/generators/compute_lists.h"
#include "penstock/schedule/generators/zb_v.h"

namespace penstock::schedule {
namespace {

/// Writes one worker's actions of a mini-batch, each chunk's micro-batches in order, and leaves out
/// those that the mini-batch does not have.
class Writer {
 public:
  Writer(std::span<ComputeList> chunks, const std::array<LocalRange, 2>& ranges, bool overlaps)
      : chunks_(chunks),
        ends_{ranges[0].end, ranges[1].end},
        next_forward_{ranges[0].begin, ranges[1].begin},
        next_backward_{ranges[0].begin, ranges[1].begin},
        overlaps_(overlaps) {}

  /// Calls round(i) for i = 0 .. times - 1, until one writes nothing: then nor would later ones.
  template <class Round>
  void repeat(int64_t times, Round round) {
    for (int64_t i = 0; i < times; ++i) {
      const int64_t before = written_;
      round(i);
      if (written_ == before) return;
    }
  }
  void forward(size_t chunk) {
    const int64_t local = next_forward_[chunk]++;
    if (local >= ends_[chunk]) return;
    chunks_[chunk].forward(local);
    ++written_;
  }
  /// B, or I with its W for later.
  void backward(size_t chunk, bool split) {
    const int64_t local = next_backward_[chunk]++;
    if (local >= ends_[chunk]) return;
    ++written_;
    if (!split) return chunks_[chunk].backward(local);
    chunks_[chunk].backward_input(local);
    waiting_.push_back({chunk, local});
  }
  /// F of one chunk and B of the other.
  void both(size_t forward_chunk, size_t backward_chunk) {
    const bool together = overlaps_ && next_forward_[forward_chunk] < ends_[forward_chunk] &&
                          next_backward_[backward_chunk] < ends_[backward_chunk];
    forward(forward_chunk);
    if (together) chunks_[forward_chunk].run_last_with_next();
    backward(backward_chunk, false);
  }
  /// The oldest delayed W.
  void weights() {
    if (waiting_.empty()) return;
    chunks_[waiting_.front().chunk].backward_weight(waiting_.front().local);
    waiting_.pop_front();
    ++written_;
  }

 private:
  struct Waiting {
    size_t chunk;
    int64_t local;
  };

  std::span<ComputeList> chunks_;
  std::array<int64_t, 2> ends_;
  std::array<int64_t, 2> next_forward_;
  std::array<int64_t, 2> next_backward_;
  std::deque<Waiting> waiting_;
  bool overlaps_;
  int64_t written_ = 0;
};

void fill_warmup(Writer& writer, int64_t rank, int64_t after) {
  writer.repeat(2 * after, [&](int64_t) { writer.forward(0); });
  writer.repeat(rank + 1, [&](int64_t) {
    writer.forward(0);
    writer.forward(1);
  });
  writer.repeat(after, [&](int64_t) {
    writer.backward(1, true);
    writer.weights();
    writer.forward(1);
  });
}

void fill_cooldown(Writer& writer, int64_t rank, int64_t after) {
  writer.repeat(after, [&](int64_t) {
    writer.backward(1, false);
    writer.both(1, 0);
  });
  // From the middle on backwards are split; odd workers begin with the second stage, even ones with
  // the first.
  bool split = false;
  writer.repeat(rank + 1, [&](int64_t i) {
    const bool half_way = i == (rank + 1) / 2;
    if (half_way && rank % 2 == 1) split = true;
    writer.backward(1, split);
    if (half_way) split = true;
    writer.backward(0, split);
  });
  writer.repeat(after, [&](int64_t) {
    writer.weights();
    writer.backward(0, true);
  });
  writer.repeat(rank + 1 + after, [&](int64_t) { writer.weights(); });
}

}  // namespace

void fill_dualpipe(std::span<ComputeList> chunks, int64_t workers,
                   const std::array<LocalRange, 2>& ranges, bool overlaps) {
  const int64_t count = std::max({ranges[0].count(), ranges[1].count(), 2 * workers});
  const int64_t rank = chunks[0].stage().value;
  const int64_t after = workers - 1 - rank;
  Writer writer(chunks, ranges, overlaps);
  fill_warmup(writer, rank, after);
  writer.repeat(count - 2 * workers + rank + 1, [&](int64_t i) {
    if (i == 0 && after == 0) {
      // At the turn the gradient is there as soon as it is needed: nothing is gained by waiting.
      writer.forward(0);
      writer.backward(1, false);
    } else {
      writer.both(0, 1);
    }
    writer.both(1, 0);
  });
  fill_cooldown(writer, rank, after);
}

template <>
WorkerLists generate_compute<Strategy::DualPipeV>(const ScheduleShape& shape) {
  const int64_t workers = shape.num_stages() / 2;
  return make_chunked_lists(shape, 3, [&](std::span<ComputeList> chunks) {
    for_each_mini_batch(shape, chunks.front(), [&](int64_t begin, int64_t end) {
      if (end - begin < 2 * workers) return fill_zb_v(chunks, workers, begin, end);
      const LocalRange range{begin, end};
      fill_dualpipe(chunks, workers, {range, range}, false);
    });
  });
}

}  // namespace penstock::schedule
