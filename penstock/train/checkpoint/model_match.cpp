#include "penstock/train/checkpoint/model_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "penstock/train/checkpoint/adapter_files.h"
#include "penstock/train/checkpoint/tied_state.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {
namespace {

std::string describe_shapes(const std::vector<model::Shape>& shapes) {
  std::string text;
  for (const model::Shape& shape : shapes) text += fmt::format("[{}]", fmt::join(shape, ","));
  return text;
}

std::string describe_specs(const std::vector<model::ParameterSpec>& specs) {
  std::string text;
  for (const model::ParameterSpec& spec : specs)
    text += fmt::format("{}[{}]", spec.name, fmt::join(spec.shape, ","));
  return text;
}

}  // namespace

std::string graph_hash(const model::Model& model) {
  std::string text = describe_shapes(model.input_shapes());
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const graph::LayerNode& node = model.graph().layer(LayerId{i});
    text += fmt::format("\n{} {}", node.name, node.kind);
    for (const graph::ValueRef& input : node.inputs)
      text += fmt::format(" {}:{}", input.layer.value, input.output);
    for (const graph::WeightTie& tie : node.ties) {
      text += fmt::format(" {}={}:{}", tie.parameter, tie.owner.layer.value, tie.owner.parameter);
    }
    text += describe_shapes(model.output_shapes(LayerId{i}));
    text += describe_specs(model.layer(LayerId{i}).parameters()) + "|" +
            describe_specs(model.layer(LayerId{i}).buffers());
  }
  for (const graph::ValueRef& output : model.graph().outputs())
    text += fmt::format("\n{}:{}", output.layer.value, output.output);
  return fmt::format("{:016x}", hash_name(text));
}

FrozenRecord frozen_record(const model::Model& model) {
  FrozenRecord record;
  std::string text;
  for (const model::ExtraTensor& extra : model.extra_state()) {
    if (extra.frozen.empty()) continue;
    ++record.tensors;
    text += fmt::format("{}\n{}\n", extra.key, extra.frozen);
  }
  if (record.tensors > 0) record.digest = fmt::format("{:016x}", hash_name(text));
  return record;
}

namespace {

/// Of another rank, say; without them the layers would be others, which says less.
void check_same_adapters(const Manifest& manifest, const model::Model& model,
                         std::string_view place) {
  const std::string own = model.adapters() ? adapter_text(*model.adapters()) : "";
  if (manifest.adapters == own) return;
  const auto text = [](const std::string& adapters) {
    return adapters.empty() ? std::string("none") : adapters;
  };
  throw CheckpointError(
      fmt::format("{}: the checkpoint has other adapters than this run: there "
                  "{}, here {}; expected the same rank, alpha and targets",
                  place, text(manifest.adapters), text(own)));
}

}  // namespace

void check_same_model(const Manifest& manifest, const model::Model& model, std::string_view place) {
  check_same_adapters(manifest, model, place);
  const auto found = static_cast<int64_t>(manifest.layers.size());
  const int64_t expected = model.graph().num_layers();
  const auto describe_found = [&](int64_t i) {
    const ManifestLayer& layer = manifest.layers[static_cast<size_t>(i)];
    return fmt::format("'{}' ({})", layer.name, layer.kind);
  };
  const auto describe_expected = [&](int64_t i) {
    const graph::LayerNode& node = model.graph().layers()[static_cast<size_t>(i)];
    return fmt::format("'{}' ({})", node.name, node.kind);
  };
  const auto refuse = [&](const std::string& why) {
    const std::string names =
        manifest.position.model == model.name()
            ? fmt::format("a '{}' with other options", model.name())
            : fmt::format("'{}'; expected '{}'", manifest.position.model, model.name());
    throw CheckpointError(
        fmt::format("{}: the checkpoint belongs to another model ({}): {}", place, names, why));
  };
  for (int64_t i = 0; i < std::max(found, expected); ++i) {
    const std::string have = i < found ? describe_found(i) : "no more layers";
    const std::string want = i < expected ? describe_expected(i) : "no more layers";
    if (have != want) refuse(fmt::format("layer {}: expected {}, found {}", i, want, have));
  }
  for (int64_t i = 0; i < expected; ++i) {
    const bool has_state = !own_specs(model, LayerId{static_cast<int32_t>(i)}).empty();
    if (has_state == manifest.layers[static_cast<size_t>(i)].file.name.empty()) {
      refuse(fmt::format("layer {} {} {}", i, describe_expected(i),
                         has_state ? "has weights in the model but not here"
                                   : "has weights here but not in the model"));
    }
  }
  if (manifest.position.model != model.name()) refuse("the layers have the same names");
  const FrozenRecord frozen = frozen_record(model);
  if (manifest.frozen.tensors > 0 && manifest.frozen != frozen) {
    throw CheckpointError(fmt::format(
        "{}: the checkpoint was trained beside other frozen parameters: expected {} tensors with "
        "the digest {}, found {} with {}; give the file of the model that it was trained with",
        place, manifest.frozen.tensors, manifest.frozen.digest, frozen.tensors, frozen.digest));
  }
}

}  // namespace penstock::train
