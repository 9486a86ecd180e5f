// The options of a training for those who start it and watch it.
#include "penstock/options/sections.h"

namespace penstock::options {
namespace {

using R = TrainRequest;

}  // namespace

std::vector<Row> operation_rows() {
  return in<R>(Section::Operation, "the caller's program has its own ways",
               {path(without("--check-against-serial",
                             row<&R::operation, &OperationRequest::folder>(
                                 "--run-folder",
                                 "Write all that is needed to do the run again to this folder: "
                                 "config.toml for --config, plan, environment, history, report and "
                                 "results; one that holds another run is refused")))});
}

}  // namespace penstock::options
