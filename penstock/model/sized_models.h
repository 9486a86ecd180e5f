// A model for inputs of several sizes, each made once.
//
//   const SizedModels sized(model);
//   const Shape& output = sized.of({{12}, {9}}).output_shape();
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

  /// model.for_inputs(shapes); the model itself for its own sizes and for none. The reference
  /// outlives this object's other calls. Throws as Model::for_inputs().
  const Model& of(const std::vector<Shape>& shapes) const {
    if (shapes.empty() || shapes == model_.input_shapes()) return model_;
    const MutexLock lock(mutex_);
    std::unique_ptr<const Model>& made = made_[shapes];
    if (!made) made = std::make_unique<const Model>(model_.for_inputs(shapes));
    return *made;
  }

 private:
  const Model& model_;
  mutable Mutex mutex_;
  mutable std::map<std::vector<Shape>, std::unique_ptr<const Model>> made_ GUARDED_BY(mutex_);
};

}  // namespace penstock::model
