// penstock probe: measures this machine and writes the cluster file that describes it.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "penstock/probe/probe.h"
#include "penstock/util/error.h"
#include "penstock/util/json.h"
#include "penstock/util/units.h"
#include "tools/penstock/command.h"
#include "tools/penstock/progress.h"

namespace penstock::tool {

namespace {

struct Options : CommonOptions {
  probe::ProbeOptions probe;
  std::string transport = "threads";
  std::string size = "4MiB";
  std::string output;
};

int run(Options& options) {
  check_output("--output", options.output);
  options.probe.transport = parse_option("--transport", options.transport, probe::parse_transport);
  options.probe.message_bytes = parse_option("--size", options.size, parse_bytes);
  ProgressBar bar("probing");
  options.probe.progress = [&bar](int done, int total, const std::string& what) {
    bar.update(done, total, what);
  };
  const probe::ProbeResult result = probe::probe(options.probe);
  bar.finish();

  if (!options.output.empty()) write_output(options.output, probe::to_toml(result));
  if (options.json) {
    write_output("", parse_json(probe::to_json(result), "probe").dump() + "\n");
  } else if (options.output.empty()) {
    write_output("", probe::to_toml(result));
  } else {
    std::string text;
    for (const std::string& line : probe::measurement_lines(result)) text += line + "\n";
    for (const std::string& note : probe::notes(result)) text += "note: " + note + "\n";
    write_output("", text);
  }
  return kExitYes;
}

}  // namespace

Command probe_command(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand(
      "probe",
      "Measure this machine: links between workers, summation, compute; writes a cluster file");
  app->add_option("--workers", options->probe.workers,
                  "Number of workers; all are measured at the same time (default: one per core)");
  app->add_option("--transport", options->transport,
                  "threads: workers are threads of one process and pass tensors by reference; tcp: "
                  "workers are processes connected over loopback")
      ->capture_default_str();
  app->add_option("--size", options->size, "Size of the messages whose bandwidth is measured")
      ->capture_default_str();
  app->add_option("--seconds", options->probe.seconds, "Time for all measurements together")
      ->capture_default_str();
  app->add_option("-o,--output", options->output,
                  "Cluster file to write (TOML; default: standard output)");
  add_common(*app, *options);
  return {app, [options]() { return run(*options); }};
}

}  // namespace penstock::tool
