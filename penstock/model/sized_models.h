// A model for inputs of several sizes, kept as long as there are few of them.
//
//   const SizedModels sized(model);
//   const Shape output = sized.of({{12}, {9}})->output_shape();
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/util/process/mutex.h"

namespace penstock::model {

/// Keeps a reference to the model. Thread-safe.
class SizedModels {
 public:
  explicit SizedModels(const Model& model) : model_(model) {}

  /// model.for_inputs(shapes); the model itself for its own sizes and for none. Throws as
  /// Model::for_inputs().
  std::shared_ptr<const Model> of(const std::vector<Shape>& shapes) const {
    if (shapes.empty() || shapes == model_.input_shapes())
      return {std::shared_ptr<const Model>(), &model_};
    const MutexLock lock(mutex_);
    const auto found = made_.find(shapes);
    if (found != made_.end()) return found->second;
    if (made_.size() >= kMost) made_.clear();
    return made_.emplace(shapes, std::make_shared<const Model>(model_.for_inputs(shapes)))
        .first->second;
  }

 private:
  /// Then they are made anew: a program's batches may have any number of lengths.
  static constexpr size_t kMost = 256;

  const Model& model_;
  mutable Mutex mutex_;
  mutable std::map<std::vector<Shape>, std::shared_ptr<const Model>> made_ GUARDED_BY(mutex_);
};

}  // namespace penstock::model
