// order: on every worker a micro-batch's actions follow the data (receive, forward, send, receive, backward, send), and the sync and the
// step of a mini-batch stand in turn after all its backwards and before any backward of a later one.
//
// Smallest schedule that breaks it: one worker, one micro-batch, `0B0,0F0`.
#include <vector>

#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

constexpr uint8_t kForward = 1;
constexpr uint8_t kBackward = 2;

/// Walks one worker's list; `done` holds a bit per finished compute action, by cell (cells belong to one worker each).
class OrderWalk {
 public:
  OrderWalk(const Facts& facts, WorkerId worker, std::vector<uint8_t>& done, Report& report)
      : facts_(facts), worker_(worker), done_(done), report_(report) {}

  void visit(const Action& action) {
    switch (action.op) {
      case Op::Forward:
        done(action) |= kForward;
        break;
      case Op::Backward:
        backward(action);
        break;
      case Op::RecvForward:
        require(action, kForward, false, "stands after the forward that needs it");
        break;
      case Op::SendForward:
        require(action, kForward, true, "stands before the forward that makes the data");
        break;
      case Op::RecvBackward:
        require(action, kBackward, false, "stands after the backward that needs it");
        break;
      case Op::SendBackward:
        require(action, kBackward, true, "stands before the backward that makes the data");
        break;
      case Op::SyncGradients:
        if (action.mini_batch.value != syncs_) report_.add("order", worker_, action, "expected the sync of mini-batch {} next", syncs_);
        ++syncs_;
        break;
      case Op::Step:
        step(action);
        break;
      case Op::FreeWeights:
        break;
    }
  }

 private:
  uint8_t& done(const Action& action) { return done_[facts_.cell(action.stage, action.micro_batch)]; }

  void require(const Action& action, uint8_t bit, bool set, const char* message) {
    if (((done(action) & bit) != 0) != set) report_.add("order", worker_, action, "{}", message);
  }

  void backward(const Action& action) {
    require(action, kForward, true, "stands before its forward");
    done(action) |= kBackward;
    if (!facts_.schedule.lowered) return;
    const int64_t t = action.mini_batch.value;
    if (t < syncs_ || t < steps_) {
      report_.add("order", worker_, action, "stands after the {} of its mini-batch {}", t < steps_ ? "step" : "sync", t);
    } else if (t > steps_) {
      report_.add("order", worker_, action, "belongs to mini-batch {}, but the step of mini-batch {} has not been made", t, steps_);
    }
  }

  void step(const Action& action) {
    if (action.mini_batch.value != steps_) report_.add("order", worker_, action, "expected the step of mini-batch {} next", steps_);
    const bool synced = facts_.table.replicas(action.stage) > 1;
    if (synced && syncs_ != steps_ + 1) report_.add("order", worker_, action, "the sync of its mini-batch does not stand before it");
    ++steps_;
  }

  const Facts& facts_;
  WorkerId worker_;
  std::vector<uint8_t>& done_;
  Report& report_;
  int64_t steps_ = 0;
  int64_t syncs_ = 0;
};

}  // namespace

void check_order(const Facts& facts, Report& report) {
  std::vector<uint8_t> done(facts.num_cells(), 0);
  for (size_t w = 0; w < facts.workers().size() && !report.full(); ++w) {
    OrderWalk walk(facts, WorkerId{static_cast<int32_t>(w)}, done, report);
    for (const Action& action : facts.workers()[w]) walk.visit(action);
  }
}

}  // namespace penstock::verify
