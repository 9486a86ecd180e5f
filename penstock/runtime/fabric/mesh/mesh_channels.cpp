#include "penstock/runtime/fabric/mesh/mesh_channels.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/runtime/fabric/stopwatch.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

using schedule::Action;

namespace {

/// Where the tensors of a message go, made when its first bytes come.
net::Place place_for(const std::shared_ptr<model::Tensors>& tensors,
                     std::vector<TensorLayout> layout, const Message& message) {
  return [tensors, layout = std::move(layout), message](const std::vector<uint64_t>& sizes) {
    const auto refuse = [&](const std::string& what) {
      throw TransportError(fmt::format(
          "sent a message of stage {} to stage {} for micro-batch {} that does not fit: {}",
          message.from.value, message.to.value, message.micro_batch.value, what));
    };
    if (sizes.size() != layout.size())
      refuse(fmt::format("expected {} tensors, found {}", layout.size(), sizes.size()));
    const model::MemoryScope scope(MemoryKind::Messages);
    std::vector<net::Memory> places;
    for (size_t i = 0; i < sizes.size(); ++i) {
      at::Tensor& tensor = tensors->emplace_back();
      if (sizes[i] != net::kAbsent) {
        tensor = at::empty(layout[i].sizes, at::TensorOptions(layout[i].type));
        if (tensor.nbytes() != sizes[i]) {
          refuse(fmt::format("expected {} bytes for tensor {} of shape {}, found {}",
                             tensor.nbytes(), i, fmt::join(layout[i].sizes, "x"), sizes[i]));
        }
      }
      places.push_back(memory_of(tensor));
    }
    return places;
  };
}

}  // namespace

MeshChannels::MeshChannels(net::Mesh& mesh, uint32_t run, const Site& site, const RunSetup& setup)
    : mesh_(mesh),
      run_(run),
      site_(site),
      table_(setup.schedule.shape),
      exchange_(setup.schedule, setup.credits),
      layout_(setup.layout),
      credits_(static_cast<size_t>(std::max<int64_t>(setup.credits, 1))) {
  for (const std::vector<Action>& actions : setup.schedule.workers) {
    for (const Action& action : actions) {
      if (!schedule::is_send(action.op)) continue;
      const Message message = message_of(action);
      const WorkerId from = table_.worker_of(message.from, message.micro_batch);
      const WorkerId to = table_.worker_of(message.to, message.micro_batch);
      const int from_rank = site.rank_of_worker[from.index()];
      const int to_rank = site.rank_of_worker[to.index()];
      if (from_rank == to_rank) continue;
      // Every rank numbers all channels, so that both sides have the same numbers.
      Channel& channel = channels_[{from, to, message.backward}];
      channel.sends = from_rank == site.rank;
      channel.receives = to_rank == site.rank;
      channel.peer = channel.sends ? to_rank : from_rank;
      if (!channel.sends && !channel.receives) continue;
      channel.sequence[message] = channel.messages.size();
      channel.messages.push_back(message);
    }
  }
  uint32_t number = 0;
  for (auto& [key, channel] : channels_) channel.number = number++;
}

void MeshChannels::start() {
  for (auto& [key, channel] : channels_) {
    for (size_t i = 0; channel.receives && i < credits_; ++i) post_next(channel);
  }
}

MeshChannels::Channel& MeshChannels::channel(const Message& message) {
  const auto found =
      channels_.find({table_.worker_of(message.from, message.micro_batch),
                      table_.worker_of(message.to, message.micro_batch), message.backward});
  PENSTOCK_CHECK(found != channels_.end(), "no channel from stage", message.from, "to stage",
                 message.to, "for micro-batch", message.micro_batch);
  return found->second;
}

net::Tag MeshChannels::tag(const Channel& channel, const Message& message) const {
  const auto found = channel.sequence.find(message);
  PENSTOCK_CHECK(found != channel.sequence.end(), "no such message: stages", message.from,
                 message.to, "micro-batch", message.micro_batch);
  return {.run = run_, .channel = channel.number, .sequence = found->second};
}

void MeshChannels::post_next(Channel& channel) {
  if (channel.next == channel.messages.size()) return;
  const Message& message = channel.messages[channel.next++];
  Posted posted{.tensors = std::make_shared<model::Tensors>(), .transfer = nullptr};
  posted.transfer = mesh_.receive(channel.peer, tag(channel, message),
                                  place_for(posted.tensors, layout_(message), message));
  channel.posted.emplace(message, std::move(posted));
}

bool MeshChannels::is_local(const Message& message) const {
  return site_.holds(table_.worker_of(message.from, message.micro_batch)) &&
         site_.holds(table_.worker_of(message.to, message.micro_batch));
}

WaitResult MeshChannels::send(const Message& message, model::Tensors tensors, Wait& wait) {
  if (is_local(message)) return exchange_.send(message, std::move(tensors), wait);
  Channel& c = channel(message);
  {
    const Stopwatch stopwatch(wait);
    while (!c.sent.empty() && c.sent.front()->is_done()) c.sent.pop_front();
    if (c.sent.size() >= credits_) {
      const WaitResult result = result_of(c.sent.front()->wait(wait.deadline));
      if (result != WaitResult::Ready) return result;
      c.sent.pop_front();
    }
  }
  OutgoingTensors out(std::move(tensors));
  c.sent.push_back(mesh_.send(c.peer, tag(c, message), out.parts(), out.keep()));
  return WaitResult::Ready;
}

WaitResult MeshChannels::receive(const Message& message, model::Tensors& tensors, Wait& wait) {
  if (is_local(message)) return exchange_.receive(message, tensors, wait);
  Channel& c = channel(message);
  const Stopwatch stopwatch(wait);
  auto found = c.posted.find(message);
  while (found == c.posted.end() && c.next < c.messages.size()) {
    post_next(c);
    found = c.posted.find(message);
  }
  PENSTOCK_CHECK(found != c.posted.end(), "message received twice: stages", message.from,
                 message.to, "micro-batch", message.micro_batch);
  const WaitResult result = result_of(found->second.transfer->wait(wait.deadline));
  if (result != WaitResult::Ready) return result;
  tensors = std::move(*found->second.tensors);
  c.posted.erase(found);
  post_next(c);
  return result;
}

}  // namespace penstock::runtime
