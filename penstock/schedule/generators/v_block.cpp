#include "penstock/schedule/generators/v_block.h"

#include <array>

#include "penstock/schedule/generators/compute_lists.h"
#include "penstock/util/check.h"

namespace penstock::schedule {
namespace {

constexpr int64_t kSlots = 6;  // F, I and W of two stages

/// A worker's passes that wait for other workers, in the order in which a micro-batch makes them.
enum Pass : size_t { kDown, kUp, kBackDown, kBackUp, kNumPasses };
constexpr std::array<size_t, kNumPasses> kChunk = {0, 1, 1, 0};
constexpr std::array<Op, kNumPasses> kOp = {Op::Forward, Op::Forward, Op::BackwardInput,
                                            Op::BackwardInput};

/// The slots in which micro-batch 0 makes its passes on a worker.
std::array<int64_t, kNumPasses> slots_of(const VBlock& block, int64_t rank, int64_t workers) {
  const int64_t last = workers - 1;
  const int64_t bottom = block.down * last + 1 + block.bottom_rest;
  const int64_t top = bottom + block.up * last + 1 + block.top_rest;
  const int64_t bottom_again = top + block.down * last + 1 + block.last_rest;
  return {block.down * rank, bottom + block.up * (last - rank), top + block.down * rank,
          bottom_again + block.up * (last - rank)};
}

/// One mini-batch of one copy of the pipeline, in time slots. O(actions): only workers with
/// something to do are looked at.
class BlockOrder {
 public:
  using Lists = std::array<ComputeList, 2>;

  BlockOrder(std::vector<Lists>& lists, const VBlock& block, int64_t begin, int64_t end)
      : lists_(lists), block_(block), begin_(begin), count_(end - begin), workers_(lists.size()) {
    for (size_t w = 0; w < workers_.size(); ++w) {
      workers_[w].slots =
          slots_of(block, static_cast<int64_t>(w), static_cast<int64_t>(workers_.size()));
    }
  }

  void run() {
    workers_.front().ready[kDown] = count_;
    int64_t left = kSlots * count_ * static_cast<int64_t>(workers_.size());
    std::vector<Turn> turns;
    wake(0);
    while (left > 0) {
      PENSTOCK_CHECK(!awake_.empty(), count_, workers_.size(), block_.most_kept);
      turns.clear();
      for (const size_t w : awake_) {
        workers_[w].awake = false;
        const Choice choice = choose(workers_[w]);
        // The work that it was woken for may be done already.
        if (choice != Choice::Nothing) turns.push_back({w, choice});
      }
      awake_.clear();
      for (const Turn& turn : turns) apply(turn.worker, turn.choice);
      left -= static_cast<int64_t>(turns.size());
    }
  }

 private:
  struct Worker {
    std::array<int64_t, kNumPasses> slots{};
    std::array<int64_t, kNumPasses> done{};   ///< micro-batches
    std::array<int64_t, kNumPasses> ready{};  ///< that have what the pass needs, done or not
    std::vector<uint8_t> split;               ///< the chunk of every I, in their order
    size_t weights = 0;                       ///< W made, in the same order
    std::array<int64_t, 2> weights_done{};    ///< of each chunk
    int64_t kept = 0;
    bool awake = false;
  };
  enum class Choice : uint8_t { Nothing, Pass, Weights };
  struct Turn {
    size_t worker;
    Choice choice;
  };

  /// The pass that comes next in the block; kNumPasses after the last.
  size_t next_pass(const Worker& worker) const {
    size_t next = kNumPasses;
    for (size_t pass = 0; pass < kNumPasses; ++pass) {
      if (worker.done[pass] == count_) continue;
      if (next == kNumPasses || slot_of(worker, pass) < slot_of(worker, next)) next = pass;
    }
    return next;
  }
  static int64_t slot_of(const Worker& worker, size_t pass) {
    return worker.slots[pass] + kSlots * worker.done[pass];
  }

  Choice choose(const Worker& worker) const {
    const size_t next = next_pass(worker);
    const bool is_full =
        next < kNumPasses && kOp[next] == Op::Forward && worker.kept >= block_.most_kept;
    if (next < kNumPasses && !is_full && worker.done[next] < worker.ready[next])
      return Choice::Pass;
    return worker.weights == worker.split.size() ? Choice::Nothing : Choice::Weights;
  }

  void wake(size_t w) {
    if (workers_[w].awake || choose(workers_[w]) == Choice::Nothing) return;
    workers_[w].awake = true;
    awake_.push_back(w);
  }

  void apply(size_t w, Choice choice) {
    Worker& worker = workers_[w];
    if (choice == Choice::Weights) {
      const size_t chunk = worker.split[worker.weights++];
      lists_[w][chunk].backward_weight(begin_ + worker.weights_done[chunk]++);
      --worker.kept;
    } else {
      const size_t pass = next_pass(worker);
      lists_[w][kChunk[pass]].add(kOp[pass], begin_ + worker.done[pass]++);
      if (kOp[pass] == Op::Forward) {
        ++worker.kept;
      } else {
        worker.split.push_back(static_cast<uint8_t>(kChunk[pass]));
      }
      hand_on(w, pass);
    }
    wake(w);
  }

  /// To the worker that runs the micro-batch's next pass.
  void hand_on(size_t w, size_t pass) {
    const bool down = pass == kDown || pass == kBackDown;
    const bool turns = down ? w + 1 == workers_.size() : w == 0;
    if (turns && pass == kBackUp) return;
    const size_t target = turns ? w : down ? w + 1 : w - 1;
    ++workers_[target].ready[turns ? pass + 1 : pass];
    wake(target);
  }

  std::vector<Lists>& lists_;
  const VBlock& block_;
  int64_t begin_;
  int64_t count_;
  std::vector<Worker> workers_;
  std::vector<size_t> awake_;
};

}  // namespace

WorkerLists repeat_block(const ScheduleShape& shape, const VBlock& block) {
  const WorkerTable table(shape);
  WorkerLists workers(static_cast<size_t>(table.num_workers()));
  const int num_stages = shape.num_stages();
  for (int copy = 0; copy < shape.replicas.front(); ++copy) {
    std::vector<BlockOrder::Lists> lists;
    lists.reserve(static_cast<size_t>(num_stages / 2));
    for (int s = 0; s < num_stages / 2; ++s) {
      auto& actions = workers[table.worker_of_replica(StageId{s}, copy).index()];
      lists.push_back({ComputeList(shape, StageId{s}, copy, actions),
                       ComputeList(shape, StageId{num_stages - 1 - s}, copy, actions)});
      actions.reserve(static_cast<size_t>(kSlots) *
                      static_cast<size_t>(lists.back()[0].count_below(shape.micro_batches)));
    }
    for_each_mini_batch(shape, lists.front()[0], [&](int64_t begin, int64_t end) {
      BlockOrder(lists, block, begin, end).run();
    });
  }
  return workers;
}

}  // namespace penstock::schedule
