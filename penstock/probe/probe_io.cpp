#include <fmt/format.h>

#include <string_view>

#include "penstock/probe/probe.h"
#include "penstock/util/json.h"
#include "penstock/util/rounding.h"
#include "penstock/util/units.h"

namespace penstock::probe {

namespace {

/// Three significant digits, and at least `least`: more digits would not repeat in a second
/// measurement.
int64_t rounded(double value, int64_t least) {
  if (!(value >= 1)) return least;
  if (value >= 0x1p62) return int64_t{1} << 62;
  const auto whole = nearest(value);
  int64_t unit = 1;
  while (whole / unit >= 1000) unit *= 10;
  return std::max(least, (whole + unit / 2) / unit * unit);
}

template <class Format>
std::string line(std::string_view what, const Measurement& measured, Format format) {
  const auto text = [&](double value) { return format(rounded(value, 0)); };
  return fmt::format("{:<32} {:>12}   {} to {}, {} samples", what, text(measured.median),
                     text(measured.low), text(measured.high), measured.samples);
}

Json json_of(const Measurement& measured) {
  return {{"median", rounded(measured.median, 0)},
          {"low", rounded(measured.low, 0)},
          {"high", rounded(measured.high, 0)},
          {"samples", measured.samples}};
}

}  // namespace

cluster::Cluster cluster_of(const ProbeResult& result) {
  cluster::Cluster cluster;
  if (result.transport == Transport::Tcp && result.tcp_ns && result.tcp_bytes_per_s) {
    cluster.levels.push_back({"loopback", result.workers,
                              rounded(result.tcp_bytes_per_s->median, 1),
                              rounded(result.tcp_ns->median, 0), false});
  } else {
    cluster.levels.push_back({"process", result.workers,
                              rounded(result.sum_shared_bytes_per_s.median, 1),
                              rounded(result.hand_over_ns.median, 0), true});
  }
  cluster.device.name = result.machine.processor;
  // Rounded down, unlike the measurements: memory that does not exist cannot be planned with.
  const int64_t share = result.machine.memory_bytes / result.workers;
  cluster.device.memory_bytes = share - share % 100'000'000;
  if (cluster.device.memory_bytes == 0) cluster.device.memory_bytes = share;
  cluster::validate(cluster);
  return cluster;
}

std::vector<std::string> measurement_lines(const ProbeResult& result) {
  const std::string together = fmt::format("each of {} workers", result.workers);
  std::vector<std::string> lines = {
      fmt::format("{}, {} core{}, {} of memory; medians and quartiles", result.machine.processor,
                  result.machine.cores, result.machine.cores == 1 ? "" : "s",
                  format_bytes(result.machine.memory_bytes)),
      line("hand-over between threads", result.hand_over_ns, format_duration),
      line("copied message between threads", result.copied_bytes_per_s, format_bandwidth),
  };
  if (result.tcp_ns)
    lines.push_back(line("TCP latency between processes", *result.tcp_ns, format_duration));
  if (result.tcp_bytes_per_s)
    lines.push_back(line("TCP bandwidth", *result.tcp_bytes_per_s, format_bandwidth));
  lines.push_back(line("summation, one worker", result.sum_alone_bytes_per_s, format_bandwidth));
  lines.push_back(line("summation, " + together, result.sum_shared_bytes_per_s, format_bandwidth));
  lines.push_back(line("compute, one worker", result.compute_alone_flops, format_flops));
  lines.push_back(line("compute, " + together, result.compute_shared_flops, format_flops));
  return lines;
}

std::vector<std::string> notes(const ProbeResult& result) {
  constexpr double kUnsteady = 0.3;
  std::vector<std::string> found;
  if (result.workers > result.machine.cores) {
    found.push_back(
        fmt::format("{} workers share {} core{}: a profile of one worker alone is too optimistic",
                    result.workers, result.machine.cores, result.machine.cores == 1 ? "" : "s"));
  }
  if (!result.tcp_failure.empty()) found.push_back(result.tcp_failure);
  const Measurement none;
  const auto check = [&](std::string_view what, const Measurement& measured) {
    if (measured.spread() <= kUnsteady) return;
    found.push_back(fmt::format(
        "{}: the middle half of the samples spans {:.0f} % of the median; was the machine busy?",
        what, 100 * measured.spread()));
  };
  check("copied message", result.copied_bytes_per_s);
  check("TCP bandwidth", result.tcp_bytes_per_s.value_or(none));
  check("summation", result.sum_shared_bytes_per_s);
  check("compute", result.compute_shared_flops);
  return found;
}

std::string to_toml(const ProbeResult& result) {
  std::string text =
      "# Measured by penstock probe; docs/clusters.md says what the numbers mean.\n#\n";
  for (const std::string& measured : measurement_lines(result)) text += "# " + measured + "\n";
  text += fmt::format(
      "#\n# Messages of {}, sums of {}; compute is small float matrix products in portable C++, "
      "not a tuned library.\n",
      format_bytes(result.message_bytes), format_bytes(result.summed_bytes));
  for (const std::string& note : notes(result)) text += "# Note: " + note + "\n";
  text +=
      result.transport == Transport::Tcp
          ? "# The workers are processes joined by TCP: latency and bandwidth are those of TCP.\n"
          : "# The workers are threads: latency is the hand-over, bandwidth the summation with all "
            "workers at it.\n";
  return text + "\n" + cluster::to_toml(cluster_of(result));
}

std::string to_json(const ProbeResult& result) {
  Json figures = {{"hand_over_ns", json_of(result.hand_over_ns)},
                  {"copied_bytes_per_s", json_of(result.copied_bytes_per_s)}};
  figures["tcp_ns"] = result.tcp_ns ? json_of(*result.tcp_ns) : Json();
  figures["tcp_bytes_per_s"] = result.tcp_bytes_per_s ? json_of(*result.tcp_bytes_per_s) : Json();
  figures["sum_alone_bytes_per_s"] = json_of(result.sum_alone_bytes_per_s);
  figures["sum_shared_bytes_per_s"] = json_of(result.sum_shared_bytes_per_s);
  figures["compute_alone_flops"] = json_of(result.compute_alone_flops);
  figures["compute_shared_flops"] = json_of(result.compute_shared_flops);
  const Json document = {{"processor", result.machine.processor},
                         {"cores", result.machine.cores},
                         {"memory_bytes", result.machine.memory_bytes},
                         {"workers", result.workers},
                         {"transport", to_string(result.transport)},
                         {"message_bytes", result.message_bytes},
                         {"summed_bytes", result.summed_bytes},
                         {"figures", figures},
                         {"notes", notes(result)},
                         {"cluster_toml", cluster::to_toml(cluster_of(result))}};
  return to_text(document);
}

}  // namespace penstock::probe
