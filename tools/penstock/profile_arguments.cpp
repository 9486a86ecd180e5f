#include "tools/penstock/profile_arguments.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "penstock/profile/device_spec.h"
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

}  // namespace

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
  return app;
}

void check_profile(const options::ProfileRequest& request) {
  check_outputs({{"--output", request.output.file}},
                {{"--model", request.model.name}, {"--device", request.run.device}});
  options::check(request);
}

}  // namespace penstock::tool
