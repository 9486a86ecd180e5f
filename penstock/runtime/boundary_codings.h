// The messages of a run in the codings of its boundaries: what a sender gives the fabric, and what
// its receiver makes of it. A boundary's coding holds for all of its messages, also for those that
// a worker hands over to itself: so results do not depend on who holds which stage. Internal to
// runtime.
//
//   if (codings.codes(message)) tensors = codings.encode(message, std::move(tensors));
//   fabric.send(message, tensors, wait);
//   ...
//   tensors = codings.decode(message, std::move(tensors));                    // at the receiver's
//
// Values are rounded to the nearest: what follows is not linear in them. Gradients in 8 bits are
// rounded at random, since all that comes of them is linear: so the gradients of weights are right
// in the mean. The seed comes from the micro-batch and the boundary alone, and every run makes the
// same.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "penstock/plan/boundary_coding.h"
#include "penstock/runtime/batch_source.h"
#include "penstock/runtime/fabric/message.h"
#include "penstock/runtime/pipeline_options.h"
#include "penstock/schedule/teams.h"

namespace penstock::runtime {

/// Immutable, so thread-safe; keeps references to `teams` and `source`.
class BoundaryCodings {
 public:
  /// `layout`: of what is not coded. `teams`: by stage.
  BoundaryCodings(const std::vector<CodedBoundary>& boundaries,
                  const std::vector<schedule::TeamPlace>& teams, const BatchSource& source,
                  MessageLayout layout);

  /// "int8 from stage 0 to 1, int8 from stage 1 to 2"; empty: none.
  std::string text() const;
  /// Whether the message is in another form than its tensors.
  bool codes(const Message& message) const;
  /// What of it travels, tensor by tensor.
  std::vector<TensorLayout> layout(const Message& message) const;

  // Of messages that are coded: tensors in the host's memory. Undefined ones stay undefined.

  model::Tensors encode(const Message& message, model::Tensors tensors) const;
  model::Tensors decode(const Message& message, model::Tensors tensors) const;

 private:
  using Boundary = std::pair<StageId, StageId>;  ///< of whole stages, towards the output
  Boundary boundary_of(const Message& message) const;

  std::map<Boundary, plan::BoundaryCoding> codings_;
  const std::vector<schedule::TeamPlace>& teams_;
  const BatchSource& source_;
  MessageLayout layout_;
};

}  // namespace penstock::runtime
