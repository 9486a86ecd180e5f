// What brings sums to who waits for them: the mesh, and the additions that are to be done. Internal
// to fabric/mesh.
#pragma once

#include "penstock/net/watch.h"
#include "penstock/runtime/fabric/mesh/sum_service.h"

namespace penstock::runtime {

class SumEngine final : public net::ProgressEngine {
 public:
  SumEngine(net::ProgressEngine& mesh, SumService& service) : mesh_(mesh), service_(service) {}

  bool look() override {
    const bool moved = mesh_.look();
    const auto without_watch = [this](const SumService::Task& add) {
      // Who adds for long looks for nothing: what comes meanwhile has to wake another thread.
      end_watch(/*sleeps=*/false);
      add();
      begin_watch();
    };
    return service_.help(without_watch) || moved;
  }
  bool begin_watch() override {
    watches_mesh_ = mesh_.begin_watch();
    service_.begin_help();
    return true;
  }
  void end_watch(bool sleeps) override {
    service_.end_help();
    if (watches_mesh_) mesh_.end_watch(sleeps);
  }

 private:
  net::ProgressEngine& mesh_;
  SumService& service_;
  bool watches_mesh_ = false;
};

}  // namespace penstock::runtime
