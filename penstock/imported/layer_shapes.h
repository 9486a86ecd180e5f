// The shapes of a program's layer for sequences of other lengths than those of the example.
// Internal to imported.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "penstock/exported/program.h"
#include "penstock/imported/flat_program.h"
#include "penstock/imported/symbolic_size.h"
#include "penstock/model/layer.h"

namespace penstock::imported {

/// What is known of the values that a layer reads or makes.
struct ShapeFacts {
  std::vector<std::string> names;
  std::vector<model::Shape> shapes;  ///< of one sample of the example
};

class LayerShapes {
 public:
  /// `hints`: each symbol's value in the example; `ranges`: those that the program holds for.
  LayerShapes(ShapeFacts inputs, ShapeFacts outputs, const Symbols& hints, std::string batch_symbol,
              std::map<std::string, exported::SymbolRange> ranges, const FlatProgram& program);

  /// Of one sample of each output, for inputs of these shapes. Throws ConfigError: a size that is
  /// fixed in the program, is beyond its range, is none of its multiples, or cannot be told.
  std::vector<model::Shape> outputs(const std::vector<model::Shape>& inputs) const;

 private:
  struct Value {
    std::string name;
    model::Shape shape;
    std::vector<exported::SymbolicInt> sizes;  ///< with the batch; empty: not described
    bool by_sample = false;                    ///< the first size is the batch
  };

  std::vector<Value> values_of(ShapeFacts facts, const FlatProgram& program) const;
  /// Adds what the sizes of one input say.
  void tell(const Value& input, const model::Shape& shape, Symbols& told) const;
  model::Shape shape_of(const Value& output, const Symbols& told) const;

  Symbols hints_;
  std::string batch_symbol_;
  std::map<std::string, exported::SymbolRange> ranges_;
  std::vector<Value> inputs_;
  std::vector<Value> outputs_;
};

}  // namespace penstock::imported
