#include "penstock/runtime/fabric/local/local_world.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/runtime/fabric/local/local_fabric.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

/// What the ranks of one process share: a place for each to put something, and a barrier around it.
struct Hub {
  explicit Hub(int ranks)
      : barrier(ranks),
        setups(static_cast<size_t>(ranks)),
        texts(static_cast<size_t>(ranks)),
        tensors(static_cast<size_t>(ranks)) {}

  /// Blocks until all ranks are here.
  void meet(const char* what, Wait& wait) {
    if (barrier.wait(wait) != WaitResult::Ready)
      throw TimeoutError(fmt::format("another rank did not come to {}", what));
  }

  Barrier barrier;
  std::vector<const RunSetup*> setups;
  std::shared_ptr<LocalRun> run;
  std::vector<std::string> texts;
  std::vector<std::map<int, model::Tensors>> tensors;
  std::shared_ptr<Hub> aside;
};

class LocalWorld : public World {
 public:
  LocalWorld(std::shared_ptr<Hub> hub, Site site) : hub_(std::move(hub)), site_(std::move(site)) {}

  const Site& site() const override { return site_; }
  std::unique_ptr<Fabric> open(const RunSetup& setup, Wait& wait) override;
  std::vector<std::string> all_gather(const std::string& text, Wait& wait) override;
  std::vector<std::string> gather(const std::string& text, Wait& wait) override {
    auto texts = all_gather(text, wait);
    return site_.rank == 0 ? std::move(texts) : std::vector<std::string>{};
  }
  model::Tensors average(int replicas, const std::map<int, model::Tensors>& own,
                         Wait& wait) override;
  model::Tensors bring(int from, int to, const model::Tensors& tensors, Wait& wait) override;
  std::unique_ptr<World> aside(Wait& wait) override;

 private:
  size_t rank() const { return static_cast<size_t>(site_.rank); }

  std::shared_ptr<Hub> hub_;
  Site site_;
};

std::unique_ptr<Fabric> LocalWorld::open(const RunSetup& setup, Wait& wait) {
  hub_->setups[rank()] = &setup;
  hub_->meet("the start of a run", wait);
  if (site_.rank == 0) hub_->run = std::make_shared<LocalRun>(hub_->setups);
  hub_->meet("the start of a run", wait);
  std::shared_ptr<LocalRun> run = hub_->run;
  hub_->meet("the start of a run", wait);
  if (site_.rank == 0) hub_->run.reset();
  return std::make_unique<LocalFabric>(std::move(run), site_.rank);
}

std::vector<std::string> LocalWorld::all_gather(const std::string& text, Wait& wait) {
  hub_->texts[rank()] = text;
  hub_->meet("an exchange of texts", wait);
  std::vector<std::string> texts = hub_->texts;
  hub_->meet("an exchange of texts", wait);
  return texts;
}

model::Tensors LocalWorld::average(int replicas, const std::map<int, model::Tensors>& own,
                                   Wait& wait) {
  const at::NoGradGuard no_grad;
  hub_->tensors[rank()] = own;
  hub_->meet("an average", wait);
  std::map<int, model::Tensors> all;
  for (const auto& tensors : hub_->tensors) all.insert(tensors.begin(), tensors.end());
  PENSTOCK_CHECK(static_cast<int>(all.size()) == replicas, all.size(), replicas);
  model::Tensors means;
  for (size_t i = 0; !own.empty() && i < own.begin()->second.size(); ++i) {
    at::Tensor sum;
    for (const auto& [replica, tensors] : all) {
      if (sum.defined())
        sum += tensors[i];
      else
        sum = tensors[i].clone();
    }
    means.push_back(sum / static_cast<double>(replicas));
  }
  hub_->meet("an average", wait);
  hub_->tensors[rank()].clear();
  return means;
}

model::Tensors LocalWorld::bring(int from, int to, const model::Tensors& tensors, Wait& wait) {
  model::Tensors brought;
  if (from == to) return site_.rank == to ? tensors : brought;
  if (site_.rank == from) hub_->tensors[rank()][0] = tensors;
  hub_->meet("an exchange of tensors", wait);
  if (site_.rank == to) brought = hub_->tensors[static_cast<size_t>(from)].at(0);
  hub_->meet("an exchange of tensors", wait);
  if (site_.rank == from) hub_->tensors[rank()].clear();
  return brought;
}

std::unique_ptr<World> LocalWorld::aside(Wait& wait) {
  hub_->meet("a second exchange of texts", wait);
  if (site_.rank == 0) hub_->aside = std::make_shared<Hub>(site_.num_ranks());
  hub_->meet("a second exchange of texts", wait);
  std::shared_ptr<Hub> hub = hub_->aside;
  hub_->meet("a second exchange of texts", wait);
  if (site_.rank == 0) hub_->aside.reset();
  return std::make_unique<LocalWorld>(std::move(hub), site_);
}

}  // namespace

std::unique_ptr<World> make_local_world(int workers, std::vector<at::Device> device_of_worker) {
  Site site = Site::one_rank(workers);
  site.device_of_worker = std::move(device_of_worker);
  validate(site);
  return std::make_unique<LocalWorld>(std::make_shared<Hub>(1), std::move(site));
}

std::vector<std::unique_ptr<World>> make_local_ranks(const std::vector<int>& rank_of_worker) {
  Site site{.rank = 0, .rank_of_worker = rank_of_worker};
  validate(site);
  const auto hub = std::make_shared<Hub>(site.num_ranks());
  std::vector<std::unique_ptr<World>> worlds;
  for (const int ranks = site.num_ranks(); site.rank < ranks; ++site.rank)
    worlds.push_back(std::make_unique<LocalWorld>(hub, site));
  return worlds;
}

}  // namespace penstock::runtime
