// The file that `penstock train --history` writes and `penstock report` reads (docs/formats.md).
#pragma once

#include <string>

#include "penstock/job/run_summary.h"
#include "penstock/report/page/history.h"

namespace penstock::job {

/// One JSON object, a line. Behind the steps and epochs of `earlier`, a history of the same model,
/// that come before the run's own.
std::string history_json(const std::string& model, const Outcome& outcome,
                         const report::History& earlier = {});

}  // namespace penstock::job
