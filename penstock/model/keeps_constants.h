// Layers that read tensors which never change, such as frozen weights, when these are first needed.
//
//   release_constants(model.layer(id));   // they are read again when they are needed again
#pragma once

#include "penstock/model/layer.h"

namespace penstock::model {

/// A layer may derive from it, besides Layer.
class KeepsConstants {
 public:
  /// Gives back their memory, but for what is in use. Thread-safe.
  virtual void release_constants() const = 0;

 protected:
  ~KeepsConstants() = default;
};

/// Nothing happens for a layer without.
inline void release_constants(const Layer& layer) {
  if (const auto* const keeper = dynamic_cast<const KeepsConstants*>(&layer))
    keeper->release_constants();
}

}  // namespace penstock::model
