// What workers tell each other between the last backward and the steps of a mini-batch (action
// NORM): the gradients of weights that stages share, and the squares of which the norm of the whole
// model's gradient is made.
//
// Tied weights: every layer that uses one holds a copy of it. Their gradients are added in the
// order of the layers, and each copy steps with the sum, so that the copies stay equal bit for bit.
// Norm: the squares of each weight tensor's gradient are summed by one replica of its stage, in
// double precision; these sums are added in the order of the layers. Neither depends on how the
// model is cut.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <vector>

#include "penstock/util/ids.h"

namespace penstock::runtime {

/// A group of tied weights whose copies lie in several stages.
struct TieGroup {
  size_t copies = 0;
  /// The first copy, in the flat list of the model's weights: where its squares are counted.
  size_t weight = 0;
  /// Whether they are: not where another member of a team counts the same numbers.
  bool counts = true;
};

/// What one worker contributes.
struct NormShare {
  struct Tied {
    size_t group = 0;
    size_t copy = 0;      ///< in the order of the layers
    at::Tensor gradient;  ///< undefined: zero
  };
  struct Squares {
    size_t weight = 0;  ///< in the flat list of the model's weights
    double sum = 0;
  };
  WorkerId worker = {};
  MiniBatchId mini_batch = {};
  /// From one replica of each stage.
  std::vector<Tied> tied = {};
  /// Groups whose sum this worker needs, ascending.
  std::vector<size_t> wanted = {};
  /// Of weights that no other stage shares; each weight from one worker.
  std::vector<Squares> squares = {};
};

/// What every worker gets.
struct NormTotals {
  double norm = 0;
  /// The sums of the wanted groups, to be read only; undefined where all copies' gradients are.
  std::map<size_t, at::Tensor> tied_sums = {};
};

}  // namespace penstock::runtime
