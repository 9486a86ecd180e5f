#include "penstock/runtime/device/device_links.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

using model::Tensors;
using schedule::Action;

namespace {

constexpr std::chrono::milliseconds kLook{100};

/// Of one link, the micro-batches in the order of the two ends' actions.
struct Orders {
  std::vector<MicroBatchId> sent;
  std::vector<MicroBatchId> received;
};

Message message_of(const Action& action) {
  const bool sends = schedule::is_send(action.op);
  const bool backward =
      action.op == schedule::Op::SendBackward || action.op == schedule::Op::RecvBackward;
  return {backward, sends ? action.stage : action.peer, sends ? action.peer : action.stage,
          action.micro_batch};
}

void check_order(const Message& message, const Orders& orders) {
  for (size_t i = 0; i < orders.sent.size(); ++i) {
    if (i < orders.received.size() && orders.received[i] == orders.sent[i]) continue;
    throw ConfigError(fmt::format(
        "the schedule's messages from stage {} to stage {} cannot go from GPU to GPU between "
        "ranks, "
        "where they have to be taken in the order in which they are sent: micro-batch {} is number "
        "{} of those sent, and of those taken {}; use another --fabric or another strategy",
        message.from.value, message.to.value, orders.sent[i].value, i + 1,
        i < orders.received.size() ? fmt::format("micro-batch {}", orders.received[i].value)
                                   : "there is none"));
  }
}

/// The tensors that hold anything, all of which are defined.
Tensors with_bytes(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.numel() > 0) result.push_back(tensor);
  }
  return result;
}

}  // namespace

DeviceLinks::~DeviceLinks() {
  // What is still queued belongs to a run that failed. The library lets go of the tensors before
  // they go.
  abort();
  for (auto& [key, link] : links_) {
    try {
      if (link.stream) link.stream->synchronize();
    } catch (const std::exception&) {  // the GPU says once more that the run failed
      continue;
    }
  }
}

DeviceLinks::Key DeviceLinks::key_of(const Message& message) const {
  return {table_->worker_of(message.from, message.micro_batch),
          table_->worker_of(message.to, message.micro_batch), message.backward, message.from,
          message.to};
}

bool DeviceLinks::carries(const Message& message) const {
  const std::vector<int>& rank_of = world_.site().rank_of_worker;
  const Key key = key_of(message);
  return rank_of[key.from.index()] != rank_of[key.to.index()];
}

DeviceLinks::Link& DeviceLinks::link_of(const Message& message) {
  const auto found = links_.find(key_of(message));
  PENSTOCK_CHECK(found != links_.end() && found->second.end, "no link from stage", message.from,
                 "to stage", message.to, "for micro-batch", message.micro_batch);
  return found->second;
}

void DeviceLinks::open(const schedule::Schedule& schedule,
                       const std::vector<std::unique_ptr<WorkerDevice>>& devices, Wait& wait) {
  const Site& site = world_.site();
  for (const WorkerId worker : site.own_workers()) {
    if (!devices[worker.index()]->is_host()) continue;
    throw ConfigError(fmt::format(
        "worker {} is on the CPU, and between ranks messages of this job go from GPU to GPU: "
        "expected a GPU for every worker (--device cuda), or another --fabric",
        worker.value));
  }
  table_ = std::make_unique<schedule::WorkerTable>(schedule.shape);
  std::map<Key, std::pair<Message, Orders>> needed;
  for (const std::vector<Action>& actions : schedule.workers) {
    for (const Action& action : actions) {
      if (!schedule::is_message(action.op)) continue;
      const Message message = message_of(action);
      if (!carries(message)) continue;
      auto& [example, orders] = needed[key_of(message)];
      example = message;
      (schedule::is_send(action.op) ? orders.sent : orders.received).push_back(action.micro_batch);
    }
  }
  for (const auto& [key, entry] : needed) check_order(entry.first, entry.second);
  // The same ones in the same order on every rank.
  for (const auto& [key, entry] : needed) {
    const auto [found, is_new] = links_.try_emplace(key);
    if (!is_new) continue;
    Link& link = found->second;
    LinkPlace place{.from = site.rank_of_worker[key.from.index()],
                    .to = site.rank_of_worker[key.to.index()]};
    if (place.from == site.rank || place.to == site.rank) {
      link.device = devices[(place.from == site.rank ? key.from : key.to).index()].get();
      link.stream = link.device->devices().stream(link.device->device());
      place.stream = link.stream;
    }
    link.end = world_.link(place, wait);
  }
}

at::Tensor DeviceLinks::send(const Message& message, Tensors tensors,
                             const std::vector<TensorLayout>& layout) {
  Link& link = link_of(message);
  PENSTOCK_CHECK(tensors.size() == layout.size(), tensors.size(), layout.size());
  at::Tensor defined = at::zeros({static_cast<int64_t>(layout.size())}, at::kByte);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    PENSTOCK_CHECK(tensors[i].sizes() == at::IntArrayRef(layout[i].sizes) &&
                       tensors[i].scalar_type() == layout[i].type,
                   "tensor", i, "of a message from stage", message.from, "to stage", message.to,
                   "does not fit its layout");
    tensors[i] = tensors[i].contiguous();
    defined.data_ptr<uint8_t>()[i] = 1;
  }
  link.stream->wait(link.device->compute().record());
  {
    const auto scope = link.stream->enter();
    const Tensors parts = with_bytes(tensors);
    if (!parts.empty()) link.end->send(parts);
  }
  while (!link.sent.empty() && link.sent.front().gone && link.sent.front().gone->is_done())
    link.sent.pop_front();
  link.sent.push_back({link.stream->record(), std::move(tensors)});
  return defined;
}

Tensors DeviceLinks::receive(const Message& message, const at::Tensor& defined,
                             const std::vector<TensorLayout>& layout) {
  Link& link = link_of(message);
  PENSTOCK_CHECK(defined.defined() && defined.numel() == static_cast<int64_t>(layout.size()),
                 "a message came without a word for each tensor");
  Tensors tensors(layout.size());
  {
    const auto scope = link.stream->enter();
    for (size_t i = 0; i < layout.size(); ++i) {
      if (defined.data_ptr<uint8_t>()[i] == 0) continue;
      tensors[i] = at::empty(layout[i].sizes,
                             at::TensorOptions(layout[i].type).device(link.stream->memory()));
    }
    const Tensors places = with_bytes(tensors);
    if (!places.empty()) link.end->receive(places);
  }
  link.device->compute().wait(link.stream->record());
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) link.device->compute().uses(tensor);
  }
  return tensors;
}

void DeviceLinks::abort() noexcept {
  for (auto& [key, link] : links_) {
    if (link.end) link.end->abort();
  }
}

LinkWatch::LinkWatch(DeviceLinks& links, const Fabric& fabric)
    : thread_([&links, &fabric](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any changed;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested() && !fabric.failed())
          changed.wait_for(lock, stop, kLook, [] { return false; });
        if (fabric.failed()) links.abort();
      }) {}

std::vector<TensorLayout> mask_layout(size_t tensors) {
  return {{.sizes = {static_cast<int64_t>(tensors)}, .type = at::kByte}};
}

}  // namespace penstock::runtime
