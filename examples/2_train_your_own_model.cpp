// A network of your own, with a layer of your own, profiled, planned over two workers and trained
// through the pipeline.
#include <ATen/ATen.h>

#include <iostream>

#include "penstock/torch.h"

using namespace penstock;

/// y = weight * x, one number per channel.
class ScaleChannels : public model::Layer {
 public:
  explicit ScaleChannels(int64_t channels) : channels_(channels) {}
  std::string kind() const override { return "scale"; }
  std::vector<model::ParameterSpec> parameters() const override {
    return {{"weight", {channels_, 1, 1}, model::Init::constant(1.0)}};
  }
  model::Tensors forward(model::TensorSpan weights, model::MutableTensorSpan,
                         model::TensorSpan inputs, const model::ForwardContext&) const override {
    return {inputs[0] * weights[0]};
  }

 private:
  int64_t channels_;
};

model::Model make_network() {
  model::ModelBuilder net("small_residual");
  model::Value x = net.input({1, 16, 16});
  x = net.relu(net.conv2d(x, {.channels = 8, .kernel = 3, .padding = 1}));
  const model::Value skip = x;
  x = net.conv2d(x, {.channels = 8, .kernel = 3, .padding = 1});
  x = net.apply(std::make_shared<ScaleChannels>(8), {x})[0];
  x = net.max_pool2d(net.relu(net.add(x, skip)), {.kernel = 2});
  return net.build(net.linear(net.flatten(x), {.features = 4}));
}

int main() {
  const model::Model network = make_network();
  const profile::Profile profile =
      model::measure_profile(network, {.batch_size = 32, .warmup = 1, .samples = 3});
  const cluster::Cluster two_threads =
      cluster::local_cluster(2, std::max<int64_t>(profile.copy_bandwidth_bytes_per_s, 1));
  planner::PlanOptions plan_options;
  plan_options.strategy = plan::Strategy::OneFOneB;
  const planner::PlanResult planned = planner::make_plan(profile, two_threads, plan_options);
  if (!planned.plan) throw RuntimeError(planned.reason);
  train::DataSpec spec;
  spec.name = "synthetic";
  spec.sample = train::labelled({1, 16, 16}, 4);
  train::TrainOptions options;
  options.plan = *planned.plan;
  options.mini_batch_size = 32;
  options.epochs = 2;
  options.learning_rate.base = 0.02;
  const train::TrainResult result = train::train(network, train::load_data(spec), options);
  std::cout << "loss " << result.losses.front() << " -> " << result.final_loss << ", test accuracy "
            << result.test_accuracy.value_or(0) << '\n';
  return result.final_loss < result.losses.front() ? 0 : 1;
}
