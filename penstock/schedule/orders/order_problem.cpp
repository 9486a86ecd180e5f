#include "penstock/schedule/orders/order_problem.h"

namespace penstock::schedule {

Order order_of(const std::vector<std::vector<Action>>& lists) {
  Order order;
  for (const std::vector<Action>& list : lists) {
    std::vector<OrderStep>& steps = order.emplace_back();
    for (const Action& action : list) {
      const int32_t stage = action.stage.value;
      const auto b = static_cast<int32_t>(action.micro_batch.value);
      if (action.op == Op::Backward) {
        steps.push_back({Op::BackwardInput, stage, b});
        steps.push_back({Op::BackwardWeight, stage, b});
      } else {
        steps.push_back({action.op, stage, b});
      }
    }
  }
  return order;
}

}  // namespace penstock::schedule
