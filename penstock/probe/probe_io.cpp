#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "penstock/probe/measurement_text.h"
#include "penstock/probe/probe.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/units.h"

namespace penstock::probe {

cluster::Cluster cluster_of(const ProbeResult& result) {
  cluster::Cluster cluster;
  if (result.transport == Transport::Tcp && result.tcp_ns && result.tcp_bytes_per_s) {
    cluster.levels.push_back({"loopback", result.workers,
                              three_digits(result.tcp_bytes_per_s->median, 1),
                              three_digits(result.tcp_ns->median, 0), false});
  } else {
    cluster.levels.push_back({"process", result.workers,
                              three_digits(result.sum_shared_bytes_per_s.median, 1),
                              three_digits(result.hand_over_ns.median, 0), true});
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
      measurement_line("hand-over between threads", result.hand_over_ns, format_duration),
      measurement_line("copied message between threads", result.copied_bytes_per_s,
                       format_bandwidth),
  };
  if (result.tcp_ns)
    lines.push_back(
        measurement_line("TCP latency between processes", *result.tcp_ns, format_duration));
  if (result.tcp_bytes_per_s)
    lines.push_back(measurement_line("TCP bandwidth", *result.tcp_bytes_per_s, format_bandwidth));
  lines.push_back(
      measurement_line("summation, one worker", result.sum_alone_bytes_per_s, format_bandwidth));
  lines.push_back(
      measurement_line("summation, " + together, result.sum_shared_bytes_per_s, format_bandwidth));
  lines.push_back(
      measurement_line("compute, one worker", result.compute_alone_flops, format_flops));
  lines.push_back(
      measurement_line("compute, " + together, result.compute_shared_flops, format_flops));
  return lines;
}

std::vector<std::string> notes(const ProbeResult& result) {
  std::vector<std::string> found;
  if (result.workers > result.machine.cores) {
    found.push_back(
        fmt::format("{} workers share {} core{}: a profile of one worker alone is too optimistic",
                    result.workers, result.machine.cores, result.machine.cores == 1 ? "" : "s"));
  }
  if (!result.tcp_failure.empty()) found.push_back(result.tcp_failure);
  const Measurement none;
  const auto check = [&](std::string_view what, const Measurement& measured) {
    std::string note = unsteady_note(what, measured);
    if (!note.empty()) found.push_back(std::move(note));
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
  Json figures = {{"hand_over_ns", measurement_json(result.hand_over_ns)},
                  {"copied_bytes_per_s", measurement_json(result.copied_bytes_per_s)}};
  figures["tcp_ns"] = result.tcp_ns ? measurement_json(*result.tcp_ns) : Json();
  figures["tcp_bytes_per_s"] =
      result.tcp_bytes_per_s ? measurement_json(*result.tcp_bytes_per_s) : Json();
  figures["sum_alone_bytes_per_s"] = measurement_json(result.sum_alone_bytes_per_s);
  figures["sum_shared_bytes_per_s"] = measurement_json(result.sum_shared_bytes_per_s);
  figures["compute_alone_flops"] = measurement_json(result.compute_alone_flops);
  figures["compute_shared_flops"] = measurement_json(result.compute_shared_flops);
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
