#include "tools/penstock/profile_arguments.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/options/rows.h"
#include "penstock/profile/device_spec.h"
#include "penstock/report/report.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/units.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/output_files.h"
#include "tools/penstock/command/row_options.h"

namespace penstock::tool {

namespace {

/// Instead of a profile: no model is needed.
void list_devices(bool as_json) {
  Json list = Json::array();
  std::string table =
      fmt::format("{:<10} {:>14} {:>12} {:>9}\n", "device", "single prec.", "bandwidth", "memory");
  for (const profile::DeviceSpec& device : profile::builtin_devices()) {
    list.push_back({{"name", device.name},
                    {"flops_per_s", device.flops_per_s},
                    {"bandwidth_bytes_per_s", device.bandwidth_bytes_per_s},
                    {"memory_bytes", device.memory_bytes}});
    table += fmt::format("{:<10} {:>7.1f} GFLOP/s {:>12} {:>9}\n", device.name,
                         static_cast<double>(device.flops_per_s) / 1e9,
                         format_bandwidth(device.bandwidth_bytes_per_s),
                         device.memory_bytes == 0 ? "-" : format_bytes(device.memory_bytes));
  }
  write_output("", as_json ? Json{{"devices", std::move(list)}}.dump() + "\n" : table);
}

/// Instead of a measurement: the profile of the whole model, of its shares in files.
void join_shares(const std::vector<std::string>& files, const options::ProfileRequest& request) {
  std::vector<profile::Share> shares;
  std::vector<NamedFile> inputs;
  for (const std::string& file : files) {
    shares.push_back(profile::load_share(file));
    inputs.push_back({"--join", file});
  }
  check_outputs({{"--output", request.output.file}}, inputs);
  write_profile(profile::join(std::move(shares), files), request.output);
}

void add_join(CLI::App& app, const options::ProfileRequest& request) {
  // As --list-devices: before --model is missed, after the options of the output.
  app.add_option_function<std::vector<std::string>>(
         "--join",
         [&app, &request](const std::vector<std::string>& files) {
           for (const auto& row : options::rows_of<options::ProfileRequest>()) {
             if (row.section != options::Section::Output &&
                 !app.get_option(std::string(row.name))->empty())
               throw ConfigError(fmt::format(
                   "{}: --join measures nothing; it goes with --output and --json", row.name));
           }
           join_shares(files, request);
           throw CLI::Success();
         },
         "Join profiles of --layers, which have each layer once, to the model's profile")
      ->type_name("FILE...");
}

}  // namespace

void write_profile(const profile::Share& share, const options::ProfileOutputRequest& output) {
  const std::string document = profile::to_json(share);
  if (!output.file.empty()) write_output(output.file, document);
  if (output.json) {
    write_output("", parse_json(document, "profile").dump() + "\n");
    return;
  }
  std::string text = report::profile_table(share.profile);
  const int layers = share.layers.count();
  if (!share.is_whole()) {
    const graph::ModelGraph& graph = share.profile.graph;
    text += fmt::format("{} of {} layers, '{}' to '{}'\n", layers, graph.num_layers(),
                        graph.layer(share.layers.first).name, graph.layer(share.layers.last).name);
  }
  if (share.measured < layers) {
    text += fmt::format("{} of {} layers timed; each of the others is equal to one of them\n",
                        share.measured, layers);
  }
  write_output("", text);
}

CLI::App* add_profile(CLI::App& parent, options::ProfileRequest& request) {
  CLI::App* app = parent.add_subcommand(
      "profile", "Measure or estimate every layer of a model: forward, backward, bytes");
  add_rows(*app, request);
  // After --json: options are handed over in the order of their definition, this one before --model
  // is missed.
  app->add_flag_callback(
      "--list-devices",
      [&request] {
        list_devices(request.output.json);
        throw CLI::Success();
      },
      "List the built-in devices and exit");
  add_join(*app, request);
  return app;
}

void check_profile(const options::ProfileRequest& request) {
  check_outputs({{"--output", request.output.file}}, {{"--model", request.model.name},
                                                      {"--device", request.run.device},
                                                      {"--config", request.file.config}});
  options::check(request);
}

}  // namespace penstock::tool
