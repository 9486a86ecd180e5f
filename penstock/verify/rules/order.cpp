// order: on every worker a micro-batch's actions follow the data (receive, forward, send,
// OFFLOAD, LOAD, recompute, receive, backward, send, and W after I); where a worker runs several
// stages of a micro-batch, its forwards run in ascending order of stages and its backwards in
// descending order; and the sync of a stage, the norm of the worker and the step of the stage come
// in this order after all B and W of their mini-batch and before any B or W of a later one. What
// runs together with the next action is an F, the next action a B or I of another micro-batch.
//
// Smallest schedule that breaks it: one worker, one micro-batch, `0B0,0F0`.
#include <vector>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

constexpr uint8_t kSeenForward = 1;
constexpr uint8_t kSeenReceivedGradients = 2;
constexpr uint8_t kSeenInputGradients = 4;  // B or I
constexpr uint8_t kSeenOffloaded = 8;

/// The order of stages on workers that hold several. Two stages on one worker exchange data without
/// a message, also along a skip connection, so all of a worker's stages count as linked.
class LocalOrder {
 public:
  LocalOrder(const Facts& facts, Report& report) : report_(report) {
    if (facts.table.has_shared_workers()) last_.resize(static_cast<size_t>(facts.micro_batches));
  }

  void visit(WorkerId worker, const Action& action) {
    if (last_.empty()) return;
    Last& last = last_[action.micro_batch.index()];
    if (last.worker != worker.value) last = {.worker = worker.value};
    if (action.op == Op::Forward) {
      if (action.stage.value < last.forward) {
        report_.add("order", worker, action,
                    "comes after the forward of stage {} on the same worker, which needs its data",
                    last.forward);
      }
      last.forward = action.stage.value;
    } else if (makes_input_gradients(action.op)) {
      if (action.stage.value > last.backward) {
        report_.add("order", worker, action,
                    "comes after the backward of stage {} on the same worker, which needs its data",
                    last.backward);
      }
      last.backward = action.stage.value;
    }
  }

 private:
  struct Last {
    int32_t worker = -1;
    int32_t forward = -1;
    int32_t backward = INT32_MAX;
  };
  Report& report_;
  std::vector<Last> last_;  // by micro-batch: its last actions on the current worker
};

/// Walks the workers' lists one after another.
class OrderWalk {
 public:
  OrderWalk(const Facts& facts, Report& report)
      : facts_(facts),
        report_(report),
        local_(facts, report),
        held_(facts),
        done_(facts.num_cells(), 0) {}

  void walk(WorkerId worker) {
    worker_ = worker;
    norms_ = 0;
    held_.move_to(worker);
    const std::vector<Action>& list = facts_.workers()[worker.index()];
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].with_next) check_pair(list[i], i + 1 < list.size() ? &list[i + 1] : nullptr);
      visit(list[i]);
    }
  }

 private:
  struct Counts {
    int64_t syncs = 0;
    int64_t steps = 0;
  };

  void check_pair(const Action& action, const Action* next) {
    if (next != nullptr && can_overlap(action, *next)) return;
    report_.add("order", worker_, action,
                "runs together with the next action: expected F before a B or I of another "
                "micro-batch, found {}",
                next != nullptr ? to_text(*next) : "the end of the list");
  }

  void visit(const Action& action) {
    switch (action.op) {
      case Op::Forward:
        done(action) |= kSeenForward;
        return local_.visit(worker_, action);
      case Op::Recompute:
        return recompute(action);
      case Op::Backward:
      case Op::BackwardInput:
        require(action, kSeenForward, true, "comes before its forward");
        done(action) |= kSeenInputGradients;
        local_.visit(worker_, action);
        if (action.op == Op::Backward) accumulate(action);
        return;
      case Op::BackwardWeight:
        require(action, kSeenInputGradients, true, "comes before its I");
        return accumulate(action);
      case Op::Offload:
        require(action, kSeenForward, true, "comes before its forward");
        require(action, kSeenInputGradients, false, "comes after the backward that needs it");
        done(action) |= kSeenOffloaded;
        return;
      case Op::Load:
        require(action, kSeenOffloaded, true, "comes before its OFFLOAD");
        return require(action, kSeenInputGradients, false,
                       "comes after the backward that needs it");
      case Op::RecvForward:
        return require(action, kSeenForward, false, "comes after the forward that needs it");
      case Op::SendForward:
        return require(action, kSeenForward, true, "comes before the forward that makes the data");
      case Op::RecvBackward:
        require(action, kSeenInputGradients, false, "comes after the backward that needs it");
        done(action) |= kSeenReceivedGradients;
        return;
      case Op::SendBackward:
        return require(action, kSeenInputGradients, true,
                       "comes before the backward that makes the data");
      case Op::SyncGradients:
        return sync(action);
      case Op::NormGradients:
        if (action.mini_batch.value != norms_)
          report_.add("order", worker_, action, "expected the norm of mini-batch {} next", norms_);
        ++norms_;
        return;
      case Op::Step:
        return step(action);
      case Op::FreeWeights:
        return;
    }
  }

  uint8_t& done(const Action& action) {
    return done_[facts_.cell(action.stage, action.micro_batch)];
  }

  void require(const Action& action, uint8_t bit, bool set, const char* message) {
    if (((done(action) & bit) != 0) != set) report_.add("order", worker_, action, "{}", message);
  }

  void recompute(const Action& action) {
    require(action, kSeenForward, true, "comes before its forward");
    require(action, kSeenInputGradients, false, "comes after the backward that needs it");
    if ((done(action) & kSeenInputGradients) == 0)
      require(action, kSeenReceivedGradients, false, "comes after a receive of its gradients");
  }

  /// B and W add to the gradients.
  void accumulate(const Action& action) {
    if (!facts_.schedule.lowered) return;
    const Counts& counts = held_[action.stage];
    const int64_t t = action.mini_batch.value;
    if (t < counts.steps || t < norms_ || t < counts.syncs) {
      report_.add("order", worker_, action, "comes after the {} of its mini-batch {}",
                  t < counts.steps ? "step"
                  : t < norms_     ? "norm"
                                   : "sync",
                  t);
    } else if (t > counts.steps) {
      report_.add("order", worker_, action,
                  "belongs to mini-batch {}, but the step of mini-batch {} has not been made", t,
                  counts.steps);
    }
  }

  void sync(const Action& action) {
    int64_t& syncs = held_[action.stage].syncs;
    const int64_t t = action.mini_batch.value;
    if (t != syncs)
      report_.add("order", worker_, action, "expected the sync of mini-batch {} next", syncs);
    if (t < norms_) report_.add("order", worker_, action, "comes after the norm of its mini-batch");
    ++syncs;
  }

  void step(const Action& action) {
    Counts& counts = held_[action.stage];
    if (action.mini_batch.value != counts.steps) {
      report_.add("order", worker_, action, "expected the step of mini-batch {} next",
                  counts.steps);
    }
    ++counts.steps;
    if (facts_.table.replicas(action.stage) > 1 && counts.syncs != counts.steps) {
      report_.add("order", worker_, action, "the sync of its mini-batch does not come before it");
    }
    if (facts_.schedule.shape.global_norm && norms_ != counts.steps) {
      report_.add("order", worker_, action, "the norm of its mini-batch does not come before it");
    }
  }

  const Facts& facts_;
  Report& report_;
  LocalOrder local_;
  WorkerId worker_{-1};
  HeldStages<Counts> held_;
  int64_t norms_ = 0;
  // by cell: a bit per finished action (cells belong to one worker each)
  std::vector<uint8_t> done_;
};

}  // namespace

void check_order(const Facts& facts, Report& report) {
  OrderWalk walk(facts, report);
  for (int32_t w = 0; w < facts.table.num_workers() && !report.full(); ++w) walk.walk(WorkerId{w});
}

}  // namespace penstock::verify
