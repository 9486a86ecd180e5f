// A program whose file was found fit for training: what its tensors, inputs and output are.
// Internal to imported.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/exported/adapters.h"
#include "penstock/exported/program.h"
#include "penstock/imported/alias_sets.h"
#include "penstock/imported/flat_program.h"
#include "penstock/imported/import_options.h"
#include "penstock/imported/step_facts.h"
#include "penstock/imported/step_groups.h"
#include "penstock/imported/symbolic_size.h"
#include "penstock/imported/target_number.h"
#include "penstock/model/layer.h"

namespace penstock::imported {

struct TrainableProgram {
  /// Throws ConfigError where a tensor is not described, or its values are not in the file.
  const exported::TensorMeta& meta_of(const std::string& name) const;
  const exported::StoredTensor& stored(const std::string& name) const;
  /// Sizes of one sample; where the first size is not the batch, numbers per sample.
  model::Shape shape_of(const std::string& name) const;
  /// The batches that the program holds for.
  exported::SymbolRange batch_range() const;

  std::string path;
  exported::Program source;
  FlatProgram program;
  std::vector<StepFacts> facts;  ///< of its steps
  std::optional<AliasSets> aliases;
  Origins origins;
  std::map<std::string, const exported::InputRole*> role_of;  ///< of `source`
  std::vector<std::string> inputs;  ///< the user's, but for the number of targets
  std::string batch_symbol;
  int64_t batch_hint = 1;
  Symbols hints;  ///< every symbol's value in the example
  std::string output;
  bool returns_loss = false;
  std::optional<TargetNumber> target_number;  ///< where the program takes it
  std::optional<exported::Adapted> adapted;   ///< where it was given adapters
  model::FrozenType frozen = model::FrozenType::AsStored;
};

/// Throws ConfigError listing the reasons why it cannot be trained, and what read_program() and
/// add_adapters() throw.
std::unique_ptr<const TrainableProgram> read_trainable(const std::string& path,
                                                       const ImportOptions& options = {});

/// Throws ConfigError with the reasons, if there are any.
void refuse(const std::string& path, const Reasons& reasons);
/// "torch.ops.aten.conv2d.default" -> "conv2d".
std::string short_target(const std::string& target);
bool is_whole(exported::ScalarType type);

}  // namespace penstock::imported
