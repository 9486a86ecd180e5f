#include "penstock/schedule/generators/interleaved.h"

#include <deque>
#include <optional>
#include <utility>

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {
namespace {

/// Goes through a mini-batch's micro-batches group by group; within a group once per chunk.
class Turn {
 public:
  Turn(int64_t begin, int64_t group, int64_t chunks)
      : group_begin_(begin), group_(group), chunks_(chunks) {}

  int64_t chunk() const { return chunk_; }
  int64_t local() const { return group_begin_ + offset_; }
  void advance() {
    if (++offset_ < group_) return;
    offset_ = 0;
    if (++chunk_ < chunks_) return;
    chunk_ = 0;
    group_begin_ += group_;
  }

 private:
  int64_t group_begin_;
  int64_t group_;
  int64_t chunks_;
  int64_t chunk_ = 0;
  int64_t offset_ = 0;
};

/// Writes backwards: whole, or split with each W `delay` of the worker's backwards later.
class Backwards {
 public:
  Backwards(std::span<ComputeList> chunks, std::optional<int64_t> delay)
      : chunks_(chunks), delay_(delay) {}

  void add(size_t chunk, int64_t local) {
    if (!delay_) return chunks_[chunk].backward(local);
    chunks_[chunk].backward_input(local);
    waiting_.emplace_back(chunk, local);
    if (static_cast<int64_t>(waiting_.size()) > *delay_) weight();
  }
  void finish() {
    while (!waiting_.empty()) weight();
  }

 private:
  void weight() {
    const auto [chunk, local] = waiting_.front();
    chunks_[chunk].backward_weight(local);
    waiting_.pop_front();
  }

  std::span<ComputeList> chunks_;
  std::optional<int64_t> delay_;
  std::deque<std::pair<size_t, int64_t>> waiting_;
};

void fill_interleaved(std::span<ComputeList> chunks, int64_t workers, int64_t begin, int64_t end,
                      bool split) {
  const auto num_chunks = static_cast<int64_t>(chunks.size());
  const int64_t rank = chunks.front().stage().value;
  const int64_t count = end - begin;
  // Up to 2p - 1 micro-batches form one group. The last of several groups may lack some; their
  // places stay empty.
  const int64_t group = count < 2 * workers ? count : workers;
  const int64_t total = ceil_div(count, group) * group * num_chunks;
  // Each later worker adds two forwards: its own forward comes later and its backward earlier by
  // one pair. With one chunk this is 1F1B.
  const int64_t warmup =
      (num_chunks == 1 ? 1 : 2) * (workers - 1 - rank) + (num_chunks - 1) * group;
  Turn forward(begin, group, num_chunks);
  Turn backward = forward;
  Backwards backwards(chunks, split ? std::optional(rank) : std::nullopt);
  int64_t forwards = 0;
  const auto next_forward = [&]() {
    if (forwards++ >= total) return;
    if (forward.local() < end)
      chunks[static_cast<size_t>(forward.chunk())].forward(forward.local());
    forward.advance();
  };
  while (forwards < std::min(warmup, total)) next_forward();
  for (int64_t i = 0; i < total; ++i) {
    next_forward();
    if (backward.local() < end)
      backwards.add(static_cast<size_t>(num_chunks - 1 - backward.chunk()), backward.local());
    backward.advance();
  }
  backwards.finish();
}

}  // namespace

WorkerLists interleaved_lists(const ScheduleShape& shape, bool split) {
  return make_chunked_lists(shape, split ? 3 : 2, [&](std::span<ComputeList> chunks) {
    const int64_t workers = shape.num_stages() / static_cast<int64_t>(chunks.size());
    for_each_mini_batch(shape, chunks.front(), [&](int64_t begin, int64_t end) {
      fill_interleaved(chunks, workers, begin, end, split);
    });
  });
}

template <>
WorkerLists generate_compute<Strategy::Interleaved>(const ScheduleShape& shape) {
  return interleaved_lists(shape, false);
}

}  // namespace penstock::schedule
