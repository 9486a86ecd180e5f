#include "penstock/train/rank_layers.h"

#include <string>

#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/mesh/raw_message.h"
#include "penstock/runtime/fabric/world.h"

namespace penstock::train {

namespace {

std::string packed(const runtime::LayerSnapshot& layer) {
  if (!layer.here) return {};
  net::WireWriter out;
  runtime::put_tensors(out, layer.weights);
  runtime::put_tensors(out, layer.buffers);
  out.put<uint64_t>(layer.optimizer_state.size());
  for (const model::Tensors& state : layer.optimizer_state) runtime::put_tensors(out, state);
  return out.take();
}

runtime::LayerSnapshot unpacked(const std::string& text) {
  net::WireReader in(text);
  runtime::LayerSnapshot layer;
  layer.weights = runtime::get_tensors(in);
  layer.buffers = runtime::get_tensors(in);
  for (auto states = in.get<uint64_t>(); states > 0; --states)
    layer.optimizer_state.push_back(runtime::get_tensors(in));
  return layer;
}

}  // namespace

void share_layers(const runtime::Ranks& ranks, std::vector<runtime::LayerSnapshot>& layers) {
  if (ranks.world == nullptr) return;
  // Layer by layer, so that little is on its way at a time.
  for (runtime::LayerSnapshot& layer : layers) {
    runtime::Wait wait = runtime::wait_for(ranks.deadline);
    for (const std::string& text : ranks.world->all_gather(packed(layer), wait)) {
      if (!layer.here && !text.empty()) layer = unpacked(text);
    }
  }
}

}  // namespace penstock::train
