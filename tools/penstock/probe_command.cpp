// penstock probe: measures this machine and writes the cluster file that describes it. As a rank of
// a job and for GPUs it is the training part's (training_probe_command.cpp), which can talk to the
// other ranks and has libtorch.
#include <memory>
#include <string>

#include "penstock/launch/job_environment.h"
#include "penstock/probe/probe.h"
#include "penstock/report/console/progress_bar.h"
#include "penstock/util/text/units.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/probe_arguments.h"
#include "tools/penstock/train/training_part.h"

namespace penstock::tool {

namespace {

int run_probe(ProbeArguments& options) {
  check_output("--output", options.output);
  options.probe.transport = parse_option("--transport", options.transport, probe::parse_transport);
  options.probe.message_bytes = parse_option("--size", options.size, parse_bytes);
  report::ProgressBar bar("probing");
  options.probe.progress = [&bar](int done, int total, const std::string& what) {
    bar.update(done, total, what);
  };
  const probe::ProbeResult result = probe::probe(options.probe);
  bar.finish();
  write_probe(options, result);
  return kExitYes;
}

bool is_in_job() {
  const auto job = launch::own_job();
  return job && job->ranks > 1;
}

}  // namespace

Command probe_command(CLI::App& parent, char** argv) {
  auto arguments = std::make_shared<ProbeArguments>();
  return {add_probe(parent, *arguments), [arguments, argv]() -> int {
            if (is_in_job() || arguments->device != "cpu") start_training_part(argv);
            return run_probe(*arguments);
          }};
}

}  // namespace penstock::tool
