// Uses the installed core as a stranger would: generates a schedule, proves it sound and predicts
// its time.
#include <penstock/penstock.h>

#include <iostream>

int main() {
  using namespace penstock;
  const auto kind = plan::Strategy::OneFOneB;
  const schedule::ScheduleShape shape{.replicas = {1, 1},
                                      .micro_batches = 8,
                                      .accumulate = 1,
                                      .policy = plan::default_policy(kind)};
  const schedule::Schedule compute = schedule::generate(kind, shape);
  const schedule::Schedule lowered = schedule::lower(compute, schedule::chain_links(2));
  const size_t violations = verify::verify(lowered).size();

  simulate::Costs costs;
  costs.stages.assign(2, {.forward_ns = 100, .backward_ns = 200});
  const simulate::Result result = simulate::simulate(lowered, costs);
  std::cout << "violations " << violations << " makespan_ns " << result.makespan_ns << '\n';
  // Eight micro-batches of 300 ns, and one forward and one backward to fill and drain the pipeline.
  return violations == 0 && result.makespan_ns == 8 * 300 + 300 ? 0 : 1;
}
