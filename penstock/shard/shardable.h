// How one layer takes part in a model that is spread over a team. Built-in layers have rules in
// layer_rules.cpp; a layer may bring its own by deriving from Shardable besides Layer, as those of
// imported programs do.
//
// Types are found from the inputs on, layer by layer (infer()). Weights whose rows may be spread
// are candidates; which of them are is the walk's to say. What an operation cannot do with a part
// it refuses: the candidates of that region stay whole, and the types are found again. Then each
// member's layer is made of what was found (pieces()).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/model/parts.h"
#include "penstock/shard/type.h"

namespace penstock::shard {

/// An operation cannot take a part of this region: it stays whole.
struct Refused {
  Region region = 0;
  std::string why;
};

/// An operation reads a part of this region as several blocks side by side, such as queries, keys
/// and values: the rows of the candidates that make it, which are as many as the blocks have
/// together, are divided block by block, and the types are found again.
struct InBlocks {
  Region region = 0;
  std::vector<int64_t> blocks = {};
};

/// While the types of one layer are found.
class Walk {
 public:
  virtual ~Walk() = default;
  Regions& regions() { return regions_; }
  /// The region and the blocks of the rows of a candidate of the layer, if it is spread; nothing:
  /// it stays whole. A part along dimension 0: whoever asks corrects the dimension where rows lie
  /// elsewhere.
  virtual std::optional<Type> spread(size_t parameter) = 0;
  /// Members of the team.
  virtual int team() const = 0;
  /// How sequences of this shape, [places, features] of a sample, are divided between the layers
  /// whose weights are spread (Korthikanti et al. 2022, section 4.2.2); nothing: they are not.
  virtual std::optional<Type> sequence(const model::Shape&) { return {}; }
  /// The same for sequences that have this many places in every micro-batch. Members may have
  /// unequal parts; nothing where there are fewer places than members, too.
  virtual std::optional<Type> fixed_sequence(int64_t) { return {}; }

 protected:
  explicit Walk(Regions& regions) : regions_(regions) {}

 private:
  Regions& regions_;
};

/// What members exchange inside of a layer's code, beside what types of values say: the hidden
/// states of a recurrence. In a backward pass it is as much again.
struct Exchanges {
  int64_t count = 0;    ///< one after another
  int64_t numbers = 0;  ///< of one sample, gathered: the parts of all members together
};

struct LayerTypes {
  std::vector<Type> inputs;   ///< as the layer reads them: equal values may be read as pending
  std::vector<Type> weights;  ///< equal, pending or part
  std::vector<Type> buffers;  ///< equal or part
  std::vector<Type> outputs;  ///< equal or part
  /// Parts of the places of sequences that the layer has asked for (Walk::fixed_sequence()).
  std::vector<Type> sequences = {};
  Exchanges inside = {};
};

/// A part of the work of a layer for one member: a layer of the model for teams. All members have
/// the same pieces, of different sizes.
struct Piece {
  /// Of its inputs: input `number` of the whole layer, or of the piece before (`piece`) its output.
  struct Source {
    std::optional<size_t> piece = {};
    size_t number = 0;
  };
  std::string suffix;  ///< behind the layer's name: "", ".sum"
  std::shared_ptr<const model::Layer> layer;
  std::vector<Source> inputs = {};
  std::vector<model::TensorPart> parameters = {};
  std::vector<model::TensorPart> buffers = {};
  LayerTypes types = {};  ///< of this piece; here outputs may be partial
};

/// The member of a team for which pieces are made, and how its parts are divided.
struct Member {
  const Regions& regions;
  int team = 1;
  int number = 0;

  /// The member's part of a tensor of these sizes.
  model::TensorPart part(const Type& type, std::vector<int64_t> whole, size_t number) const;
  int64_t length(const Type& type) const { return regions.length(type, team, this->number); }
  /// The members that have the same part as this one.
  model::TensorPart::Run copies(const Type& type) const;
  /// Of all members, for model::Division.
  std::vector<int64_t> lengths(const Type& type) const;
};

class Shardable {
 public:
  /// Shapes are of one sample, of the whole model.
  struct Shapes {
    const std::vector<model::Shape>& inputs;
    const std::vector<model::Shape>& outputs;
  };
  /// Parameters whose rows may be spread.
  virtual std::vector<size_t> candidates() const = 0;
  /// `inputs`: of the values that the layer reads: equal, or parts. Parts of the places of
  /// sequences of fixed length it may read as equal or pending instead. Throws Refused, InBlocks.
  virtual LayerTypes infer(const std::vector<Type>& inputs, const Shapes& shapes,
                           Walk& walk) const = 0;
  /// The last piece makes the layer's outputs.
  virtual std::vector<Piece> pieces(const LayerTypes& types, const Shapes& shapes,
                                    const Member& member) const = 0;
  /// Which dimension of a candidate its rows are.
  virtual size_t row_dimension(size_t parameter) const = 0;
  /// What is wrong with a piece of pieces(), found from its operations and the types of their
  /// values alone; empty: nothing.
  virtual std::vector<std::string> check(const model::Layer& piece, const LayerTypes& types,
                                         const Member& member) const = 0;

 protected:
  ~Shardable() = default;
};

}  // namespace penstock::shard
