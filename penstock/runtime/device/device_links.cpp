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

constexpr std::chrono::milliseconds kLinkLook{100};
constexpr std::chrono::hours kLinkIdle{24};

/// Of one link, the micro-batches in the order of the two ends' actions.
struct Orders {
  std::vector<MicroBatchId> sent;
  std::vector<MicroBatchId> received;
};

void check_order(const Message& message, const Orders& orders) {
  for (size_t i = 0; i < orders.sent.size(); ++i) {
    if (i < orders.received.size() && orders.received[i] == orders.sent[i]) continue;
    throw ConfigError(fmt::format(
        "the schedule's messages from stage {} to stage {} cannot go from GPU to GPU between "
        "ranks: "
        "there they have to be taken in the order in which they are sent, and micro-batch {} is "
        "number {} of those sent, and of those taken {}; use another fabric or another strategy",
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
  // What is still queued belongs to a run that failed.
  give_up();
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (sender_.joinable()) sender_.join();
  // The library lets go of the tensors before they go.
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

DeviceLinks::Link& DeviceLinks::link_of(const Key& key) {
  const auto found = links_.find(key);
  PENSTOCK_CHECK(found != links_.end() && found->second.end, "no link from worker", key.from,
                 "to worker", key.to, "between stages", key.from_stage, key.to_stage);
  return found->second;
}

void DeviceLinks::check_devices(const std::vector<std::unique_ptr<WorkerDevice>>& devices,
                                Wait& wait) {
  std::string on_cpu;
  for (const WorkerId worker : world_.site().own_workers()) {
    if (!devices[worker.index()]->is_host()) continue;
    on_cpu = fmt::format(
        "worker {} is on the CPU, and between ranks messages of this job go from GPU to GPU: "
        "expected a GPU for every worker, or another fabric",
        worker.value);
    break;
  }
  for (const std::string& text : world_.all_gather(on_cpu, wait)) {
    if (!text.empty()) throw ConfigError(text);
  }
}

void DeviceLinks::open(const schedule::Schedule& schedule,
                       const std::vector<std::unique_ptr<WorkerDevice>>& devices,
                       const std::vector<StageId>& exchange, std::chrono::milliseconds patience) {
  const Site& site = world_.site();
  if (!checked_) {
    Wait wait = wait_for(patience);
    check_devices(devices, wait);
    checked_ = true;
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
  for (const StageId stage : exchange) {
    for (int a = 0; a < table_->replicas(stage); ++a) {
      for (int b = 0; b < table_->replicas(stage); ++b) {
        const WorkerId from = table_->worker_of_replica(stage, a);
        const WorkerId to = table_->worker_of_replica(stage, b);
        if (site.rank_of_worker[from.index()] != site.rank_of_worker[to.index()])
          needed.try_emplace({from, to, false, stage, stage});
      }
    }
  }
  // The same ones in the same order on every rank.
  for (const auto& [key, entry] : needed) {
    if (links_.contains(key)) continue;
    Link& link = links_[key];
    LinkPlace place{.from = site.rank_of_worker[key.from.index()],
                    .to = site.rank_of_worker[key.to.index()]};
    if (place.from == site.rank || place.to == site.rank) {
      link.device = devices[(place.from == site.rank ? key.from : key.to).index()].get();
      link.stream = link.device->devices().stream(link.device->device());
      place.stream = link.stream;
    }
    if (place.from == site.rank) {
      place.on_receive = [this, &link] {
        MutexLock lock(mutex_);
        ++link.wanted;
        changed_.notify_all();
      };
    }
    Wait wait = wait_for(patience);
    link.end = world_.link(place, wait);
  }
  if (!links_.empty() && !sender_.joinable())
    sender_ = std::jthread([this] { send_what_is_wanted(); });
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
  Tensors parts = with_bytes(tensors);
  if (!parts.empty()) leave(link, std::move(parts));
  return defined;
}

void DeviceLinks::leave(Link& link, Tensors tensors) {
  model::EventPtr made = link.device->compute().record();
  MutexLock lock(mutex_);
  link.waiting.push_back({std::move(made), std::move(tensors)});
  changed_.notify_all();
}

void DeviceLinks::send_to(WorkerId own, WorkerId peer, StageId stage, const Tensors& tensors) {
  Tensors parts = with_bytes(tensors);
  if (!parts.empty()) leave(link_of(Key{own, peer, false, stage, stage}), std::move(parts));
}

model::EventPtr DeviceLinks::receive_from(WorkerId peer, WorkerId own, StageId stage,
                                          const Tensors& places, const model::EventPtr& free) {
  const Tensors parts = with_bytes(places);
  if (parts.empty()) return nullptr;
  Link& link = link_of(Key{peer, own, false, stage, stage});
  link.stream->wait(free);
  const auto scope = link.stream->enter();
  try {
    link.end->receive(parts);
  } catch (...) {
    for (const at::Tensor& part : parts) link.stream->uses(part);
    throw;
  }
  return link.stream->record();
}

DeviceLinks::Link* DeviceLinks::next_wanted() {
  for (auto& [key, link] : links_) {
    if (link.wanted > 0 && !link.waiting.empty()) return &link;
  }
  return nullptr;
}

void DeviceLinks::send_what_is_wanted() {
  while (true) {
    Link* link = nullptr;
    Kept kept;
    {
      MutexLock lock(mutex_);
      while (!ends_ && (link = next_wanted()) == nullptr) {
        changed_.wait_until(
            mutex_, std::chrono::steady_clock::now() + kLinkIdle,
            [this]() NO_THREAD_SAFETY_ANALYSIS { return ends_ || next_wanted() != nullptr; });
      }
      if (ends_) return;
      kept = std::move(link->waiting.front());
      link->waiting.pop_front();
      --link->wanted;
    }
    try {
      const auto scope = link->stream->enter();
      link->stream->wait(kept.event);
      link->end->send(kept.tensors);
      kept.event = link->stream->record();
    } catch (...) {
      MutexLock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
    MutexLock lock(mutex_);
    drop_sent(*link);
    link->sent.push_back(std::move(kept));
  }
}

void DeviceLinks::drop_sent(Link& link) {
  while (!link.sent.empty() && (!link.sent.front().event || link.sent.front().event->is_done()))
    link.sent.pop_front();
}

void DeviceLinks::drop_sent() {
  MutexLock lock(mutex_);
  for (auto& [key, link] : links_) drop_sent(link);
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

void DeviceLinks::check() {
  {
    MutexLock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }
  for (auto& [key, link] : links_) {
    if (link.end) link.end->check();
  }
}

void DeviceLinks::give_up() noexcept {
  // At once: one that waits for its device may wait for what another one has queued.
  std::vector<std::jthread> threads;
  for (auto& [key, link] : links_) {
    LinkEnd* const end = link.end.get();
    if (end == nullptr) continue;
    try {
      threads.emplace_back([end] { end->give_up(); });
    } catch (const std::exception&) {  // no thread is to be had
      end->give_up();
    }
  }
}

LinkWatch::LinkWatch(DeviceLinks& links, RunControl& fabric)
    : links_(links), thread_([&links, &fabric](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any changed;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested() && !fabric.failed()) {
          try {
            links.check();
          } catch (...) {
            fabric.fail(std::current_exception());
          }
          // The next message of a link may be a mini-batch away.
          links.drop_sent();
          changed.wait_for(lock, stop, kLinkLook, [&fabric] { return fabric.failed(); });
        }
        if (fabric.failed()) links.give_up();
      }) {}

LinkWatch::~LinkWatch() {
  thread_.request_stop();
  thread_.join();
  links_.drop_sent();
}

std::vector<TensorLayout> mask_layout(size_t tensors) {
  return {{.sizes = {static_cast<int64_t>(tensors)}, .type = at::kByte}};
}

}  // namespace penstock::runtime
