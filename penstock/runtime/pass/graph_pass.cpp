#include "penstock/runtime/pass/graph_pass.h"

#include <c10/util/Exception.h>

#include <exception>
#include <utility>

#include "penstock/model/device/copies.h"
#include "penstock/runtime/sums/stage_sums.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

using model::copies_of;
using schedule::Action;

namespace {

/// What the exception that is being handled says. Rethrows it where recording is not to blame.
std::string why_not_recorded() {
  try {
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const c10::Error& error) {
    if (model::is_out_of_memory(error)) return "the memory is too small for graphs beside the rest";
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

std::string graph_obstacle(const StageContext& context) {
  const schedule::ScheduleShape& shape = context.shape();
  if (!plan::keeps_one_version(shape.policy)) return "weights have several versions";
  if (context.moved != nullptr) return "delays are compensated";
  if (context.run.splits_backward[context.stage().index()]) return "backward passes are split";
  if (shape.recomputes(context.stage())) return "the stage recomputes";
  if (shape.offloads(context.stage())) return "activations move to the host";
  if (context.loss_scale != nullptr) return "the loss is scaled";
  if (context.team != nullptr) return "a team's members meet inside of it";
  if (context.carries()) return "states are carried from window to window";
  return context.module().random_layer();
}

GraphPass::GraphPass(const StageContext& context, StageSums& sums,
                     std::unique_ptr<TapePass> by_tape)
    : context_(context),
      sums_(sums),
      graphs_(*context.replica.graphs),
      by_tape_(std::move(by_tape)),
      shares_activations_(context.shape().policy == schedule::WeightPolicy::Current),
      // The next B writes over them, before which the only micro-batch of a step has made its step.
      keeps_gradients_(context.shape().accumulate == 1 && context.num_replicas() == 1) {}

void GraphPass::give_back(StageGraph*& graph) {
  if (graph != nullptr) graphs_.give_back(*std::exchange(graph, nullptr));
}

StageGraph* GraphPass::take(const Action& action, const InFlight& record) {
  if (!graphs_.obstacle().empty()) return nullptr;
  sums_.complete();  // the graph has no place to wait for weights
  Replica& replica = context_.replica;
  const model::Tensors& weights = replica.weights.at(action.version);
  StageGraph* graph =
      graphs_.take(weights, record.inputs, by_tape_->segment_ends(), replica.buffers);
  if (graph == nullptr) return nullptr;
  try {
    graph->prepare_forward(weights, record.inputs, context_.forward_context(action));
  } catch (const std::exception&) {
    graphs_.refuse(why_not_recorded());
    give_back(graph);
  }
  return graph;
}

model::LossResult GraphPass::forward(const Action& action, InFlight& record) {
  if (shares_activations_) give_back(graph_of(record));
  StageGraph* const graph = take(action, record);
  if (graph == nullptr) return by_tape_->forward(action, record);
  by_tape_->begin(action, record, /*in_place=*/true);
  const model::Tensors& outputs = graph->forward();
  context_.replica.has_trained = true;
  graph_of(record) = graph;
  record.inputs.clear();
  model::LossResult loss;
  if (context_.makes_output()) {
    loss =
        record.loss.forward(context_.run.loss, outputs[context_.module().model_outputs().front()],
                            graph->output_needs_gradient(), context_.targets(action.micro_batch),
                            context_.size_of(action));
  }
  if (!context_.module().target_stages().empty()) record.outputs = copies_of(outputs);
  return loss;
}

void GraphPass::receive(InFlight& record, StageId from, model::Tensors parts) {
  if (graph_of(record) != nullptr)
    record.received[from] = std::move(parts);
  else
    by_tape_->receive(record, from, std::move(parts));
}

model::Tensors GraphPass::message(InFlight& record, StageId to) {
  const auto made = record.messages.find(to);
  return made == record.messages.end() ? by_tape_->message(record, to) : std::move(made->second);
}

void GraphPass::backward(const Action& action, InFlight& record) {
  if (graph_of(record) != nullptr && run_backward(action, record)) return;
  // Gradients that came for a graph.
  for (auto& [from, parts] : record.received) by_tape_->receive(record, from, std::move(parts));
  record.received.clear();
  by_tape_->backward(action, record);
}

bool GraphPass::run_backward(const Action& action, InFlight& record) {
  StageGraph*& graph = graph_of(record);
  const at::Tensor loss_gradient = record.loss.is_open() ? record.loss.backward() : at::Tensor();
  try {
    graph->prepare_backward(record.received, loss_gradient);
  } catch (const std::exception&) {
    graphs_.refuse(why_not_recorded());
    leave(action, record);
    if (loss_gradient.defined())
      record.gradients.add(context_.module().loss_place(), loss_gradient);
    return false;
  }
  const StageGraph::Made& made = graph->backward();
  sums_.add(action, [&](const StageTape::Made&) {
    return keeps_gradients_ ? made.weights : copies_of(made.weights);
  });
  for (const auto& [to, parts] : made.messages) record.messages[to] = copies_of(parts);
  give_back(graph);
  record.received.clear();
  return true;
}

void GraphPass::leave(const Action& action, InFlight& record) {
  StageGraph*& graph = graph_of(record);
  // B runs F of the newest micro-batch again.
  if (shares_activations_) return give_back(graph);
  // The replica's own buffers include this micro-batch already.
  model::Tensors buffers = copies_of(graph->buffers_before());
  const model::Tensors inputs = copies_of(graph->inputs());
  give_back(graph);
  StageTape& tape = record.activations.tape.emplace(context_.module(), by_tape_->segment_ends());
  tape.forward(context_.replica.weights.at(action.version), buffers, inputs,
               context_.forward_context(action));
}

}  // namespace penstock::runtime
