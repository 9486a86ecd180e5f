// A world and a fabric that pass every call on to another one: the base of those that change a few
// calls (faults, counters, checks).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/runtime/fabric/world.h"

namespace penstock::runtime {

class ForwardingFabric : public Fabric {
 public:
  explicit ForwardingFabric(std::shared_ptr<Fabric> inner) : inner_(std::move(inner)) {}

  int64_t origin_ns() const override { return inner_->origin_ns(); }
  WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) override {
    return inner_->send(message, std::move(tensors), wait);
  }
  WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait) override {
    return inner_->receive(message, tensors, wait);
  }
  const std::vector<size_t>& bucket_ends(StageId stage) const override {
    return inner_->bucket_ends(stage);
  }
  bool adds_in_background(StageId stage) const override {
    return inner_->adds_in_background(stage);
  }
  void start_sum(StageId stage, int replica, size_t bucket, Partials partials) override {
    inner_->start_sum(stage, replica, bucket, std::move(partials));
  }
  WaitResult finish_sum(StageId stage, int replica, size_t bucket, BucketSum& sum,
                        Wait& wait) override {
    return inner_->finish_sum(stage, replica, bucket, sum, wait);
  }
  void start_gather(StageId stage, int replica, size_t bucket, model::Tensors weights) override {
    inner_->start_gather(stage, replica, bucket, std::move(weights));
  }
  WaitResult finish_gather(StageId stage, int replica, size_t bucket, Wait& wait) override {
    return inner_->finish_gather(stage, replica, bucket, wait);
  }
  WaitResult combine(NormShare share, NormTotals& totals, Wait& wait) override {
    return inner_->combine(std::move(share), totals, wait);
  }
  void start_exchange(const TeamExchange& exchange, model::Tensors parts,
                      const std::vector<TensorLayout>& expected) override {
    inner_->start_exchange(exchange, std::move(parts), expected);
  }
  WaitResult finish_exchange(const TeamExchange& exchange, int from, const TensorLayout& expected,
                             at::Tensor& part, Wait& wait) override {
    return inner_->finish_exchange(exchange, from, expected, part, wait);
  }
  bool begin(WorkerId worker, MiniBatchId mini_batch) override {
    return inner_->begin(worker, mini_batch);
  }
  void report(MiniBatchId mini_batch, MicroBatchId micro_batch,
              const MiniBatchStats& part) override {
    inner_->report(mini_batch, micro_batch, part);
  }
  bool failed() const override { return inner_->failed(); }
  void fail(std::exception_ptr failure) noexcept override { inner_->fail(std::move(failure)); }
  StatusBoard& board() override { return inner_->board(); }
  std::string who_waits() override { return inner_->who_waits(); }
  RunOutcome finish(Wait& wait) override { return inner_->finish(wait); }

 protected:
  Fabric& inner() { return *inner_; }

 private:
  std::shared_ptr<Fabric> inner_;
};

class ForwardingWorld : public World {
 public:
  explicit ForwardingWorld(std::unique_ptr<World> inner)
      : owned_(std::move(inner)), inner_(owned_.get()) {}
  /// Of a world that somebody else owns, and that lives longer.
  explicit ForwardingWorld(World& inner) : inner_(&inner) {}

  const Site& site() const override { return inner_->site(); }
  std::unique_ptr<Fabric> open(const RunSetup& setup, Wait& wait) override {
    return inner_->open(setup, wait);
  }
  std::vector<std::string> all_gather(const std::string& text, Wait& wait) override {
    return inner_->all_gather(text, wait);
  }
  std::vector<std::string> gather(const std::string& text, Wait& wait) override {
    return inner_->gather(text, wait);
  }
  model::Tensors average(int replicas, const std::map<int, model::Tensors>& own,
                         Wait& wait) override {
    return inner_->average(replicas, own, wait);
  }
  model::Tensors bring(int from, int to, const model::Tensors& tensors, Wait& wait) override {
    return inner_->bring(from, to, tensors, wait);
  }
  std::unique_ptr<World> aside(Wait& wait) override { return inner_->aside(wait); }
  bool has_links() const override { return inner_->has_links(); }
  std::unique_ptr<LinkEnd> link(const LinkPlace& place, Wait& wait) override {
    return inner_->link(place, wait);
  }
  WireStats wire() const override { return inner_->wire(); }

 private:
  std::unique_ptr<World> owned_;
  World* inner_;
};

}  // namespace penstock::runtime
