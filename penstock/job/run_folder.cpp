#include "penstock/job/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "penstock/job/git_state.h"
#include "penstock/launch/job_environment.h"
#include "penstock/net/host_id.h"
#include "penstock/options/rows.h"
#include "penstock/options/run_file.h"
#include "penstock/probe/machine.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"
#include "penstock/util/files/toml_text.h"

namespace penstock::job {

namespace {

namespace fs = std::filesystem;
using options::Row;
using options::Section;

constexpr std::string_view kConfigFile = "config.toml";
constexpr std::string_view kPlanFile = "plan.json";
constexpr std::string_view kEnvironmentFile = "environment.json";

/// What the plan says already, or would choose anew: not what its rounds and replicas learn by.
bool is_in_plan(const Row& row) {
  return row.section == Section::Plan && row.changes != options::Changes::Learning;
}

/// Where results go, and how the run is watched, which another run has its own ways for.
bool is_of_one_run(const Row& row) {
  return row.section == Section::Output || row.section == Section::Operation ||
         row.name == "--checkpoint" || row.needs == "--checkpoint" || row.name == "--resume" ||
         row.name == "--stopped-exit-code";
}

std::string absolute_or_empty(const std::string& path) {
  std::error_code ignored;
  return path.empty() ? path : fs::absolute(path, ignored).lexically_normal().string();
}

/// Of this process: what may change what a run computes, or how fast.
Json variables() {
  Json found = Json::object();
  for (const char* name :
       {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE",
        "ATEN_CPU_CAPABILITY", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG",
        "PENSTOCK_SERVERS", "PENSTOCK_TLS", "LD_PRELOAD"}) {
    if (const char* value = std::getenv(name)) found[name] = value;
  }
  return found;
}

/// The process that has started this one: a launcher, as long as it lives, whose name no other
/// process has. Empty: the system does not say.
std::string parent_name() {
  constexpr int kStartTime = 19;  // tokens behind the one that says the state
  const pid_t parent = getppid();
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", parent)), text);
  // Behind the program's name, which may hold anything.
  std::istringstream values(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string value;
  for (int i = 0; i <= kStartTime; ++i) values >> value;
  return values ? fmt::format("{} {} {}", net::host_id(), parent, value) : "";
}

/// Where the checkpoints are, seen from the run's folder.
std::string from_folder(const options::TrainRequest& request) {
  const std::string checkpoint = absolute_or_empty(request.run.checkpoint);
  const std::string folder = absolute_or_empty(request.operation.folder);
  return checkpoint.empty() ? "" : fs::path(checkpoint).lexically_relative(folder).string();
}

Json environment_of(const RunRecord& record) {
  const probe::Machine machine = probe::this_machine();
  utsname system{};
  uname(&system);
  std::error_code ignored;
  Json json = {{"penstock", PENSTOCK_VERSION},
               {"libtorch", TORCH_VERSION},
               {"began", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                     fmt::gmtime(std::chrono::system_clock::now()))},
               {"folder", fs::current_path(ignored).string()},
               {"model", record.model},
               {"data", record.data},
               {"checkpoint", absolute_or_empty(record.asked.run.checkpoint)},
               {"checkpoint_from_here", from_folder(record.asked)},
               {"ranks", record.ranks},
               {"started_by", parent_name()},
               {"host", system.nodename},
               {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
               {"processor", machine.processor},
               {"cores", machine.cores},
               {"memory_bytes", machine.memory_bytes},
               {"variables", variables()},
               {"git", nullptr}};
  if (const auto job = launch::own_job()) json["launcher"] = job->launcher;
  if (const auto git = git_state()) {
    json["git"] = {
        {"commit", git->commit}, {"folder", git->folder}, {"has_changes", git->has_changes}};
  }
  return json;
}

/// Whether the folder has nothing that a run would overwrite. Hidden files are those of locks.
bool holds_nothing(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (!entry.path().filename().string().starts_with('.')) return false;
  return true;
}

void require_same_run(const options::TrainRequest& request, const fs::path& folder) {
  const std::string& name = request.operation.folder;
  const fs::path file = folder / kEnvironmentFile;
  const std::string now = absolute_or_empty(request.run.checkpoint);
  if (!fs::exists(file)) {
    throw ConfigError(fmt::format(
        "--run-folder: '{}' holds other files: expected the folder of the run whose checkpoints "
        "are in '{}', or an empty one; choose another folder",
        name, now));
  }
  const Json document = parse_json(read_file(file), file.string());
  const std::string before = JsonReader(document, file.string()).at("checkpoint").text();
  // Both may have been moved, or copied, together.
  const auto from_here = document.find("checkpoint_from_here");
  const bool is_beside = from_here != document.end() && *from_here == from_folder(request);
  if (before == now || (is_beside && !now.empty())) return;
  throw ConfigError(fmt::format(
      "--run-folder: '{}' holds another run: its checkpoints are in '{}', those of this one are in "
      "'{}'; choose another folder",
      name, before, now));
}

/// Whether what the folder holds comes from an earlier start by this process's launcher.
bool is_of_this_launcher(const fs::path& folder) {
  const fs::path file = folder / kEnvironmentFile;
  if (!fs::exists(file)) return false;
  const Json document = parse_json(read_file(file), file.string());
  const std::string now = parent_name();
  const auto before = document.find("started_by");
  return !now.empty() && before != document.end() && *before == now;
}

}  // namespace

bool holds_record(const options::TrainRequest& request) {
  std::error_code ignored;
  return !request.operation.folder.empty() &&
         fs::exists(in_run_folder(request, kEnvironmentFile), ignored);
}

std::string in_run_folder(const options::TrainRequest& request, std::string_view name) {
  return (fs::path(request.operation.folder) / name).string();
}

void claim_run_folder(const options::TrainRequest& request, bool is_restart) {
  const std::string& name = request.operation.folder;
  if (name.empty()) return;
  const fs::path folder(name);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder))
    throw ConfigError(fmt::format("--run-folder: cannot make the folder '{}': {}", name,
                                  error ? error.message() : "it is a file"));
  if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
    throw ConfigError(fmt::format("--run-folder: cannot write to the folder '{}'", name));
  if (holds_nothing(folder)) return;
  if (request.run.resume) return require_same_run(request, folder);
  if (is_restart && is_of_this_launcher(folder)) return;
  throw ConfigError(fmt::format(
      "--run-folder: '{}' holds {}: choose another folder{}", name,
      fs::exists(folder / kConfigFile) ? "another run" : "other files",
      request.run.checkpoint.empty() ? "" : ", or --resume to go on with its checkpoints"));
}

std::string config_of(const RunRecord& record) {
  const options::TrainRequest usual;
  std::string left_out;
  for (const Row& row : options::train_rows()) {
    const std::string value = options::text_of(row, record.asked);
    if (!is_of_one_run(row) || value == options::text_of(row, usual)) continue;
    left_out += fmt::format("#   {} = {}\n", row.name.substr(2),
                            value == "yes" ? "true" : toml_string(value));
  }
  options::TrainRequest again = record.asked;
  again.run.batch_size = record.mini_batch_size;
  const auto is_kept = [](const Row& row) {
    return !is_in_plan(row) && !is_of_one_run(row) && row.name != "--plan";
  };
  // The plan lies beside the file, wherever that is moved to.
  return fmt::format(
      "# Does the run again: penstock train --config {}\n{}{}\n{}\n# Beside this file\nplan = "
      "{}\n",
      kConfigFile, left_out.empty() ? "" : "# Left out, as it is for one run alone:\n", left_out,
      options::run_file_text<options::TrainRequest>(again, record.given, is_kept),
      toml_string(kPlanFile));
}

void write_run_folder(const RunRecord& record, const plan::Plan& plan) {
  if (record.asked.operation.folder.empty()) return;
  const auto write = [&](std::string_view name, const std::string& text) {
    write_file_atomic(in_run_folder(record.asked, name), text);
  };
  // First what tells whose folder it is, should this process end here.
  write(kEnvironmentFile, to_text(environment_of(record)));
  write(kPlanFile, plan::to_json(plan));
  write(kConfigFile, config_of(record));
}

}  // namespace penstock::job
