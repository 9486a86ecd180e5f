// The command line of `penstock probe`, alone and as a rank of a job.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "penstock/probe/probe.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

struct ProbeArguments : CommonOptions {
  probe::ProbeOptions probe;
  std::string transport = "threads";
  std::string size = "4MiB";
  std::string output;
};

CLI::App* add_probe(CLI::App& parent, ProbeArguments& arguments);

}  // namespace penstock::tool
