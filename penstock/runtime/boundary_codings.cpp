#include "penstock/runtime/boundary_codings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "penstock/runtime/coding/coded_tensor.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::runtime {

BoundaryCodings::BoundaryCodings(const std::vector<CodedBoundary>& boundaries,
                                 const std::vector<schedule::TeamPlace>& teams,
                                 const BatchSource& source, MessageLayout layout)
    : teams_(teams), source_(source), layout_(std::move(layout)) {
  for (const CodedBoundary& boundary : boundaries) {
    if (!boundary.coding.is_exact()) codings_[{boundary.from, boundary.to}] = boundary.coding;
  }
}

BoundaryCodings::Boundary BoundaryCodings::boundary_of(const Message& message) const {
  const StageId from = teams_[message.from.index()].whole;
  const StageId to = teams_[message.to.index()].whole;
  return message.backward ? Boundary{to, from} : Boundary{from, to};
}

std::string BoundaryCodings::text() const {
  std::string text;
  for (const auto& [boundary, coding] : codings_) {
    text += fmt::format("{}{} from stage {} to {}", text.empty() ? "" : ", ", to_string(coding),
                        boundary.first.value, boundary.second.value);
  }
  return text;
}

bool BoundaryCodings::codes(const Message& message) const {
  return !codings_.empty() && codings_.contains(boundary_of(message));
}

std::vector<TensorLayout> BoundaryCodings::layout(const Message& message) const {
  std::vector<TensorLayout> layouts = layout_(message);
  if (!codes(message)) return layouts;
  const plan::BoundaryCoding& coding = codings_.at(boundary_of(message));
  for (TensorLayout& layout : layouts) layout = coded_layout(layout, coding);
  return layouts;
}

model::Tensors BoundaryCodings::encode(const Message& message, model::Tensors tensors) const {
  const Boundary boundary = boundary_of(message);
  const plan::BoundaryCoding& coding = codings_.at(boundary);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    std::optional<uint32_t> seed;
    // The members of a team that have the same numbers round them alike.
    if (message.backward) {
      seed = static_cast<uint32_t>(derive_seed(source_.seed(message.micro_batch),
                                               boundary.first.value, boundary.second.value, i));
    }
    tensors[i] = runtime::encode(tensors[i], coding, seed);
  }
  return tensors;
}

model::Tensors BoundaryCodings::decode(const Message& message, model::Tensors tensors) const {
  // The end of a stream, of which nothing is known.
  if (std::none_of(tensors.begin(), tensors.end(),
                   [](const at::Tensor& tensor) { return tensor.defined(); }))
    return tensors;
  const std::vector<TensorLayout> layouts = layout_(message);
  PENSTOCK_CHECK(layouts.size() == tensors.size(), layouts.size(), tensors.size());
  const plan::BoundaryCoding& coding = codings_.at(boundary_of(message));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) tensors[i] = runtime::decode(tensors[i], layouts[i], coding);
  }
  return tensors;
}

}  // namespace penstock::runtime
