#include "penstock/model/profiler.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "penstock/model/device/devices.h"
#include "penstock/model/profiling/measurement.h"
#include "penstock/model/profiling/repeats.h"
#include "penstock/model/profiling/summary.h"
#include "penstock/model/profiling/thread_count.h"
#include "penstock/model/shapes.h"
#include "penstock/profile/over_lengths.h"
#include "penstock/profile/processor_text.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/process/processor.h"
#include "penstock/util/text/units.h"

namespace penstock::model {
namespace {

using Times = std::vector<detail::LayerTimes>;

void check_at_least(int64_t value, int64_t low, int64_t high, const char* what) {
  if (value < low || value > high) {
    throw ConfigError(
        fmt::format("profiler: {} must be between {} and {}, found {}", what, low, high, value));
  }
}

/// The minimum memory that one copy needs.
int64_t least_memory_bytes(const Model& model, const ProfilerOptions& options) {
  const std::vector<int64_t> layers = bytes_to_measure(model, options);
  return std::accumulate(layers.begin(), layers.end(), int64_t{0}, saturating_add);
}

void check_options(const Model& model, const ProfilerOptions& options) {
  const bool is_cpu = options.device.empty() || at::Device(options.device).is_cpu();
  if (options.precision == Precision::Tf32 && is_cpu) {
    throw ConfigError(
        "profiler: precision tf32 is a mode of NVIDIA's GPUs, and the CPU is measured: expected "
        "float32, bfloat16 or float16, or a GPU as the device");
  }
  check_at_least(options.batch_size, 1, detail::kMaxElements, "batch size");
  check_at_least(options.warmup, 0, 1'000'000, "number of warm-up passes");
  check_at_least(options.samples, 1, 1'000'000, "number of samples");
  check_at_least(options.threads, 1, 1024, "number of threads");
  check_at_least(options.concurrency, 1, 1024, "concurrency");
  check_at_least(options.longest.count(), 0, 86'400'000, "longest time in ms");
  if (!(options.wanted_error >= 0 && options.wanted_error <= 1)) {
    throw ConfigError(fmt::format("profiler: wanted error must be between 0 and 1, found {}",
                                  options.wanted_error));
  }
  check_at_least(options.least_time.count(), 0, 86'400'000, "least time in ms");
  check_at_least(options.most_time.count(), 0, 86'400'000, "most time in ms");
  check_at_least(options.most_samples, 0, 1'000'000, "greatest number of samples");
  if (model.graph().num_layers() == 0)
    throw ConfigError(fmt::format("profiler: model '{}' has no layers", model.name()));
  if (options.layers &&
      (options.layers->first.value < 0 || options.layers->last < options.layers->first ||
       options.layers->last.value >= model.graph().num_layers())) {
    throw ConfigError(fmt::format(
        "profiler: expected layers from 0 to {} in ascending order, found "
        "{} to {}",
        model.graph().num_layers() - 1, options.layers->first.value, options.layers->last.value));
  }
}

/// Of the layers that are run.
void check_memory(const Model& model, const ProfilerOptions& options) {
  const int64_t needed = saturating_mul(least_memory_bytes(model, options), options.concurrency);
  int64_t installed = saturating_mul(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGESIZE));
  if (!options.device.empty()) {
    require_device(installed_devices(), at::Device(options.device));
    installed = installed_devices().memory(at::Device(options.device)).total;
  }
  if (needed > installed) {
    throw ConfigError(fmt::format(
        "profiler: model '{}' with batch size {} and concurrency {} needs at least "
        "{}, {} has {}",
        model.name(), options.batch_size, options.concurrency, format_bytes(needed),
        options.device.empty() ? "this machine" : options.device, format_bytes(installed)));
  }
}

std::string device_name(const ProfilerOptions& options) {
  if (!options.device.empty()) return installed_devices().name(at::Device(options.device));
  return profile::processor_text(processor_name(), options.threads);
}

/// The summary of one time of one layer over all samples.
detail::Summary summarize(const std::vector<Times>& samples, size_t layer,
                          int64_t detail::LayerTimes::*member) {
  std::vector<int64_t> values;
  for (const Times& times : samples) values.push_back(times[layer].*member);
  return detail::summarize(std::move(values));
}

/// The part of `backward_ns` that makes the weights' gradients, in proportion to the two times
/// measured separately: separately they take a little longer than together.
int64_t weight_part(int64_t backward_ns, const std::vector<Times>& split_samples, size_t layer) {
  const auto inputs = static_cast<double>(
      summarize(split_samples, layer, &detail::LayerTimes::backward_input_ns).mean);
  const auto weights = static_cast<double>(
      summarize(split_samples, layer, &detail::LayerTimes::backward_weight_ns).mean);
  if (weights <= 0) return 0;
  return std::min(backward_ns, static_cast<int64_t>(static_cast<double>(backward_ns) *
                                                    (weights / (inputs + weights))));
}

profile::LayerCost cost_of(const detail::Measured& measured, size_t place) {
  const detail::Summary forward =
      summarize(measured.samples, place, &detail::LayerTimes::forward_ns);
  const detail::Summary backward =
      summarize(measured.samples, place, &detail::LayerTimes::backward_ns);
  const detail::LayerBytes& bytes = measured.bytes[place];
  return {.forward_ns = forward.mean,
          .backward_ns = backward.mean,
          .backward_weight_ns = weight_part(backward.mean, measured.split_samples, place),
          .accumulate_ns =
              summarize(measured.split_samples, place, &detail::LayerTimes::accumulate_ns).mean,
          .step_ns = summarize(measured.samples, place, &detail::LayerTimes::step_ns).mean,
          .forward_spread_ns = forward.spread,
          .backward_spread_ns = backward.spread,
          .output_bytes = bytes.outputs,
          .weight_bytes = bytes.weights,
          .stash_bytes = std::max<int64_t>(bytes.stash, 0),
          .loss_ns = std::min(summarize(measured.samples, place, &detail::LayerTimes::loss_ns).mean,
                              forward.mean + backward.mean),
          .short_weight_bytes = bytes.short_weights,
          .working_bytes = bytes.working,
          .saves = bytes.saves,
          .strided_outputs = bytes.strided_outputs};
}

bool measures_once(const Model& model, const ProfilerOptions& options) {
  constexpr int64_t kLeastBytes = int64_t{256} << 20;
  if (options.repeats != Repeats::Auto) return options.repeats == Repeats::Once;
  return least_memory_bytes(model, options) > kLeastBytes;
}

/// What was run for a range of layers, and what it took.
class RangeMeasurement {
 public:
  RangeMeasurement(const Model& model, const profile::LayerRange& layers)
      : model_(model), layers_(layers) {}

  void run(const std::vector<detail::LayerClass>& classes, const ProfilerOptions& options,
           const std::optional<ProfiledLoss>& loss) {
    coverage_ = detail::cover(model_, layers_, classes);
    const detail::ModelPart part = detail::part_of(model_, coverage_.run, coverage_.stand_in);
    check_memory(part.model, options);
    measured_ = detail::measure(part, options, loss);
  }

  /// Whether the layers of a class that were run took different times.
  bool differs(const detail::LayerClass& one) const {
    return detail::differ(
        measured_.samples,
        {.first = place_of(one.front()), .second = place_of(one.back()), .layers = one.size()},
        pass_ns());
  }

  profile::Share share(const ProfilerOptions& options) const {
    profile::Share share{.profile = {}, .layers = layers_};
    share.measured = static_cast<int>(std::ranges::count_if(
        coverage_.run, [&](LayerId id) { return id >= layers_.first && id <= layers_.last; }));
    profile::Profile& result = share.profile;
    result.model = model_.name();
    result.device = device_name(options);
    result.source = "measured";
    result.precision = options.precision;
    result.device_graphs = measured_.device_graphs;
    result.batch_size = options.batch_size;
    result.samples = static_cast<int>(measured_.samples.size());
    result.copy_bandwidth_bytes_per_s = measured_.copy_bandwidth_bytes_per_s;
    result.pass = measured_.pass;
    // Spread and error are shares, and remain.
    if (result.pass.mean_ns > 0 && std::ssize(coverage_.run) != layers_.count())
      result.pass.mean_ns = std::max<int64_t>(pass_ns(), 1);
    result.hand_over_ns = measured_.hand_over_ns;
    result.graph = model_.graph();
    for (int32_t l = 0; l < model_.graph().num_layers(); ++l)
      result.costs.push_back(cost_of_layer(LayerId{l}));
    return share;
  }

 private:
  /// Of a layer of the range, or its stand-in, among those that were run.
  size_t place_of(LayerId id) const {
    const auto place = std::ranges::lower_bound(coverage_.run, coverage_.stand_in[id.index()]);
    return static_cast<size_t>(place - coverage_.run.begin());
  }

  /// Mean of a pass of all layers of the range.
  int64_t pass_ns() const {
    std::vector<int64_t> sums(coverage_.run.size(), 0);
    for (const Times& times : measured_.samples) {
      for (size_t p = 0; p < times.size(); ++p)
        sums[p] = saturating_add(sums[p], detail::pass_time_ns({times[p]}));
    }
    int64_t sum = 0;
    for (LayerId id = layers_.first; id <= layers_.last; ++id.value)
      sum = saturating_add(sum, sums[place_of(id)]);
    return sum / std::ssize(measured_.samples);
  }

  profile::LayerCost cost_of_layer(LayerId id) const {
    if (id < layers_.first || id > layers_.last) {
      const graph::LayerNode& node = model_.graph().layer(id);
      profile::LayerCost none;
      none.output_bytes.assign(static_cast<size_t>(node.num_outputs), 0);
      none.tied_bytes.assign(node.ties.size(), 0);
      return none;
    }
    profile::LayerCost cost = cost_of(measured_, place_of(id));
    if (coverage_.stand_in[id.index()] == id)
      cost.stash_bytes = saturating_add(cost.stash_bytes, measured_.bytes[place_of(id)].samples);
    cost.tied_bytes = model_.tied_bytes(id);
    cost.matrices = detail::weight_matrices(model_.layer(id));
    cost.constant_bytes = model_.layer(id).constant_bytes();
    return cost;
  }

  const Model& model_;
  profile::LayerRange layers_;
  detail::Coverage coverage_;
  detail::Measured measured_;
};

}  // namespace

std::vector<int64_t> bytes_to_measure(const Model& model, const ProfilerOptions& options) {
  // Two versions, gradients and the optimiser's state.
  const int64_t copies = 3 + std::llround(std::ceil(usual_state(options.optimizer)));
  std::vector<int64_t> bytes;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const LayerId id{l};
    int64_t numbers = saturating_mul(model.parameter_count(id), copies);
    const std::string& kind = model.graph().layer(id).kind;
    const bool has_memory = kind != "flatten" && kind != "split";  // these are views
    for (const Shape& shape : model.output_shapes(id)) {
      if (!has_memory) break;
      numbers = saturating_add(
          numbers, saturating_mul(options.batch_size, detail::checked_elements(shape, "output")));
    }
    bytes.push_back(saturating_mul(numbers, static_cast<int64_t>(sizeof(float))));
  }
  return bytes;
}

namespace {

profile::Share measure_sizes(const Model& model, const ProfilerOptions& options,
                             const std::optional<ProfiledLoss>& loss) {
  // libtorch gives the count that was set last to every later thread; restore the old value.
  const ThreadCount unchanged(at::get_num_threads());
  if (!options.device.empty() && at::Device(options.device).is_cuda()) {
    at::globalContext().setAllowTF32CuBLAS(options.precision == Precision::Tf32);
    at::globalContext().setAllowTF32CuDNN(options.precision == Precision::Tf32);
  }
  const profile::LayerRange layers = options.layers.value_or(profile::all_layers(model.graph()));
  std::vector<detail::LayerClass> classes;
  if (measures_once(model, options)) {
    classes = detail::layer_classes(model, layers.first, layers.last);
    std::erase_if(classes, [](const auto& one) { return one.size() < detail::kLeastRepeats; });
  }
  RangeMeasurement measurement(model, layers);
  measurement.run(classes, options, loss);
  const size_t different = std::erase_if(
      classes, [&](const detail::LayerClass& one) { return measurement.differs(one); });
  if (different > 0) measurement.run(classes, options, loss);
  return measurement.share(options);
}

/// Of one of `parts` measurements that share the time of `options`; it is number `part`.
ProfilerOptions part_of(const ProfilerOptions& options, int part, int parts) {
  ProfilerOptions own = options;
  own.lengths.clear();
  own.least_time = options.least_time / parts;
  own.longest = options.longest / parts;
  own.most_time = options.most_time * 2 / (parts + 1);
  if (options.progress) {
    own.progress = [&options, part, parts](int done, int total) {
      options.progress(part * total + done, parts * total);
    };
  }
  return own;
}

}  // namespace

profile::Share measure_share(const Model& model, const ProfilerOptions& options,
                             const std::optional<ProfiledLoss>& loss) {
  check_options(model, options);
  if (options.lengths.empty()) return measure_sizes(model, options, loss);
  profile::validate(options.lengths);
  std::vector<profile::Profile> profiles;
  profile::Share share;
  for (const profile::LengthGroup& group : options.lengths) {
    const auto part = static_cast<int>(profiles.size());
    share = measure_sizes(model.for_inputs(group.input_shapes),
                          part_of(options, part, static_cast<int>(options.lengths.size())), loss);
    profiles.push_back(std::move(share.profile));
  }
  share.profile = profile::over_lengths(profiles, options.lengths);
  return share;
}

profile::Profile measure_profile(const Model& model, const ProfilerOptions& options,
                                 const std::optional<ProfiledLoss>& loss) {
  PENSTOCK_CHECK(!options.layers, "some layers make no profile");
  return measure_share(model, options, loss).profile;
}

}  // namespace penstock::model
