#include "penstock/train/checkpoint/manifest.h"

#include <fmt/format.h>

#include <charconv>

#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::train {
namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kMostClasses = 1'000'000;
constexpr int64_t kMostTensors = 10'000'000;
constexpr std::string_view kStateDictName = "weights.pt";
constexpr std::string_view kPlanName = "plan.json";
constexpr std::string_view kMeanName = "average.pt";
constexpr std::string_view kAdapterName = "adapter_model.safetensors";
// The end of the text is this, eight hexadecimal digits and kTail.
constexpr std::string_view kChecksumKey = ",\n  \"crc32\": \"";
constexpr std::string_view kTail = "\"\n}\n";

Json file_json(const FileRecord& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"crc32", file.crc32}};
}

FileRecord parse_file(const JsonReader& entry, std::string_view expected_name) {
  FileRecord file;
  file.name = entry.at("name").text();
  if (file.name != expected_name)
    entry.at("name").fail(fmt::format("expected '{}', found '{}'", expected_name, file.name));
  // A layer's name is part of its file's name, so it must not name a path outside the folder.
  if (file.name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
    entry.at("name").fail("expected a plain file name");
  file.bytes = entry.at("bytes").integer(0);
  file.crc32 = static_cast<uint32_t>(entry.at("crc32").integer(0, UINT32_MAX));
  return file;
}

uint64_t parse_seed(const JsonReader& entry) {
  const std::string text = entry.text();
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    entry.fail(fmt::format("expected an unsigned number, found '{}'", text));
  return seed;
}

ManifestLayer parse_layer(const JsonReader& entry, int64_t index) {
  constexpr int64_t kMaxStates = 100;
  ManifestLayer layer;
  layer.name = entry.at("name").text();
  layer.kind = entry.at("kind").text();
  for (const JsonReader& state : entry.at("optimizer_states").elements(kMaxStates))
    layer.optimizer_states.push_back(state.text());
  if (const auto file = entry.find("file"))
    layer.file = parse_file(*file, layer_file_name(index, layer.name));
  return layer;
}

std::map<std::string, std::string> parse_settings(const JsonReader& entry) {
  constexpr size_t kMostSettings = 1000;
  if (!entry.raw().is_object() || entry.raw().size() > kMostSettings)
    entry.fail(fmt::format("expected an object of at most {} options", kMostSettings));
  std::map<std::string, std::string> settings;
  for (const auto& [name, value] : entry.raw().items()) settings[name] = entry.at(name).text();
  return settings;
}

/// The largest step: counters that go on from there do not overflow.
constexpr int64_t kMostSteps = int64_t{1} << 53;

runtime::LossScaleState parse_loss_scale(const JsonReader& entry) {
  constexpr int64_t kMostScale = int64_t{1} << 24;
  return {.scale = static_cast<double>(entry.at("scale").integer(1, kMostScale)),
          .good_steps = entry.at("good_steps").integer(0, kMostSteps),
          .skipped = entry.at("skipped").integer(0, kMostSteps)};
}

PlateauState parse_plateau(const JsonReader& entry) {
  PlateauState state{.rate = entry.at("rate").number(),
                     .without_improvement = entry.at("without_improvement").integer(0, kMostSteps),
                     .cooling = entry.at("cooling").integer(0, kMostSteps)};
  if (const auto first = entry.find("first")) state.first = first->number();
  if (const auto best = entry.find("best")) state.best = best->number();
  for (const double rate : {state.rate, state.first}) {
    if (rate < 0)
      entry.at("rate").fail(fmt::format("expected numbers of at least 0, found {}", rate));
  }
  return state;
}

Json plateau_json(const PlateauState& state) {
  Json entry = {{"rate", state.rate},
                {"without_improvement", state.without_improvement},
                {"cooling", state.cooling}};
  if (state.first > 0) entry["first"] = state.first;
  if (state.best) entry["best"] = *state.best;
  return entry;
}

WeightMeanState parse_mean(const JsonReader& entry) {
  constexpr int64_t kMostValues = 1'000'000;
  WeightMeanState state;
  if (const auto began = entry.find("began")) state.began = began->integer(0, kMostSteps);
  for (const JsonReader& value : entry.at("values").elements(kMostValues))
    state.values.push_back(value.number());
  return state;
}

Json mean_json(const WeightMeanState& state) {
  Json entry = {{"values", state.values}};
  if (state.began) entry["began"] = *state.began;
  return entry;
}

SavedRate parse_rate(const JsonReader& entry) {
  const auto positive = [](const JsonReader& number) {
    const double value = number.number();
    if (value < 0) number.fail(fmt::format("expected a number of at least 0, found {}", value));
    return value;
  };
  SavedRate rate;
  if (const auto steps = entry.find("schedule_steps"))
    rate.schedule_steps = steps->integer(0, kMostSteps);
  if (const auto scale = entry.find("scale")) rate.scale = positive(*scale);
  if (const auto base = entry.find("base")) rate.base = positive(*base);
  if (const auto plateau = entry.find("plateau")) rate.plateau = parse_plateau(*plateau);
  if (const auto step = entry.find("evaluated_at"))
    rate.evaluated_at = step->integer(0, kMostSteps);
  return rate;
}

Json rate_json(const SavedRate& rate) {
  Json entry = {{"scale", rate.scale}};
  if (rate.schedule_steps > 0) entry["schedule_steps"] = rate.schedule_steps;
  if (rate.base) entry["base"] = *rate.base;
  if (rate.plateau) entry["plateau"] = plateau_json(*rate.plateau);
  if (rate.evaluated_at) entry["evaluated_at"] = *rate.evaluated_at;
  return entry;
}

CheckpointPosition parse_position(const JsonReader& root) {
  CheckpointPosition position;
  position.model = root.at("model").text();
  position.epoch = root.at("epoch").integer(0, kMostSteps);
  position.next_mini_batch = root.at("next_mini_batch").integer(0, kMostSteps);
  position.step = root.at("step").integer(0, kMostSteps);
  position.seed = parse_seed(root.at("seed"));
  position.mini_batch_size = root.at("mini_batch_size").integer(0, kMostSteps);
  position.train_samples = root.at("train_samples").integer(0, kMostSteps);
  if (const auto shuffle = root.find("shuffle")) position.shuffle = shuffle->boolean();
  position.lengths = root.text_or("lengths", position.lengths);
  position.optimizer = root.at("optimizer").text();
  if (const auto request = root.find("plan_request")) position.plan_request = request->text();
  if (const auto settings = root.find("settings")) position.settings = parse_settings(*settings);
  if (const auto classes = root.find("classes")) {
    for (const JsonReader& name : classes->elements(kMostClasses))
      position.classes.push_back(name.text());
  }
  if (const auto loader = root.find("loader")) position.loader = loader->text();
  if (const auto rate = root.find("learning_rate")) position.rate = parse_rate(*rate);
  if (const auto scale = root.find("loss_scale")) position.loss_scale = parse_loss_scale(*scale);
  if (const auto mean = root.find("weight_mean")) position.mean = parse_mean(*mean);
  if (position.next_mini_batch > 0) {
    const int64_t mini_batches = position.mini_batch_size > 0
                                     ? ceil_div(position.train_samples, position.mini_batch_size)
                                     : 0;
    if (position.next_mini_batch >= mini_batches) {
      root.at("next_mini_batch")
          .fail(fmt::format("expected a mini-batch of an epoch, which has {} of {} samples, found "
                            "{}",
                            mini_batches, position.mini_batch_size, position.next_mini_batch));
    }
  }
  return position;
}

/// Refuses a text whose last member is not the checksum of the text before it.
void check_checksum(std::string_view text, std::string_view place) {
  constexpr size_t kDigits = 8;
  const size_t end_bytes = kChecksumKey.size() + kDigits + kTail.size();
  if (text.size() <= end_bytes || !text.ends_with(kTail) ||
      text.substr(text.size() - end_bytes, kChecksumKey.size()) != kChecksumKey) {
    throw ParseError(place, 0,
                     "the file is damaged: expected a manifest that ends with its checksum");
  }
  const std::string_view written = text.substr(text.size() - kTail.size() - kDigits, kDigits);
  const std::string computed =
      fmt::format("{:08x}", crc32_of(text.substr(0, text.size() - end_bytes)));
  if (written != computed)
    throw ParseError(
        place, 0,
        fmt::format("the file is damaged: expected CRC-32 {}, found {}", written, computed));
}

}  // namespace

std::string layer_file_name(int64_t index, const std::string& layer) {
  return fmt::format("layer-{:05}-{}.safetensors", index, layer);
}

std::string manifest_text(const Manifest& manifest) {
  const CheckpointPosition& position = manifest.position;
  Json document = {{"format", "penstock-checkpoint"},
                   {"version", kVersion},
                   {"model", position.model},
                   {"graph", manifest.graph},
                   {"epoch", position.epoch},
                   {"next_mini_batch", position.next_mini_batch},
                   {"step", position.step},
                   // JSON numbers may lose bits above 2^53
                   {"seed", std::to_string(position.seed)},
                   {"mini_batch_size", position.mini_batch_size},
                   {"train_samples", position.train_samples},
                   {"optimizer", position.optimizer}};
  if (position.shuffle) document["shuffle"] = *position.shuffle;
  if (position.lengths != CheckpointPosition{}.lengths) document["lengths"] = position.lengths;
  if (!position.plan_request.empty()) document["plan_request"] = position.plan_request;
  if (!position.settings.empty()) document["settings"] = position.settings;
  if (!position.classes.empty()) document["classes"] = position.classes;
  if (!position.loader.empty()) document["loader"] = position.loader;
  if (position.rate != SavedRate{}) document["learning_rate"] = rate_json(position.rate);
  if (position.loss_scale) {
    document["loss_scale"] = {{"scale", static_cast<int64_t>(position.loss_scale->scale)},
                              {"good_steps", position.loss_scale->good_steps},
                              {"skipped", position.loss_scale->skipped}};
  }
  if (position.mean) document["weight_mean"] = mean_json(*position.mean);
  Json layers = Json::array();
  for (const ManifestLayer& layer : manifest.layers) {
    Json entry = {
        {"name", layer.name}, {"kind", layer.kind}, {"optimizer_states", layer.optimizer_states}};
    if (!layer.file.name.empty()) entry["file"] = file_json(layer.file);
    layers.push_back(std::move(entry));
  }
  document["layers"] = std::move(layers);
  document["state_dict"] = file_json(manifest.state_dict);
  if (!manifest.plan.name.empty()) document["plan"] = file_json(manifest.plan);
  if (!manifest.mean.name.empty()) document["average"] = file_json(manifest.mean);
  if (manifest.frozen.tensors > 0) {
    document["frozen"] = {{"tensors", manifest.frozen.tensors}, {"digest", manifest.frozen.digest}};
  }
  if (!manifest.adapters.empty()) {
    document["adapters"] = {{"text", manifest.adapters},
                            {"weights", file_json(manifest.adapter_weights)}};
  }
  std::string text;
  try {
    text = document.dump(2);
  } catch (const Json::exception&) {
    throw ConfigError(
        fmt::format("checkpoint of model '{}': a name is not valid UTF-8", position.model));
  }
  text.resize(text.size() - 2);  // the newline and brace that close the object
  return fmt::format("{}{}{:08x}{}", text, kChecksumKey, crc32_of(text), kTail);
}

Manifest parse_manifest(std::string_view text, std::string_view place) {
  const Json document = parse_json(text, place);
  const JsonReader root(document, std::string(place));
  // A newer version may have another checksum, so the version is checked first.
  check_format(root, "checkpoint", kVersion);
  check_checksum(text, place);
  Manifest manifest;
  manifest.position = parse_position(root);
  manifest.graph = root.at("graph").text();
  for (const JsonReader& layer : root.at("layers").elements(1'000'000)) {
    manifest.layers.push_back(parse_layer(layer, static_cast<int64_t>(manifest.layers.size())));
  }
  manifest.state_dict = parse_file(root.at("state_dict"), kStateDictName);
  if (const auto plan = root.find("plan")) manifest.plan = parse_file(*plan, kPlanName);
  if (const auto mean = root.find("average")) manifest.mean = parse_file(*mean, kMeanName);
  if (const auto frozen = root.find("frozen"))
    manifest.frozen = {frozen->at("tensors").integer(1, kMostTensors), frozen->at("digest").text()};
  if (const auto adapters = root.find("adapters")) {
    manifest.adapters = adapters->at("text").text();
    manifest.adapter_weights = parse_file(adapters->at("weights"), kAdapterName);
  }
  return manifest;
}

}  // namespace penstock::train
