// The folder of a run (--run-folder): config.toml, plan.json and environment.json when it begins,
// history.json, report.html and results.json when it ends. docs/operating.md says what is in them.
//
//   claim_run_folder(request);
//   write_run_folder(record);
//   penstock train --config FOLDER/config.toml    # does it again
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/options/request.h"
#include "penstock/plan/plan.h"

namespace penstock::job {

/// What a run was, as it was asked for.
struct RunRecord {
  options::TrainRequest asked = {};
  std::vector<std::string_view> given = {};  ///< rows that the user named
  std::string data = {};                     ///< what tells data sets apart, in a few words
  std::string model = {};                    ///< as data
  int ranks = 1;
  int64_t mini_batch_size = 0;
};

inline constexpr std::string_view kHistoryFile = "history.json";
inline constexpr std::string_view kReportFile = "report.html";
inline constexpr std::string_view kResultsFile = "results.json";

/// Whether the folder has what is written when a run begins, of this start or an earlier one.
bool holds_record(const options::TrainRequest& request);

/// A file of it.
std::string in_run_folder(const options::TrainRequest& request, std::string_view name);

/// Makes the folder, or nothing where none is asked for. Throws ConfigError for one that cannot be
/// made, or that holds something: only a resumed run may go on with it, with the checkpoints that
/// it began with, and a run that its launcher has started again, after an earlier start of the same
/// launcher's.
void claim_run_folder(const options::TrainRequest& request, bool is_restart = false);

/// The run file that does the run again, beside its plan: without what says where results go.
std::string config_of(const RunRecord& record);

/// Writes what is known when a run begins. Throws as write_file_atomic().
void write_run_folder(const RunRecord& record, const plan::Plan& plan);

}  // namespace penstock::job
