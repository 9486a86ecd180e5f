// The command line of `penstock probe`, alone and as a rank of a job.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "penstock/probe/probe.h"
#include "penstock/util/files/json.h"
#include "tools/penstock/command/command.h"

namespace penstock::tool {

struct ProbeArguments : CommonOptions {
  probe::ProbeOptions probe;
  std::string transport = "threads";
  std::string size = "4MiB";
  std::string device = "cpu";
  std::string output;
};

CLI::App* add_probe(CLI::App& parent, ProbeArguments& arguments);

/// Writes what was measured, here or by a job, to the places that the options ask for.
template <class Result>
void write_probe(const ProbeArguments& arguments, const Result& result) {
  if (!arguments.output.empty()) write_output(arguments.output, to_toml(result));
  if (arguments.json) {
    write_output("", parse_json(to_json(result), "probe").dump() + "\n");
  } else if (arguments.output.empty()) {
    write_output("", to_toml(result));
  } else {
    std::string text;
    for (const std::string& line : measurement_lines(result)) text += line + "\n";
    for (const std::string& note : notes(result)) text += "note: " + note + "\n";
    write_output("", text);
  }
}

}  // namespace penstock::tool
