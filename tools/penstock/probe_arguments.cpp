#include "tools/penstock/probe_arguments.h"

namespace penstock::tool {

CLI::App* add_probe(CLI::App& parent, ProbeArguments& arguments) {
  CLI::App* app = parent.add_subcommand(
      "probe",
      "Measure this machine, or those of a job: links between workers, summation, compute; writes "
      "a cluster file");
  app->add_option("--workers", arguments.probe.workers,
                  "Number of workers; all are measured at the same time (default: one per core; "
                  "in a job one per rank)");
  app->add_option("--transport", arguments.transport,
                  "threads: workers are threads of one process and pass tensors by reference; tcp: "
                  "workers are processes connected over loopback (in a job the ranks say)")
      ->capture_default_str();
  app->add_option("--device", arguments.device,
                  "cpu, or the GPUs to measure, a worker on each: cuda, cuda:0, cuda:0,cuda:1 (not "
                  "in a job)")
      ->capture_default_str();
  app->add_option("--size", arguments.size,
                  "Size of the messages whose bandwidth is measured (not in a job)")
      ->capture_default_str();
  app->add_option("--seconds", arguments.probe.seconds, "Time for all measurements together")
      ->capture_default_str();
  app->add_option("-o,--output", arguments.output,
                  "Cluster file to write (TOML; default: standard output)");
  add_common(*app, arguments);
  return app;
}

}  // namespace penstock::tool
