#include "penstock/schedule/generators/dualpipe_v.h"

#include <array>
#include <deque>

#include "penstock/schedule/generators/compute_lists.h"
#include "penstock/schedule/generators/zb_v.h"

namespace penstock::schedule {
namespace {

/// Writes one worker's actions of a mini-batch, each chunk's micro-batches in order.
class Writer {
 public:
  Writer(std::span<ComputeList> chunks, int64_t begin)
      : chunks_(chunks), next_forward_{begin, begin}, next_backward_{begin, begin} {}

  void forward(size_t chunk) { chunks_[chunk].forward(next_forward_[chunk]++); }
  /// B, or I with its W for later.
  void backward(size_t chunk, bool split) {
    const int64_t local = next_backward_[chunk]++;
    if (!split) return chunks_[chunk].backward(local);
    chunks_[chunk].backward_input(local);
    waiting_.push_back({chunk, local});
  }
  /// The oldest delayed W.
  void weights() {
    chunks_[waiting_.front().chunk].backward_weight(waiting_.front().local);
    waiting_.pop_front();
  }

 private:
  struct Waiting {
    size_t chunk;
    int64_t local;
  };

  std::span<ComputeList> chunks_;
  std::array<int64_t, 2> next_forward_;
  std::array<int64_t, 2> next_backward_;
  std::deque<Waiting> waiting_;
};

void fill_warmup(Writer& writer, int64_t rank, int64_t after) {
  for (int64_t i = 0; i < 2 * after; ++i) writer.forward(0);
  for (int64_t i = 0; i <= rank; ++i) {
    writer.forward(0);
    writer.forward(1);
  }
  for (int64_t i = 0; i < after; ++i) {
    writer.backward(1, true);
    writer.weights();
    writer.forward(1);
  }
}

void fill_cooldown(Writer& writer, int64_t rank, int64_t after) {
  for (int64_t i = 0; i < after; ++i) {
    writer.backward(1, false);
    writer.forward(1);
    writer.backward(0, false);
  }
  // From the middle on backwards are split; odd workers begin with the second stage, even ones with
  // the first.
  bool split = false;
  for (int64_t i = 0; i <= rank; ++i) {
    const bool half_way = i == (rank + 1) / 2;
    if (half_way && rank % 2 == 1) split = true;
    writer.backward(1, split);
    if (half_way) split = true;
    writer.backward(0, split);
  }
  for (int64_t i = 0; i < after; ++i) {
    writer.weights();
    writer.backward(0, true);
  }
  for (int64_t i = 0; i <= rank; ++i) writer.weights();
}

void fill_mini_batch(std::span<ComputeList> chunks, int64_t workers, int64_t begin, int64_t end) {
  const int64_t count = end - begin;
  if (count < 2 * workers) return fill_zb_v(chunks, workers, begin, end);
  const int64_t rank = chunks[0].stage().value;
  const int64_t after = workers - 1 - rank;
  Writer writer(chunks, begin);
  fill_warmup(writer, rank, after);
  for (int64_t i = 0; i < count - 2 * workers + rank + 1; ++i) {
    writer.forward(0);
    writer.backward(1, false);
    writer.forward(1);
    writer.backward(0, false);
  }
  fill_cooldown(writer, rank, after);
}

}  // namespace

template <>
WorkerLists generate_compute<Strategy::DualPipeV>(const ScheduleShape& shape) {
  const int64_t workers = shape.num_stages() / 2;
  return make_chunked_lists(shape, 3, [&](std::span<ComputeList> chunks) {
    for_each_mini_batch(shape, chunks.front(), [&](int64_t begin, int64_t end) {
      fill_mini_batch(chunks, workers, begin, end);
    });
  });
}

}  // namespace penstock::schedule
