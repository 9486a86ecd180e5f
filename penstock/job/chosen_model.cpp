#include "penstock/job/chosen_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "penstock/imported/import_model.h"
#include "penstock/model/device/tensor_memory.h"
#include "penstock/model/zoo.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::job {

namespace {

model::Shape parse_shape(const std::string& text) {
  model::Shape shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1) break;
    shape.push_back(size);
    if (next == end) return shape;
    if (*next != 'x') break;
    at = next + 1;
  }
  throw ConfigError(fmt::format("--input: expected sizes such as 1x28x28, found '{}'", text));
}

model::ModelSpec spec_of(const options::ModelRequest& request) {
  return {.name = request.name,
          .classes = request.classes,
          .width = request.width,
          .depth = request.depth,
          .kernel = request.kernel,
          .heads = request.heads,
          .embedding = request.embedding,
          .dropout = request.dropout,
          .untied = request.untied};
}

}  // namespace

imported::ImportOptions import_options(const options::ModelRequest& request) {
  imported::ImportOptions made{.frozen = request.frozen_weights};
  if (request.lora) {
    made.adapters = {.rank = *request.lora,
                     .alpha = request.lora_alpha,
                     .targets = exported::parse_adapter_targets(request.lora_targets)};
  }
  return made;
}

model::Model chosen_model(const options::ModelRequest& request) {
  // Of what is made here, trained weights become those of stages.
  const model::MemoryScope scope(MemoryKind::Constants);
  if (imported::is_program_file(request.name)) {
    if (spec_of(request) != model::ModelSpec{.name = request.name} || !request.input.empty()) {
      throw ConfigError(
          "--classes, --width, --depth, --kernel, --heads, --untied, --embedding, --dropout and "
          "--input are "
          "for the models that come with penstock; a .pt2 file has its own sizes");
    }
    return imported::import_model(request.name, import_options(request));
  }
  if (request.lora || request.frozen_weights != model::FrozenType::AsStored) {
    throw ConfigError(
        fmt::format("{} is for programs of torch.export.save (FILE.pt2); --model is '{}'",
                    request.lora ? "--lora" : "--frozen-weights", printable(request.name)));
  }
  const bool is_known =
      std::any_of(model::zoo().begin(), model::zoo().end(),
                  [&](const model::ZooEntry& entry) { return entry.name == request.name; });
  std::error_code ignored;
  if (!is_known && std::filesystem::exists(request.name, ignored)) {
    throw ConfigError(
        fmt::format("--model '{}' is a file or folder, but its name does not end in .pt2, as those "
                    "of programs of torch.export.save do",
                    printable(request.name)));
  }
  model::ModelSpec spec = spec_of(request);
  if (!request.input.empty()) spec.input_shape = parse_shape(request.input);
  try {
    return model::make_model(spec);
  } catch (const ConfigError& error) {
    if (is_known) throw;
    throw ConfigError(
        fmt::format("{}; or a program of torch.export.save (FILE.pt2)", error.what()));
  }
}

model::Model model_of_task(const options::ModelRequest& request, frames::Task task,
                           const model::Shape& frame, int classes) {
  model::ModelSpec spec = spec_of(request);
  spec.input_shape = frame;
  spec.classes =
      frames::outputs_of(task, {.channels = static_cast<int>(frame.front()), .classes = classes});
  spec.per_pixel = is_per_pixel(task);
  return model::make_model(spec);
}

model::Shape chosen_input(const options::ModelRequest& request) {
  if (!request.input.empty()) return parse_shape(request.input);
  for (const model::ZooEntry& entry : model::zoo()) {
    if (entry.name == request.name) return entry.input_shape;
  }
  return {};
}

}  // namespace penstock::job
