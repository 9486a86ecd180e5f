// Uses the installed training part as a stranger would: plans a tiny model for two workers and
// trains it for two steps.
#include <penstock/torch.h>

#include <cmath>
#include <iostream>

int main() {
  using namespace penstock;
  const model::Model network =
      model::make_model({.name = "mlp", .input_shape = {1, 8, 8}, .width = 16, .depth = 2});
  const profile::Profile profile = model::measure_profile(
      network, {.batch_size = 8, .warmup = 1, .samples = 1, .concurrency = 1});
  planner::PlanOptions plan_options;
  plan_options.strategy = penstock::plan::Strategy::OneFOneB;
  const planner::PlanResult planned =
      planner::make_plan(profile, cluster::local_cluster(2, 1'000'000'000), plan_options);
  if (!planned.plan) {
    std::cerr << planned.reason << '\n';
    return 1;
  }
  const train::DataSplit data = train::load_data({.name = "synthetic",
                                                  .sample = train::samples_for(network, {}),
                                                  .train_samples = 64,
                                                  .test_samples = 16});
  const train::TrainResult result =
      train::train(network, data, {.plan = *planned.plan, .mini_batch_size = 8, .max_steps = 2});
  std::cout << "steps " << result.steps << " loss " << result.final_loss << '\n';
  return result.steps == 2 && std::isfinite(result.final_loss) ? 0 : 1;
}
