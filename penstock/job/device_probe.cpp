#include "penstock/job/device_probe.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "penstock/probe/measurement_text.h"
#include "penstock/util/error.h"
#include "penstock/util/text/units.h"

namespace penstock::job {

using model::DeviceStream;
using model::EventPtr;
using probe::Measurement;
using probe::Seconds;

namespace {

// Products grow until one takes that long: shorter ones measure how fast work is given.
constexpr double kLongEnoughNs = 2e6;
constexpr int64_t kSmallestProduct = 256;
constexpr int64_t kLargestProduct = 8192;
constexpr int kHops = 16;
constexpr int kPerDevice = 5;
constexpr int kPerLink = 2;

int64_t numbers_in(int64_t bytes) { return bytes / static_cast<int64_t>(sizeof(float)); }

/// What the stream's device takes for `work`, which gives the stream something to do.
template <class Work>
double time_on(DeviceStream& stream, Work work) {
  const EventPtr begin = stream.record(/*timed=*/true);
  work();
  const EventPtr end = stream.record(/*timed=*/true);
  end->wait_on_host();
  return std::max(1.0, static_cast<double>(end->ns_since(*begin)));
}

class Prober {
 public:
  Prober(model::Devices& devices, const std::vector<at::Device>& wanted,
         const probe::ProbeOptions& options)
      : devices_(devices), wanted_(wanted), options_(options) {
    links_ = wanted.size() == 1 ? 1 : wanted.size() * (wanted.size() - 1);
    for (const at::Device& device : wanted) streams_.push_back(devices.stream(device));
  }

  DeviceProbe run() {
    total_ = static_cast<int>(wanted_.size()) * kPerDevice + static_cast<int>(links_) * kPerLink;
    DeviceProbe result{.devices = {}, .links = {}, .message_bytes = options_.message_bytes};
    for (size_t d = 0; d < wanted_.size(); ++d) result.devices.push_back(device(d));
    add_links(result);
    tell("done");
    return result;
  }

  DeviceProbe run_links() {
    total_ = static_cast<int>(links_) * kPerLink;
    DeviceProbe result{.devices = {}, .links = {}, .message_bytes = options_.message_bytes};
    add_links(result);
    tell("done");
    return result;
  }

 private:
  void add_links(DeviceProbe& result) {
    for (size_t from = 0; from < wanted_.size(); ++from) {
      for (size_t to = 0; to < wanted_.size(); ++to) {
        if (from == to && wanted_.size() > 1) continue;
        result.links.push_back({.from = from,
                                .to = to,
                                .bytes_per_s = message_rate(from, to),
                                .latency_ns = latency(from, to)});
      }
    }
  }

  void tell(const std::string& what) {
    if (options_.progress) options_.progress(std::min(done_, total_), total_, what);
  }

  template <class Sample>
  Measurement measured(const std::string& what, Sample one) {
    tell(what);
    ++done_;
    return probe::sample(Seconds(options_.seconds / total_), one);
  }

  at::Tensor made_on(DeviceStream& stream, at::IntArrayRef sizes, at::ScalarType type) {
    const auto scope = stream.enter();
    return at::ones(sizes, at::TensorOptions().dtype(type).device(stream.memory()));
  }

  at::Tensor message_on(DeviceStream& stream) {
    return made_on(stream, {numbers_in(options_.message_bytes)}, at::kFloat);
  }

  DeviceFigures device(size_t d) {
    const std::string text = wanted_[d].str();
    return {.device = text,
            .name = devices_.name(wanted_[d]),
            .memory_bytes = devices_.memory(wanted_[d]).total,
            .flops = products(d, at::kFloat, "products on " + text),
            .short_flops = products(d, at::kBFloat16, "products of 16 bits on " + text),
            .copied_bytes_per_s = copies(d, text),
            .to_host_bytes_per_s = host_copies(d, /*to_host=*/true, text + " to the host"),
            .from_host_bytes_per_s = host_copies(d, /*to_host=*/false, "the host to " + text)};
  }

  Measurement products(size_t d, at::ScalarType type, const std::string& what) {
    DeviceStream& stream = *streams_[d];
    int64_t size = kSmallestProduct;
    at::Tensor factor = made_on(stream, {size, size}, type);
    const auto once = [&] {
      return time_on(stream, [&] {
        const auto scope = stream.enter();
        at::matmul(factor, factor);
      });
    };
    once();  // libraries load
    while (once() < kLongEnoughNs && size < kLargestProduct) {
      size *= 2;
      factor = made_on(stream, {size, size}, type);
      once();
    }
    const double operations = 2 * std::pow(static_cast<double>(size), 3);
    return measured(what, [&] { return operations * 1e9 / once(); });
  }

  Measurement copies(size_t d, const std::string& text) {
    DeviceStream& stream = *streams_[d];
    const int64_t bytes = std::max<int64_t>(options_.message_bytes, int64_t{64} << 20);
    const at::Tensor from = made_on(stream, {numbers_in(bytes)}, at::kFloat);
    const at::Tensor to = made_on(stream, {numbers_in(bytes)}, at::kFloat);
    return measured("copies on " + text, [&] {
      return static_cast<double>(bytes) * 1e9 / time_on(stream, [&] { stream.copy(to, from); });
    });
  }

  Measurement host_copies(size_t d, bool to_host, const std::string& what) {
    DeviceStream& stream = *streams_[d];
    const at::Tensor there = message_on(stream);
    const at::Tensor pinned = model::host_stream()->allocate_like(
        at::empty(there.sizes(), at::kFloat), /*for_transfer=*/true);
    pinned.fill_(1);
    return measured(what, [&] {
      const double ns = time_on(stream, [&] {
        if (to_host)
          stream.copy(pinned, there);
        else
          stream.copy(there, pinned);
      });
      return static_cast<double>(there.nbytes()) * 1e9 / ns;
    });
  }

  Measurement message_rate(size_t from, size_t to) {
    DeviceStream& receiver = *streams_[to];
    const at::Tensor source = message_on(*streams_[from]);
    const at::Tensor target = message_on(receiver);
    receiver.wait(streams_[from]->record());
    return measured(link_name(from, to), [&] {
      const double ns = time_on(receiver, [&] { receiver.copy(target, source); });
      return static_cast<double>(source.nbytes()) * 1e9 / ns;
    });
  }

  // There and back several times, each copy after the one before.
  Measurement latency(size_t from, size_t to) {
    const std::shared_ptr<DeviceStream> ends[] = {
        streams_[from], from == to ? devices_.stream(wanted_[to]) : streams_[to]};
    const at::Tensor numbers[] = {made_on(*ends[0], {1}, at::kFloat),
                                  made_on(*ends[1], {1}, at::kFloat)};
    for (const auto& end : ends) end->synchronize();
    return measured("latency, " + link_name(from, to), [&] {
      return probe::time_ns([&] {
               for (size_t hop = 0; hop < kHops; ++hop) {
                 DeviceStream& sender = *ends[hop % 2];
                 DeviceStream& receiver = *ends[(hop + 1) % 2];
                 receiver.wait(sender.record());
                 receiver.copy(numbers[(hop + 1) % 2], numbers[hop % 2]);
               }
               ends[kHops % 2]->synchronize();
             }) /
             kHops;
    });
  }

  std::string link_name(size_t from, size_t to) const {
    return wanted_[from].str() + " to " + wanted_[to].str();
  }

  model::Devices& devices_;
  const std::vector<at::Device>& wanted_;
  const probe::ProbeOptions& options_;
  std::vector<std::shared_ptr<DeviceStream>> streams_;
  size_t links_ = 0;
  int total_ = 0;
  int done_ = 0;
};

const DeviceLink& slowest(const DeviceProbe& probe) {
  return *std::min_element(probe.links.begin(), probe.links.end(),
                           [](const DeviceLink& one, const DeviceLink& other) {
                             return one.bytes_per_s.median < other.bytes_per_s.median;
                           });
}

double longest_latency_ns(const DeviceProbe& probe) {
  double latency = 0;
  for (const DeviceLink& link : probe.links) latency = std::max(latency, link.latency_ns.median);
  return latency;
}

std::string ends_of(const DeviceProbe& probe, const DeviceLink& link) {
  return link.from == link.to
             ? probe.devices[link.from].device + " to itself"
             : probe.devices[link.from].device + " to " + probe.devices[link.to].device;
}

cluster::Device device_of(const DeviceProbe& probe, const DeviceFigures& figures) {
  constexpr double kDigits = 100;
  const double ratio = figures.flops.median / probe.devices.front().flops.median;
  // Rounded down: memory that does not exist cannot be planned with.
  return {
      .name = figures.name,
      .memory_bytes = figures.memory_bytes - figures.memory_bytes % 100'000'000,
      .speed = std::max(std::round(ratio * kDigits) / kDigits, 1 / kDigits),
      .host_bytes_per_s = probe::three_digits(
          std::min(figures.to_host_bytes_per_s.median, figures.from_host_bytes_per_s.median), 0)};
}

// Devices of one kind differ by what measurements do.
bool is_alike(const cluster::Device& one, const cluster::Device& other) {
  constexpr double kNear = 0.05;
  return one.name == other.name && one.memory_bytes == other.memory_bytes &&
         std::abs(one.speed - other.speed) <= kNear * one.speed;
}

Json json_of(const DeviceFigures& figures) {
  return {{"device", figures.device},
          {"name", figures.name},
          {"memory_bytes", figures.memory_bytes},
          {"flops", measurement_json(figures.flops)},
          {"bfloat16_flops", measurement_json(figures.short_flops)},
          {"copied_bytes_per_s", measurement_json(figures.copied_bytes_per_s)},
          {"to_host_bytes_per_s", measurement_json(figures.to_host_bytes_per_s)},
          {"from_host_bytes_per_s", measurement_json(figures.from_host_bytes_per_s)}};
}

}  // namespace

DeviceProbe probe_devices(model::Devices& devices, const std::vector<at::Device>& wanted,
                          const probe::ProbeOptions& options) {
  probe::check_sizes(options);
  const at::NoGradGuard no_grad;
  return Prober(devices, wanted, options).run();
}

cluster::Level measured_level(model::Devices& devices, const std::vector<at::Device>& gpus,
                              const probe::ProbeOptions& options) {
  probe::check_sizes(options);
  const at::NoGradGuard no_grad;
  const DeviceProbe probe = Prober(devices, gpus, options).run_links();
  return {.name = "process",
          .bandwidth_bytes_per_s = probe::three_digits(slowest(probe).bytes_per_s.median, 1),
          .latency_ns = probe::three_digits(longest_latency_ns(probe), 0),
          .sums_wait = true};
}

cluster::Cluster cluster_of(const DeviceProbe& probe) {
  cluster::Cluster cluster;
  const auto count = static_cast<int>(probe.devices.size());
  cluster.levels.push_back({"machine", count,
                            probe::three_digits(slowest(probe).bytes_per_s.median, 1),
                            probe::three_digits(longest_latency_ns(probe), 0), false});
  cluster.levels.front().sums_wait = true;
  cluster.device = device_of(probe, probe.devices.front());
  for (int d = 1; d < count; ++d) {
    const cluster::Device device = device_of(probe, probe.devices[static_cast<size_t>(d)]);
    if (is_alike(cluster.device, device)) continue;
    if (!cluster.groups.empty() && cluster.groups.back().first + cluster.groups.back().count == d &&
        is_alike(cluster.groups.back().device, device))
      ++cluster.groups.back().count;
    else
      cluster.groups.push_back({d, 1, device});
  }
  cluster::validate(cluster);
  return cluster;
}

std::vector<std::string> measurement_lines(const DeviceProbe& probe) {
  std::vector<std::string> lines;
  for (const DeviceFigures& figures : probe.devices) {
    lines.push_back(fmt::format(
        "{}: {}{}; medians and quartiles", figures.device, figures.name,
        figures.memory_bytes > 0 ? ", " + format_bytes(figures.memory_bytes) + " of memory" : ""));
    const auto add = [&](std::string_view what, const Measurement& measured, auto format) {
      lines.push_back(measurement_line("  " + std::string(what), measured, format));
    };
    add("compute, float32", figures.flops, format_flops);
    add("compute, bfloat16", figures.short_flops, format_flops);
    add("copies in its memory", figures.copied_bytes_per_s, format_bandwidth);
    add("to the host", figures.to_host_bytes_per_s, format_bandwidth);
    add("from the host", figures.from_host_bytes_per_s, format_bandwidth);
  }
  for (const DeviceLink& link : probe.links) {
    lines.push_back(measurement_line(ends_of(probe, link), link.bytes_per_s, format_bandwidth));
    lines.push_back(measurement_line("  latency", link.latency_ns, format_duration));
  }
  return lines;
}

std::vector<std::string> notes(const DeviceProbe& probe) {
  std::vector<std::string> found;
  const auto check = [&](const std::string& what, const Measurement& measured) {
    std::string note = probe::unsteady_note(what, measured);
    if (!note.empty()) found.push_back(std::move(note));
  };
  for (const DeviceFigures& figures : probe.devices) check(figures.device, figures.flops);
  double fastest = 0;
  for (const DeviceLink& link : probe.links) {
    check(ends_of(probe, link), link.bytes_per_s);
    fastest = std::max(fastest, link.bytes_per_s.median);
  }
  const DeviceLink& least = slowest(probe);
  if (fastest > 1.5 * least.bytes_per_s.median) {
    found.push_back(fmt::format(
        "the links differ: the cluster file has the slowest of them for all, {}; describe faster "
        "groups as a level of their own",
        ends_of(probe, least)));
  }
  if (probe.devices.size() == 1)
    found.emplace_back("one device: its bandwidth is that of messages to itself");
  return found;
}

std::string to_toml(const DeviceProbe& probe) {
  std::string text =
      "# Measured by penstock probe --device; docs/devices.md says what the numbers mean.\n#\n";
  for (const std::string& line : measurement_lines(probe)) text += "# " + line + "\n";
  text += fmt::format("#\n# Messages of {}.\n", format_bytes(probe.message_bytes));
  for (const std::string& note : notes(probe)) text += "# Note: " + note + "\n";
  return text + "\n" + cluster::to_toml(cluster_of(probe));
}

std::string to_json(const DeviceProbe& probe) {
  Json devices = Json::array();
  for (const DeviceFigures& figures : probe.devices) devices.push_back(json_of(figures));
  Json links = Json::array();
  for (const DeviceLink& link : probe.links) {
    links.push_back({{"from", probe.devices[link.from].device},
                     {"to", probe.devices[link.to].device},
                     {"bytes_per_s", measurement_json(link.bytes_per_s)},
                     {"latency_ns", measurement_json(link.latency_ns)}});
  }
  const Json document = {{"message_bytes", probe.message_bytes},
                         {"devices", devices},
                         {"links", links},
                         {"notes", notes(probe)},
                         {"cluster_toml", cluster::to_toml(cluster_of(probe))}};
  return to_text(document);
}

}  // namespace penstock::job
