#include "tools/penstock/train/run_watch.h"

#include <fmt/format.h>

#include <string>

#include "penstock/launch/job_environment.h"
#include "penstock/util/error.h"

namespace penstock::tool {

namespace {

constexpr int kLastPort = 65535;
constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

int port_of(int first, int local_rank) {
  if (first == 0) return 0;
  if (first + local_rank <= kLastPort) return first + local_rank;
  throw ConfigError(
      fmt::format("--metrics {}: rank {} of this machine would need port {}: "
                  "expected at most {}",
                  first, local_rank, first + local_rank, kLastPort));
}

}  // namespace

RunWatch::RunWatch(const options::TrainRequest& request, const job::Listener& listener) {
  const auto own = launch::own_job();
  const int rank = own ? own->rank : 0;
  const int local = own ? own->local_rank : 0;
  const options::OperationRequest& asked = request.operation;
  if (!asked.health_file.empty())
    health_.emplace(rank == 0 ? asked.health_file : fmt::format("{}.{}", asked.health_file, rank),
                    rank);
  if (!asked.metrics_port) return;
  metrics_.emplace(rank);
  const auto answer = [this, address = asked.metrics_address](const live::Request& one) {
    // Browsers that a hostile page leads here have its name as Host. Where all the network may
    // ask, names of any form lead here.
    const std::string_view host = one.at_loopback ? std::string_view(address) : "";
    if (live::Answer refusal = live::checked(one, host); refusal.status != 200) return refusal;
    if (one.path != "/metrics")
      return live::text_answer(404, "The numbers of this training are at /metrics.\n");
    live::Answer numbers = live::typed_answer(200, kMetricsType);
    numbers.body = metrics_->text();
    return numbers;
  };
  try {
    server_.emplace(answer, live::HttpServerOptions{.host = asked.metrics_address,
                                                    .port = port_of(*asked.metrics_port, local)});
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--metrics: {}", error.what()));
  }
  listener.tell(fmt::format("{}metrics at {}metrics\n",
                            own && own->ranks > 1 ? fmt::format("rank {}: ", rank) : "",
                            server_->url()));
}

RunWatch::Training::Training(RunWatch& watch, const job::PreparedRun& run) : watch_(watch) {
  if (watch.metrics_) watch.metrics_->begin(run);
  if (watch.health_) watch.health_->begin();
}

RunWatch::Training::~Training() {
  if (watch_.metrics_) watch_.metrics_->end();
}

train::TrainObserver* RunWatch::with(train::TrainObserver* observer) {
  if (!metrics_ && !health_) return observer;
  if (observer != nullptr) all_.add(observer);
  if (metrics_) all_.add(&*metrics_);
  if (health_) all_.add(&*health_);
  return &all_;
}

void RunWatch::end(bool interrupted) {
  if (health_) health_->end(interrupted ? "interrupted" : "done");
}

}  // namespace penstock::tool
