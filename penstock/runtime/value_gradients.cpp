#include "penstock/runtime/value_gradients.h"

#include "penstock/util/check.h"

namespace penstock::runtime {

ValueGradients::ValueGradients(const StageModule& module)
    : module_(&module), num_inputs_(module.inputs().size()) {
  sums_.reserve(module.num_slots() - num_inputs_);
  for (size_t slot = num_inputs_; slot < module.num_slots(); ++slot)
    sums_.emplace_back(module.num_parts(slot));
  parts_.reserve(num_inputs_);
  for (size_t i = 0; i < num_inputs_; ++i) {
    auto& parts = parts_.emplace_back();
    for (const size_t count : module.parts_sent(i)) parts.emplace_back(count);
  }
}

void ValueGradients::add(const GradientPlace& place, at::Tensor part) {
  if (place.slot >= num_inputs_) {
    sums_[place.slot - num_inputs_].put(place.position, std::move(part));
  } else if (place.part < parts_[place.slot].size()) {  // a model input has none
    parts_[place.slot][place.part].put(place.position, std::move(part));
  }
}

void ValueGradients::receive(StageId from, Tensors parts) {
  const std::vector<GradientPlace>& places = module_->gradients_from(from);
  PENSTOCK_CHECK(parts.size() == places.size(), "gradients from stage", from, parts.size(),
                 places.size());
  for (size_t i = 0; i < places.size(); ++i) add(places[i], std::move(parts[i]));
}

Tensors ValueGradients::message(StageId to) {
  Tensors parts;
  for (const size_t i : module_->inputs_from(to)) {
    for (OrderedSum& part : parts_[i]) parts.push_back(part.take());
  }
  return parts;
}

}  // namespace penstock::runtime
