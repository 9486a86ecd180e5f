#include "penstock/runtime/fabric/mesh/mesh_world.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/mesh/mesh_fabric.h"
#include "penstock/runtime/fabric/mesh/mesh_hub.h"
#include "penstock/runtime/fabric/mesh/raw_message.h"
#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

/// A run without notes. A lost rank closes its transfers.
class QuietRun : public NoteReceiver {
 public:
  explicit QuietRun(MeshHub& hub) : hub_(hub), number_(hub.next_run()) {
    hub.begin_run(number_, *this);
  }
  ~QuietRun() override { hub_.end_run(number_); }
  QuietRun(const QuietRun&) = delete;
  QuietRun& operator=(const QuietRun&) = delete;

  uint32_t number() const { return number_; }
  void on_note(int, const std::string&) override {}
  void on_lost(int, const std::string&) override {}

 private:
  MeshHub& hub_;
  uint32_t number_;
};

class MeshWorld : public World {
 public:
  MeshWorld(std::shared_ptr<MeshHub> hub, Site site, int channel = 0)
      : hub_(std::move(hub)),
        site_(std::move(site)),
        channel_(channel),
        before_(hub_->mesh().traffic()) {}

  const Site& site() const override { return site_; }
  std::unique_ptr<Fabric> open(const RunSetup& setup, Wait& wait) override;
  std::vector<std::string> all_gather(const std::string& text, Wait& wait) override {
    return hub_->all_gather(text, wait, channel_);
  }
  std::vector<std::string> gather(const std::string& text, Wait& wait) override {
    return hub_->gather(text, wait, channel_);
  }
  std::unique_ptr<World> aside(Wait&) override {
    return std::make_unique<MeshWorld>(hub_, site_, hub_->next_channel());
  }
  model::Tensors average(int replicas, const std::map<int, model::Tensors>& own,
                         Wait& wait) override;
  model::Tensors bring(int from, int to, const model::Tensors& tensors, Wait& wait) override;
  bool has_links() const override { return hub_->link_maker() != nullptr; }
  std::unique_ptr<LinkEnd> link(const LinkPlace& place, Wait& wait) override {
    // Every rank counts every link, so that both ends give it the same name.
    const std::string name = fmt::format("link/{}", hub_->next_channel());
    if (place.from != site_.rank && place.to != site_.rank) return nullptr;
    return hub_->link_maker()(name, place, wait);
  }
  WireStats wire() const override {
    const net::Traffic traffic = hub_->mesh().traffic();
    return {.sent_bytes = traffic.sent - before_.sent,
            .received_bytes = traffic.received - before_.received,
            .clock_error_ns = hub_->mesh().clock_offset(0).error_ns};
  }

 private:
  std::shared_ptr<MeshHub> hub_;
  Site site_;
  int channel_;          ///< of its texts
  net::Traffic before_;  ///< when this world began
};

std::unique_ptr<Fabric> MeshWorld::open(const RunSetup& setup, Wait& wait) {
  auto run = std::make_unique<MeshRun>(hub_, site_, setup);
  run->open(setup, wait);
  return run;
}

model::Tensors MeshWorld::average(int replicas, const std::map<int, model::Tensors>& own,
                                  Wait& wait) {
  const at::NoGradGuard no_grad;
  net::WireWriter out;
  out.put<uint64_t>(own.size());
  for (const auto& [replica, tensors] : own) {
    out.put(replica);
    put_tensors(out, tensors);
  }
  std::map<int, model::Tensors> all;
  for (const std::string& text : hub_->all_gather(out.take(), wait, channel_)) {
    net::WireReader in(text);
    const auto count = in.get<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      const int replica = in.get<int>();
      all[replica] = get_tensors(in);
    }
  }
  PENSTOCK_CHECK(static_cast<int>(all.size()) == replicas, all.size(), replicas);
  model::Tensors means;
  for (size_t i = 0; !own.empty() && i < own.begin()->second.size(); ++i) {
    at::Tensor sum;
    for (const auto& [replica, tensors] : all)
      sum = sum.defined() ? sum.add_(tensors[i]) : tensors[i].clone();
    means.push_back(sum / static_cast<double>(replicas));
  }
  return means;
}

model::Tensors MeshWorld::bring(int from, int to, const model::Tensors& tensors, Wait& wait) {
  if (from == to) return site_.rank == to ? tensors : model::Tensors{};
  const QuietRun run(*hub_);
  const net::Tag tag{.run = run.number()};
  const auto end = [&](net::Transfer& transfer, const char* what, int peer) {
    const WaitResult result = result_of(transfer.wait(wait.deadline));
    if (result == WaitResult::Ready) return;
    hub_->check_ranks();
    throw TimeoutError(fmt::format("rank {} did not {} tensors in time", peer, what));
  };
  model::Tensors brought;
  if (site_.rank == from) {
    net::WireWriter head;
    head.put<uint64_t>(tensors.size());
    for (const at::Tensor& tensor : tensors) put_layout(head, layout_of(tensor));
    end(*send_raw(hub_->mesh(), to, tag, head.take(), tensors), "take", to);
  } else if (site_.rank == to) {
    const RawMessage message = post_raw(hub_->mesh(), from, tag);
    end(*message.transfer, "give", from);
    net::WireReader head(message.head());
    const auto count = head.get<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      const RawLayout layout = get_layout(head);
      const at::Tensor numbers = message.tensor(i, layout.type);
      brought.push_back(layout.defined ? numbers.view(layout.sizes) : numbers);
    }
  }
  return brought;
}

}  // namespace

std::shared_ptr<MeshHub> make_mesh_hub(std::unique_ptr<net::Mesh> mesh) {
  return std::make_shared<MeshHub>(std::move(mesh));
}

void between_runs(MeshHub& hub, const std::function<void(net::Mesh&, uint32_t run)>& measure) {
  const QuietRun run(hub);
  measure(hub.mesh(), run.number());
}

std::unique_ptr<World> make_mesh_world(std::shared_ptr<MeshHub> hub,
                                       std::vector<int> rank_of_worker, int servers,
                                       std::vector<int> host_of_rank,
                                       std::vector<at::Device> device_of_worker) {
  Site site{.rank = hub->rank(),
            .rank_of_worker = std::move(rank_of_worker),
            .device_of_worker = std::move(device_of_worker),
            .servers = servers,
            .host_of_rank = std::move(host_of_rank)};
  validate(site);
  if (site.num_ranks() != hub->ranks()) {
    throw ConfigError(fmt::format("the workers and servers lie on {} ranks, the job has {}",
                                  site.num_ranks(), hub->ranks()));
  }
  return std::make_unique<MeshWorld>(std::move(hub), std::move(site));
}

}  // namespace penstock::runtime
