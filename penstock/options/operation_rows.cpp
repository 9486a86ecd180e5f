// The options of a training for those who start it and watch it.
#include <fmt/format.h>

#include "penstock/options/sections.h"
#include "penstock/util/error.h"

namespace penstock::options {
namespace {

using R = TrainRequest;

Slot metrics_port(R& request) {
  return named_or_none(request.operation.metrics_port, parse_port,
                       [](int port) { return fmt::to_string(port); });
}

constexpr std::array<std::string_view, 3> kLogForms = {"console", "text", "json"};

Slot log_form(R& request) { return one_of(request.operation.log, kLogForms); }

}  // namespace

std::vector<Row> operation_rows() {
  using O = OperationRequest;
  Row address = row<&R::operation, &O::metrics_address>(
      "--metrics-address",
      "Name or address of this machine at which --metrics listens; there is "
      "no password");
  address.needs = "--metrics";
  return in<R>(
      Section::Operation, "the caller's program has its own ways",
      {path(without("--check-against-serial",
                    row<&R::operation, &O::folder>(
                        "--run-folder",
                        "Write all that is needed to do the run again to this folder: "
                        "config.toml for --config, plan, environment, history, report and "
                        "results; one that holds another run is refused"))),
       row<R>("--metrics", metrics_port,
              "Show the numbers of the run at this port, http://127.0.0.1:PORT/metrics, for "
              "Prometheus; 0: any free one. Further ranks of a machine take the ports behind it"),
       std::move(address),
       row<R>("--log-format", log_form,
              "Lines on standard error: console (for people who watch), or with the time and the "
              "rank of each, as text or json (one object per line)"),
       path(row<&R::operation, &O::health_file>(
           "--health-file",
           "Write state, step and time to this file every 2 seconds while there is progress "
           "(JSON); further ranks of the job write FILE.1, FILE.2, on whichever machine they "
           "are"))});
}

}  // namespace penstock::options
