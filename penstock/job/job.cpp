#include "penstock/job/job.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <vector>

#include "penstock/job/worker_devices.h"
#include "penstock/launch/job_environment.h"
#include "penstock/net/host_id.h"
#include "penstock/net/mesh.h"
#include "penstock/net/wire.h"
#include "penstock/probe/exchange_loss.h"
#include "penstock/probe/kernels.h"
#include "penstock/probe/link_rate.h"
#include "penstock/runtime/fabric/fabrics.h"
#include "penstock/runtime/fabric/mesh/mesh_world.h"
#include "penstock/runtime/ranks.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::job {

namespace {

/// Rank 0 may profile a large model meanwhile; a rank that is gone is noticed at once.
constexpr std::chrono::hours kPlanning{24};

/// What a worker computes while sums and messages are measured: on as much memory as the weights of
/// a small layer have, which another thread on its core pushes out of the cache.
std::function<void()> some_work() {
  constexpr size_t kKernels = 16;
  return [kernels = std::vector<probe::MatrixKernel>(kKernels), next = size_t{0}]() mutable {
    kernels[next++ % kKernels].run();
  };
}

class MeshJob : public Job {
 public:
  MeshJob(const launch::JobEnvironment& job, const JobOptions& options)
      : restart_(job.restart),
        servers_(job.servers),
        devices_(options.devices),
        hub_(runtime::make_mesh_hub(net::Mesh::connect(
            {.rank = job.rank,
             .ranks = job.ranks,
             .address = job.address,
             .port = static_cast<uint16_t>(job.port),
             .token = job.token,
             .tls = options.tls.value_or(net::TlsChoice()),
             .version = PENSTOCK_VERSION "/libtorch " TORCH_VERSION,
             .other_hosts = job.local_ranks < job.ranks,
             .patience = options.patience,
             .silence = options.silence,
             // One rank of each machine says it.
             .reason = job.local_rank == 0 ? job.reason : "",
             .failure_pipe = job.failure_pipe,
             .stop = options.stop,
             .same_host_memory = runtime::fabric_row(options.fabric).same_host_memory}))) {
    std::vector<int> one_each(static_cast<size_t>(job.ranks));
    std::iota(one_each.begin(), one_each.end(), 0);
    talk_ = runtime::make_mesh_world(hub_, one_each);
    // A carrier would wait for ranks that start none.
    check_same("command", options.command);
    check_same("--fabric", to_string(options.fabric));
    runtime::fabric_row(options.fabric).start(*hub_);
    talk_ = runtime::make_mesh_world(hub_, one_each);
  }

  int rank() const override { return talk_->site().rank; }
  int ranks() const override { return talk_->site().num_ranks(); }
  int restart() const override { return restart_; }
  int servers() const override { return servers_; }

  std::vector<std::string> together(const std::function<std::string()>& part) override {
    return runtime::together(rank_list(), part);
  }

  std::string from_first(const std::function<std::string()>& part) override {
    return runtime::together(rank_list(), [&] { return is_first() ? part() : std::string(); })
        .front();
  }

  void check_same(const std::string& what, const std::string& text) override {
    const std::vector<std::string> texts = runtime::together(rank_list(), [&] { return text; });
    for (size_t r = 1; r < texts.size(); ++r) {
      if (texts[r] == texts[0]) continue;
      throw ConfigError(
          fmt::format("the ranks of a job must have the same {}: rank 0 has {}, "
                      "rank {} has {}",
                      what, texts[0], r, texts[r]));
    }
  }

  std::vector<int> hosts() override {
    return probe::numbered(together([] { return net::host_id(); }));
  }

  probe::JobLinks measure_links(std::chrono::milliseconds budget, int threads,
                                const std::atomic<bool>* stop) override;

  std::unique_ptr<runtime::World> make_world(int workers, bool may_idle) override {
    const int training = ranks() - servers_;
    if (workers < training && !may_idle) {
      throw ConfigError(
          fmt::format("the job has {} ranks{}, the plan {} worker{}: expected at least one worker "
                      "per rank that "
                      "trains (--workers {})",
                      ranks(), servers_ == 0 ? "" : fmt::format(", {} of them servers", servers_),
                      workers, workers == 1 ? "" : "s", training));
    }
    const int used = std::min(workers, training);
    std::vector<int> rank_of_worker;
    for (int64_t w = 0; w < workers; ++w)
      rank_of_worker.push_back(static_cast<int>(w * used / workers));
    return runtime::make_mesh_world(hub_, rank_of_worker, ranks() - used, hosts(),
                                    devices_for(rank_of_worker));
  }

 private:
  /// Of this rank's workers; those of the others are not known here.
  std::vector<at::Device> devices_for(const std::vector<int>& rank_of_worker) const {
    const auto own = std::count(rank_of_worker.begin(), rank_of_worker.end(), rank());
    const std::vector<at::Device> dealt_devices = dealt(devices_, static_cast<int>(own));
    if (dealt_devices.empty()) return {};
    std::vector<at::Device> devices(rank_of_worker.size(), at::kCPU);
    size_t next = 0;
    for (size_t w = 0; w < rank_of_worker.size(); ++w) {
      if (rank_of_worker[w] == rank()) devices[w] = dealt_devices[next++];
    }
    return devices;
  }
  /// Of this rank, but for its host; `training`: the hosts of the ranks that train.
  probe::RankLinks own_links(const std::vector<int>& training, std::chrono::milliseconds budget,
                             int threads, const std::atomic<bool>* stop);
  /// On all ranks, whether a link of one of them is too slow for the exchanges that show what sums
  /// take from computing: they would take minutes, and computing never waits for sums there.
  bool is_slow(const probe::MeasuredLink& link) {
    constexpr int64_t kSlow = 4'000'000;
    const std::vector<std::string> all =
        together([&] { return link.bytes_per_s > 0 && link.bytes_per_s < kSlow ? "slow" : ""; });
    return std::find(all.begin(), all.end(), "slow") != all.end();
  }
  runtime::Ranks rank_list() const { return {.world = talk_.get(), .deadline = kPlanning}; }

  int restart_;
  int servers_;
  std::vector<cluster::DeviceName> devices_;
  std::shared_ptr<runtime::MeshHub> hub_;
  std::unique_ptr<runtime::World> talk_;  ///< for what is agreed before there is a plan
};

probe::RankLinks MeshJob::own_links(const std::vector<int>& training,
                                    std::chrono::milliseconds budget, int threads,
                                    const std::atomic<bool>* stop) {
  const bool trains = rank() < std::ssize(training);
  const auto peers_in = [&](const auto& ring_of) {
    probe::LinkRing ring;
    if (trains) ring = ring_of(training, rank());
    probe::LinkPeers peers{.to = {}, .from = {}, .stop = stop};
    if (ring.to >= 0) peers.to = ring.to;
    if (ring.from >= 0) peers.from = ring.from;
    return peers;
  };
  const auto measure = [&](const auto& ring_of) {
    probe::LinkRate rate;
    runtime::between_runs(*hub_, [&](net::Mesh& mesh, uint32_t run) {
      rate = probe::measure_link(mesh, run, peers_in(ring_of), budget);
    });
    return probe::MeasuredLink{.bytes_per_s = rate.bytes_per_s, .latency_ns = rate.latency_ns};
  };
  const auto measure_losses = [&](const auto& ring_of) {
    const probe::LossOptions options{.threads = trains ? threads : 0, .work = some_work};
    probe::Losses losses;
    runtime::between_runs(*hub_, [&](net::Mesh& mesh, uint32_t run) {
      losses.exchange = probe::measure_exchange_loss(mesh, run, peers_in(ring_of), options);
    });
    runtime::between_runs(*hub_, [&](net::Mesh& mesh, uint32_t run) {
      losses.message = probe::measure_message_loss(mesh, run, peers_in(ring_of), options);
    });
    return losses;
  };
  probe::RankLinks own;
  own.in_host = measure(probe::ring_in_host);
  own.between = measure(probe::ring_between_hosts);
  const auto num_hosts = 1 + *std::max_element(training.begin(), training.end());
  if (std::ssize(training) > num_hosts && !is_slow(own.in_host))
    own.in_host_losses = measure_losses(probe::ring_in_host);
  if (num_hosts > 1 && !is_slow(own.between))
    own.between_losses = measure_losses(probe::ring_across_hosts);
  return own;
}

probe::JobLinks MeshJob::measure_links(std::chrono::milliseconds budget, int threads,
                                       const std::atomic<bool>* stop) {
  std::vector<int> training = hosts();
  training.resize(training.size() - static_cast<size_t>(servers_));
  const probe::RankLinks own = own_links(training, budget, threads, stop);
  net::WireWriter out;
  out.put(own);
  const std::string message = out.take();
  const std::vector<std::string> texts = together([&] { return message; });
  std::vector<probe::RankLinks> all;
  for (size_t r = 0; r < training.size(); ++r) {
    net::WireReader in(texts[r]);
    all.push_back(in.get<probe::RankLinks>());
    all.back().host = training[r];
  }
  return probe::summary(all, servers_);
}

using Options = std::map<std::string, std::string>;

/// Names and values in turn, for options_in() of another rank.
std::string message_of(const std::vector<std::pair<std::string, std::string>>& options) {
  net::WireWriter out;
  for (const auto& [name, value] : options) {
    out.text(name);
    out.text(value);
  }
  return out.take();
}

Options options_in(const std::string& message) {
  Options options;
  for (net::WireReader in(message); !in.empty();) {
    const std::string name(in.text());
    options[name] = in.text();
  }
  return options;
}

/// "--lr: rank 0 has 0.1, rank 1 has 0.05", one after the other; empty: the options are the same.
std::string differences(const Options& first, const Options& other, size_t rank) {
  std::set<std::string> names;
  for (const auto& [name, value] : first) names.insert(name);
  for (const auto& [name, value] : other) names.insert(name);
  const auto value_in = [](const Options& options, const std::string& name) {
    const auto found = options.find(name);
    return found == options.end() || found->second.empty() ? "none" : found->second;
  };
  std::string text;
  for (const std::string& name : names) {
    const std::string ours = value_in(first, name);
    const std::string theirs = value_in(other, name);
    if (ours == theirs) continue;
    text += fmt::format("{}{}: rank 0 has {}, rank {} has {}", text.empty() ? "" : "; ", name, ours,
                        rank, theirs);
  }
  return text;
}

}  // namespace

void check_same_options(Job& job, const std::vector<std::pair<std::string, std::string>>& options) {
  const std::vector<std::string> messages = job.together([&] { return message_of(options); });
  const Options first = options_in(messages.front());
  for (size_t r = 1; r < messages.size(); ++r) {
    if (const std::string text = differences(first, options_in(messages[r]), r); !text.empty())
      throw ConfigError("the ranks of a job must have the same options: " + text);
  }
}

namespace {

/// Throws for a fabric that cannot be had, or not with TLS; warns where it has no use.
void check_fabric(const JobOptions& options, const runtime::RankInJob& job) {
  const net::FabricKind kind = options.fabric;
  const runtime::FabricRow& row = runtime::fabric_row(kind);
  std::string why = row.obstacle(job);
  if (job.ranks > 1 && row.past_connections && options.tls && *options.tls != net::TlsChoice())
    why = "what it carries goes past the connections, which alone are encrypted: take auto or tcp";
  if (!why.empty()) throw ConfigError(fmt::format("--fabric {}: {}", to_string(kind), why));
  if (job.ranks == 1 && row.only_between_ranks) {
    options.listener.tell(fmt::format(
        "warning: --fabric {} has no effect: this process is not a rank of a job of several\n",
        to_string(kind)));
  }
}

}  // namespace

std::unique_ptr<Job> Job::join(const JobOptions& asked) {
  const auto job = launch::own_job();
  JobOptions options = asked;
  if (!options.tls && job && !job->tls.empty()) options.tls = net::parse_tls(job->tls);
  const Listener& listener = options.listener;
  if (job && !job->doubt.empty()) listener.tell(fmt::format("warning: {}\n", job->doubt));
  check_fabric(options, job ? runtime::RankInJob{job->rank, job->ranks, job->launcher}
                            : runtime::RankInJob{});
  const char* servers = std::getenv("PENSTOCK_SERVERS");
  if (!job && servers != nullptr && std::string_view(servers) != "0") {
    listener.tell(fmt::format(
        "warning: PENSTOCK_SERVERS={} has no effect: this process is not a rank of a job\n",
        printable(servers)));
  }
  if (!job || job->ranks == 1) return nullptr;
  return std::make_unique<MeshJob>(*job, options);
}

}  // namespace penstock::job
