#include "penstock/train/data/sample_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "penstock/util/text/printable.h"

namespace penstock::train {

std::string type_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kShort:
      return "int16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

SampleSpec labelled(model::Shape shape, int64_t classes) {
  return {.inputs = {{.name = "input", .shape = std::move(shape)}},
          .targets = {.needed = true, .shape = {}, .classes = classes}};
}

SampleSpec samples_for(const model::Model& model, const model::LossSpec& loss) {
  return {.inputs = model.inputs(),
          .targets = model::targets_for(model, model::loss_for(model, loss)),
          .count_targets = model::target_count(model)};
}

std::vector<model::Shape> sizes_of(const SampleSpec& sample) {
  std::vector<model::Shape> sizes;
  for (const model::InputSpec& input : sample.inputs) sizes.push_back(input.shape);
  sizes.push_back(sample.targets.shape);
  return sizes;
}

bool is_labelled(const SampleSpec& sample) {
  return sample.inputs.size() == 1 && sample.inputs.front().type == at::kFloat &&
         sample.targets.needed && sample.targets.type == at::kLong && sample.targets.shape.empty();
}

std::string describe(at::ScalarType type, const model::Shape& shape) {
  return fmt::format("{}, {}", type_name(type),
                     shape.empty() ? "one number" : fmt::format("{}", fmt::join(shape, "x")));
}

std::string describe(const SampleSpec& sample) {
  std::string text;
  for (const model::InputSpec& input : sample.inputs) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", printable(input.name),
                        describe(input.type, input.shape));
  }
  if (!sample.targets.needed) return text + "; no targets";
  return text + fmt::format("; targets ({})", describe(sample.targets.type, sample.targets.shape));
}

}  // namespace penstock::train
