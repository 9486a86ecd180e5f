#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "penstock/plan/interval_io.h"
#include "penstock/plan/plan.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"

namespace penstock::plan {

namespace {

constexpr int64_t kVersion = 3;
constexpr int64_t kMaxStages = 1'000'000;
constexpr int64_t kMaxLevels = 1'000;
constexpr int64_t kMaxGroups = 1'000'000;

Json write_bucket(const GradientBucket& bucket) {
  Json json{
      {"weight_bytes", bucket.weight_bytes}, {"forward_ns", bucket.forward_ns},
      {"backward_ns", bucket.backward_ns},   {"backward_weight_ns", bucket.backward_weight_ns},
      {"step_ns", bucket.step_ns},           {"wire_ns", bucket.wire_ns},
      {"server_ns", bucket.server_ns}};
  if (bucket.processor_ns > 0) json["processor_ns"] = bucket.processor_ns;
  return json;
}

template <class Item, class Write>
Json write_list(const std::vector<Item>& items, Write write) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(write(item));
  return list;
}

Json write_passes(const PassMemory& passes) {
  return {{"first_bytes", passes.first_bytes},
          {"last_bytes", passes.last_bytes},
          {"only_bytes", passes.only_bytes},
          {"steps", passes.steps}};
}

Json write_stage(const Stage& stage) {
  Json json = {{"layers", stage.layers},
               {"replicas", stage.replicas},
               {"compute_ns", stage.compute_ns()},
               {"forward_ns", stage.forward_ns},
               {"backward_ns", stage.backward_ns},
               {"step_ns", stage.step_ns},
               {"sync_ns", stage.sync_ns},
               {"memory_bytes", stage.memory_bytes},
               {"weight_bytes", stage.weight_bytes},
               {"stash_bytes", stage.stash_bytes},
               {"first_worker", stage.first_worker},
               {"recompute", stage.recompute},
               {"backward_weight_ns", stage.backward_weight_ns},
               {"accumulate_ns", stage.accumulate_ns}};
  if (stage.shard_optimizer) json["shard_optimizer"] = true;
  if (stage.offload) {
    json["offload"] = true;
    json["move_ns"] = stage.move_ns;
  }
  if (stage.keep > 0) json["keep"] = stage.keep;
  if (stage.tensor > 1) {
    json["tensor"] = stage.tensor;
    json["team_bytes"] = stage.team_bytes;
    if (stage.sequence) json["sequence"] = true;
  }
  if (stage.short_weight_bytes > 0) json["short_weight_bytes"] = stage.short_weight_bytes;
  if (stage.constant_bytes > 0) json["constant_bytes"] = stage.constant_bytes;
  if (stage.working_bytes > 0) json["working_bytes"] = stage.working_bytes;
  if (stage.passes) json["passes"] = write_passes(*stage.passes);
  if (stage.shares_weights) json["shares_weights"] = true;
  if (stage.waiting_bytes > 0) json["waiting_bytes"] = stage.waiting_bytes;
  if (stage.buckets.empty()) return json;
  json["buckets"] = write_list(stage.buckets, write_bucket);
  json["sync_latency_ns"] = stage.sync_latency_ns;
  json["waits_for_sums"] = stage.waits_for_sums;
  return json;
}

Json write_link(const Link& link) {
  Json json = {{"from", link.from.value}, {"to", link.to.value}, {"bytes", link.bytes}};
  if (link.gradient_bytes) json["gradient_bytes"] = *link.gradient_bytes;
  if (!link.coding.is_exact()) json["coding"] = to_string(link.coding);
  if (link.width > 0) json["width"] = link.width;
  return json;
}

Json write_alternative(const Alternative& alternative) {
  return {{"strategy", to_string(alternative.strategy)},
          {"config", alternative.config},
          {"weights", alternative.weights ? to_string(*alternative.weights) : ""},
          {"throughput_samples_per_s", alternative.throughput_samples_per_s},
          {"micro_batches", alternative.micro_batches},
          {"latency_ns", alternative.latency_ns},
          {"memory_bytes", alternative.memory_bytes},
          {"idle_share", alternative.idle_share},
          {"bytes_per_sample", alternative.bytes_per_sample},
          {"note", alternative.note}};
}

Json write_device(const cluster::Device& device) {
  return {{"name", device.name}, {"memory_bytes", device.memory_bytes}, {"speed", device.speed}};
}

Json write_group(const cluster::DeviceGroup& group) {
  return {{"first", group.first}, {"count", group.count}, {"device", write_device(group.device)}};
}

Json write_level(const cluster::Level& level) {
  Json json{{"name", level.name},
            {"count", level.count},
            {"bandwidth_bytes_per_s", level.bandwidth_bytes_per_s},
            {"latency_ns", level.latency_ns},
            {"by_reference", level.by_reference}};
  if (level.sums_wait) json["sums_wait"] = true;
  if (level.machine) json["machine"] = true;
  if (level.processor_ns_per_gb > 0) json["processor_ns_per_gb"] = level.processor_ns_per_gb;
  if (level.processor_ns_per_message > 0)
    json["processor_ns_per_message"] = level.processor_ns_per_message;
  return json;
}

Json write_machine(const cluster::Machine& machine) {
  return {{"switches", machine.switches},
          {"device_bytes_per_s", machine.device_bytes_per_s},
          {"switch_bytes_per_s", machine.switch_bytes_per_s},
          {"cross_bytes_per_s", machine.cross_bytes_per_s},
          {"nvlink_bytes_per_s", machine.nvlink_bytes_per_s},
          {"network_card", machine.network_card}};
}

Json write_cluster(const cluster::Cluster& cluster) {
  Json json{{"levels", write_list(cluster.levels, write_level)},
            {"device", write_device(cluster.device)},
            {"device_groups", write_list(cluster.groups, write_group)},
            {"cpu_machines",
             {{"count", cluster.cpu_machines.count},
              {"bandwidth_bytes_per_s", cluster.cpu_machines.bandwidth_bytes_per_s}}}};
  if (cluster.machine) json["machine"] = write_machine(*cluster.machine);
  return json;
}

double number_or(const JsonReader& reader, std::string_view key, double otherwise) {
  const auto found = reader.find(key);
  return found ? found->number() : otherwise;
}

bool boolean_or(const JsonReader& reader, std::string_view key, bool otherwise) {
  const auto found = reader.find(key);
  return found ? found->boolean() : otherwise;
}

std::vector<double> read_bytes_per_sample(const JsonReader& reader) {
  std::vector<double> bytes;
  if (const auto list = reader.find("bytes_per_sample")) {
    for (const JsonReader& level : list->elements(kMaxLevels)) bytes.push_back(level.number());
  }
  return bytes;
}

GradientBucket read_bucket(const JsonReader& reader) {
  return {.weight_bytes = reader.at("weight_bytes").integer(0),
          .forward_ns = reader.at("forward_ns").integer(0),
          .backward_ns = reader.at("backward_ns").integer(0),
          .backward_weight_ns = reader.at("backward_weight_ns").integer(0),
          .step_ns = reader.at("step_ns").integer(0),
          .wire_ns = reader.at("wire_ns").integer(0),
          .server_ns = reader.at("server_ns").integer(0),
          .processor_ns = reader.integer_or("processor_ns", 0, 0)};
}

PassMemory read_passes(const JsonReader& reader) {
  return {.first_bytes = reader.at("first_bytes").integer(0),
          .last_bytes = reader.at("last_bytes").integer(0),
          .only_bytes = reader.at("only_bytes").integer(0),
          .steps = boolean_or(reader, "steps", false)};
}

/// `keep`: of stages that do not have their own.
Stage read_stage(const JsonReader& reader, int64_t keep) {
  Stage stage;
  for (const JsonReader& layer : reader.at("layers").elements())
    stage.layers.push_back(layer.text());
  stage.replicas = static_cast<int>(reader.at("replicas").integer(1, INT_MAX));
  stage.forward_ns = reader.at("forward_ns").integer(0);
  stage.backward_ns = reader.at("backward_ns").integer(0);
  stage.backward_weight_ns = reader.integer_or("backward_weight_ns", 0, 0);
  stage.accumulate_ns = reader.integer_or("accumulate_ns", 0, 0);
  stage.step_ns = reader.integer_or("step_ns", 0, 0);
  stage.sync_ns = reader.integer_or("sync_ns", 0, 0);
  stage.memory_bytes = reader.integer_or("memory_bytes", 0, 0);
  stage.weight_bytes = reader.at("weight_bytes").integer(0);
  stage.short_weight_bytes = reader.integer_or("short_weight_bytes", 0, 0);
  stage.constant_bytes = reader.integer_or("constant_bytes", 0, 0);
  stage.working_bytes = reader.integer_or("working_bytes", 0, 0);
  if (const auto passes = reader.find("passes")) stage.passes = read_passes(*passes);
  stage.shares_weights = boolean_or(reader, "shares_weights", false);
  stage.waiting_bytes = reader.integer_or("waiting_bytes", 0, 0);
  stage.stash_bytes = reader.integer_or("stash_bytes", 0, 0);
  stage.first_worker = static_cast<int>(reader.integer_or("first_worker", -1, -1, INT_MAX));
  stage.recompute = boolean_or(reader, "recompute", false);
  if (const auto buckets = reader.find("buckets")) {
    for (const JsonReader& bucket : buckets->elements(static_cast<int64_t>(stage.layers.size())))
      stage.buckets.push_back(read_bucket(bucket));
  }
  stage.sync_latency_ns = reader.integer_or("sync_latency_ns", 0, 0);
  stage.waits_for_sums = boolean_or(reader, "waits_for_sums", false);
  stage.shard_optimizer = boolean_or(reader, "shard_optimizer", false);
  stage.offload = boolean_or(reader, "offload", false);
  stage.move_ns = reader.integer_or("move_ns", 0, 0);
  stage.keep = reader.integer_or("keep", keep, 0);
  stage.tensor = static_cast<int>(reader.integer_or("tensor", 1, 1, INT_MAX));
  stage.team_bytes = reader.integer_or("team_bytes", 0, 0);
  stage.sequence = boolean_or(reader, "sequence", false);
  return stage;
}

/// A value by its name; `parse` throws ConfigError for names of none.
template <class Value>
Value named(const JsonReader& reader, Value (*parse)(std::string_view)) {
  const std::string name = reader.text();
  try {
    return parse(name);
  } catch (const ConfigError& error) {
    reader.fail(error.what());
  }
}

template <class Value>
Value named_or(const JsonReader& reader, std::string_view key, Value otherwise,
               Value (*parse)(std::string_view)) {
  const auto found = reader.find(key);
  return found ? named(*found, parse) : otherwise;
}

Link read_link(const JsonReader& reader) {
  const auto stage = [&](std::string_view key) {
    return StageId{static_cast<int32_t>(reader.at(key).integer(0, kMaxStages))};
  };
  Link link{stage("from"), stage("to"), reader.at("bytes").integer(0)};
  if (const auto gradients = reader.find("gradient_bytes"))
    link.gradient_bytes = gradients->integer(0);
  link.coding = named_or(reader, "coding", link.coding, parse_boundary);
  link.width = reader.integer_or("width", 0, 0);
  return link;
}

Strategy read_strategy(const JsonReader& reader, std::span<const Strategy> known) {
  const std::string name = reader.text();
  const auto found = find_strategy(name);
  if (found && std::find(known.begin(), known.end(), *found) != known.end()) return *found;
  reader.fail(fmt::format("unknown strategy '{}', expected one of {}", name.substr(0, 40),
                          names_of(known)));
}

Alternative read_alternative(const JsonReader& reader) {
  Alternative alternative;
  alternative.strategy = read_strategy(reader.at("strategy"), training_strategies());
  alternative.config = reader.text_or("config", "");
  alternative.throughput_samples_per_s = reader.at("throughput_samples_per_s").number();
  if (const std::string policy = reader.text_or("weights", ""); !policy.empty())
    alternative.weights = named(reader.at("weights"), parse_weight_policy);
  alternative.micro_batches = reader.integer_or("micro_batches", 0, 0);
  alternative.latency_ns = reader.integer_or("latency_ns", 0, 0);
  alternative.memory_bytes = reader.integer_or("memory_bytes", 0, 0);
  alternative.idle_share = number_or(reader, "idle_share", 0);
  alternative.bytes_per_sample = read_bytes_per_sample(reader);
  alternative.note = reader.text_or("note", "");
  return alternative;
}

cluster::Level read_level(const JsonReader& reader) {
  cluster::Level level;
  level.name = reader.text_or("name", "");
  level.count = static_cast<int>(reader.at("count").integer(1, INT_MAX));
  level.bandwidth_bytes_per_s = reader.at("bandwidth_bytes_per_s").integer(1);
  level.latency_ns = reader.integer_or("latency_ns", 0, 0);
  level.by_reference = boolean_or(reader, "by_reference", false);
  level.sums_wait = boolean_or(reader, "sums_wait", false);
  level.machine = boolean_or(reader, "machine", false);
  level.processor_ns_per_gb = reader.integer_or("processor_ns_per_gb", 0, 0);
  level.processor_ns_per_message = reader.integer_or("processor_ns_per_message", 0, 0);
  return level;
}

cluster::Machine read_machine(const JsonReader& reader) {
  cluster::Machine machine;
  machine.switches = static_cast<int>(reader.at("switches").integer(1, INT_MAX));
  machine.device_bytes_per_s = reader.at("device_bytes_per_s").integer(1);
  machine.switch_bytes_per_s = reader.at("switch_bytes_per_s").integer(1);
  machine.cross_bytes_per_s = reader.integer_or("cross_bytes_per_s", 0, 0);
  machine.nvlink_bytes_per_s = reader.integer_or("nvlink_bytes_per_s", 0, 0);
  machine.network_card = static_cast<int>(reader.at("network_card").integer(-1, INT_MAX));
  return machine;
}

void read_device(const JsonReader& reader, cluster::Device& device) {
  device.name = reader.text_or("name", device.name);
  device.memory_bytes = reader.integer_or("memory_bytes", 0, 0);
  device.speed = number_or(reader, "speed", device.speed);
}

cluster::DeviceGroup read_group(const JsonReader& reader) {
  cluster::DeviceGroup group;
  group.first = static_cast<int>(reader.at("first").integer(0, INT_MAX));
  group.count = static_cast<int>(reader.at("count").integer(1, INT_MAX));
  read_device(reader.at("device"), group.device);
  return group;
}

cluster::Cluster read_cluster(const JsonReader& reader) {
  cluster::Cluster cluster;
  for (const JsonReader& level : reader.at("levels").elements(kMaxLevels))
    cluster.levels.push_back(read_level(level));
  if (const auto device = reader.find("device")) read_device(*device, cluster.device);
  if (const auto groups = reader.find("device_groups")) {
    for (const JsonReader& group : groups->elements(kMaxGroups))
      cluster.groups.push_back(read_group(group));
  }
  if (const auto machines = reader.find("cpu_machines")) {
    cluster.cpu_machines.count = static_cast<int>(machines->at("count").integer(0, INT_MAX));
    cluster.cpu_machines.bandwidth_bytes_per_s = machines->at("bandwidth_bytes_per_s").integer(0);
  }
  if (const auto machine = reader.find("machine")) cluster.machine = read_machine(*machine);
  return cluster;
}

/// `config` and `compute_ns` repeat what other keys say. To edit one by hand has no effect, so a
/// value that differs is an error.
void check_derived(const JsonReader& root, const Plan& plan) {
  if (const auto config = root.find("config"); config && config->text() != plan.config()) {
    config->fail(fmt::format("expected the replicas of the stages, \"{}\", found \"{}\"",
                             plan.config(), config->text().substr(0, 60)));
  }
  const auto stages = root.at("stages").elements(kMaxStages);
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto compute = stages[i].find("compute_ns");
    if (compute && compute->integer() != plan.stages[i].compute_ns()) {
      compute->fail(fmt::format("expected forward_ns plus backward_ns, {}, found {}",
                                plan.stages[i].compute_ns(), compute->integer()));
    }
  }
}

/// Until version 2 the backward pass of a stage that recomputes contained the forward pass.
void convert_recompute(Plan& plan) {
  for (Stage& stage : plan.stages) {
    if (!stage.recompute) continue;
    stage.backward_ns = std::max<int64_t>(0, stage.backward_ns - stage.forward_ns);
    stage.backward_weight_ns = std::min(stage.backward_weight_ns, stage.backward_ns);
  }
}

Plan read_plan(const JsonReader& root) {
  Plan plan;
  plan.model = root.text_or("model", "");
  plan.strategy = read_strategy(root.at("strategy"), scheduled_strategies());
  plan.weights = named(root.at("weights"), parse_weight_policy);
  plan.compensation = named_or(root, "compensate", plan.compensation, parse_compensation);
  plan.explanation.cost_model = root.text_or("cost_model", "");
  plan.micro_batch_size = root.at("micro_batch_size").integer(1);
  plan.micro_batches = root.at("micro_batches").integer(1);
  plan.depth = root.at("depth").integer(1);
  plan.prediction.bottleneck_ns = root.integer_or("bottleneck_ns", 0, 0);
  if (const auto worker_of_replica = root.find("hosts")) {
    for (const JsonReader& worker : worker_of_replica->elements())
      plan.worker_of_replica.push_back(static_cast<int>(worker.integer(0, INT_MAX)));
  }
  plan.slack = root.integer_or("slack", 0, 0);
  const int64_t keep = root.integer_or("keep", 0, 0);
  plan.set_sync_method(named_or(root, "sync", SyncMethod{}, parse_gradient_sync));
  plan.gradient_precision =
      named_or(root, "sync_precision", plan.gradient_precision, parse_sync_precision);
  plan.precision = named_or(root, "precision", plan.precision, parse_precision);
  plan.optimizer_state_per_weight =
      number_or(root, "optimizer_state_per_weight", plan.optimizer_state_per_weight);
  plan.prediction.throughput_samples_per_s = number_or(root, "throughput_samples_per_s", 0);
  plan.prediction.latency_ns = root.integer_or("latency_ns", 0, 0);
  plan.prediction.idle_share = number_or(root, "idle_share", 0);
  plan.prediction.bytes_per_sample = read_bytes_per_sample(root);
  plan.explanation.optimality_gap = number_or(root, "optimality_gap", 0);
  plan.prediction.compute_spread = number_or(root, "compute_spread", 0);
  plan.prediction.compute_error = number_or(root, "compute_error", 0);
  const Interval interval =
      read_interval(root, "throughput_low_samples_per_s", "throughput_high_samples_per_s");
  plan.prediction.throughput_low_samples_per_s = interval.low;
  plan.prediction.throughput_high_samples_per_s = interval.high;
  plan.cluster = read_cluster(root.at("cluster"));
  for (const JsonReader& stage : root.at("stages").elements(kMaxStages))
    plan.stages.push_back(read_stage(stage, keep));
  if (const auto links = root.find("links")) {
    for (const JsonReader& link : links->elements()) plan.links.push_back(read_link(link));
  }
  if (const auto alternatives = root.find("alternatives")) {
    for (const JsonReader& alternative : alternatives->elements())
      plan.explanation.alternatives.push_back(read_alternative(alternative));
  }
  if (const auto notes = root.find("notes")) {
    for (const JsonReader& note : notes->elements()) plan.explanation.notes.push_back(note.text());
  }
  return plan;
}

}  // namespace

std::string to_json(const Plan& plan) {
  validate(plan);
  Json document = {{"format", "penstock-plan"},
                   {"version", kVersion},
                   {"model", plan.model},
                   {"config", plan.config()},
                   {"strategy", to_string(plan.strategy)},
                   {"weights", to_string(plan.weights)},
                   {"cost_model", plan.explanation.cost_model},
                   {"throughput_samples_per_s", plan.prediction.throughput_samples_per_s},
                   {"bottleneck_ns", plan.prediction.bottleneck_ns},
                   {"optimality_gap", plan.explanation.optimality_gap},
                   {"latency_ns", plan.prediction.latency_ns},
                   {"idle_share", plan.prediction.idle_share},
                   {"bytes_per_sample", plan.prediction.bytes_per_sample},
                   {"micro_batch_size", plan.micro_batch_size},
                   {"micro_batches", plan.micro_batches},
                   {"depth", plan.depth},
                   {"hosts", plan.worker_of_replica},
                   {"slack", plan.slack},
                   {"sync", to_string(plan.sync_method())},
                   {"sync_precision", to_string(plan.gradient_precision)},
                   {"precision", to_string(plan.precision)},
                   {"optimizer_state_per_weight", plan.optimizer_state_per_weight},
                   {"stages", write_list(plan.stages, write_stage)},
                   {"links", write_list(plan.links, write_link)},
                   {"alternatives", write_list(plan.explanation.alternatives, write_alternative)},
                   {"cluster", write_cluster(plan.cluster)},
                   {"notes", plan.explanation.notes}};
  if (plan.compensation != Compensation::None)
    document["compensate"] = to_string(plan.compensation);
  if (plan.prediction.compute_error > 0 || plan.prediction.compute_spread > 0) {
    document["compute_spread"] = plan.prediction.compute_spread;
    document["compute_error"] = plan.prediction.compute_error;
    document["throughput_low_samples_per_s"] = plan.prediction.throughput_low_samples_per_s;
    document["throughput_high_samples_per_s"] = plan.prediction.throughput_high_samples_per_s;
  }
  return to_text(document);
}

Plan parse_plan(std::string_view json, std::string_view place) {
  const Json document = parse_json(json, place);
  const JsonReader root(document, std::string(place));
  check_format(root, "plan", kVersion);
  Plan plan = read_plan(root);
  try {
    validate(plan);
  } catch (const ConfigError& error) {
    throw ParseError(place, 0, error.what());
  }
  check_derived(root, plan);
  if (root.at("version").integer() < 3) convert_recompute(plan);
  return plan;
}

Plan load_plan(const std::filesystem::path& path) {
  return parse_plan(read_file(path), path.string());
}

}  // namespace penstock::plan
