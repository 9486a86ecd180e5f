#include "penstock/job/profile_cache.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/model/device/devices.h"
#include "penstock/model/profiling/layer_classes.h"
#include "penstock/options/optimizer_text.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"
#include "penstock/util/files/user_cache.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/process/processor.h"

namespace penstock::job {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;
constexpr std::string_view kFormat = "cached-profile";
constexpr std::string_view kExtension = ".json";
/// In the year 2255: nanoseconds in 64 bits go no further than 2262.
constexpr int64_t kLastSecond = 9'000'000'000;
/// A shorter measurement counts as one of as many passes as it has.
constexpr int kAmplePasses = 1000;

/// The file that holds a function, with its size and the time of its last change: another build
/// has other ones. Empty: nobody knows.
std::string file_with(const void* function) {
  Dl_info info{};
  std::error_code error;
  const bool is_known = dladdr(function, &info) != 0 && info.dli_fname != nullptr;
  fs::path file = is_known ? fs::canonical(info.dli_fname, error) : fs::path();
  // Of the program itself it is the name that it was started by, which may be none of a file.
  if (file.empty() || error) file = fs::canonical("/proc/self/exe", error);
  if (error) return {};
  const auto size = fs::file_size(file, error);
  const auto changed = fs::last_write_time(file, error).time_since_epoch().count();
  return fmt::format("{} {} {}", file.string(), size, changed);
}

/// Empty: the program cannot be told from another one.
std::string machine_text() {
  // Functions of this program and of libtorch.
  const std::string own = file_with(reinterpret_cast<const void*>(&profile_key));
  const std::string torch = file_with(reinterpret_cast<const void*>(&at::show_config));
  if (own.empty() || torch.empty()) return {};
  std::string text = fmt::format("{}, {} cores\nlibtorch {} in {}\nprogram {}\n", processor_name(),
                                 std::thread::hardware_concurrency(), TORCH_VERSION, torch, own);
  for (const char* name : {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA",
                           "ONEDNN_DEFAULT_FPMATH_MODE", "MKL_ENABLE_INSTRUCTIONS",
                           "PENSTOCK_ALLOCATOR", "CUDA_VISIBLE_DEVICES"}) {
    if (const char* value = std::getenv(name)) text += fmt::format("{}={}\n", name, value);
  }
  return text;
}

std::string options_text(const model::ProfilerOptions& options) {
  std::string text = fmt::format("{} samples, {} threads, {} at once on '{}'{}, {}, repeats {}\n",
                                 options.batch_size, options.threads, options.concurrency,
                                 options.device, options.device_graphs ? " by graphs" : "",
                                 to_string(options.precision), static_cast<int>(options.repeats));
  text += fmt::format("{} momentum {} nesterov {} decays {}\n",
                      options::optimizer_text(options.optimizer), options.optimizer.momentum != 0,
                      options.optimizer.nesterov, options.optimizer.weight_decay != 0);
  text += fmt::format("{} smoothing {} ignore {} weights {}\n", options.loss.name,
                      options.loss.label_smoothing != 0, options.loss.ignore_index,
                      fmt::join(options.loss.auxiliary_weights, " "));
  for (const profile::LengthGroup& group : options.lengths) {
    text += fmt::format("share {:.4f} of", group.share);
    for (const std::vector<int64_t>& shape : group.input_shapes)
      text += fmt::format(" {}", fmt::join(shape, "x"));
    text += '\n';
  }
  if (!options.device.empty())
    text += model::installed_devices().name(at::Device(options.device)) + '\n';
  if (options.layers)
    text +=
        fmt::format("layers {} to {}\n", options.layers->first.value, options.layers->last.value);
  return text;
}

int64_t seconds_of(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

/// Whether what was measured is as sure as what would be measured now.
bool is_enough(const profile::Share& share, int most_passes,
               const model::ProfilerOptions& options) {
  const double error = share.profile.pass.error;
  const bool is_sure = error > 0 && options.wanted_error > 0 && error <= options.wanted_error;
  return is_sure || most_passes >= std::min(options.most_samples, kAmplePasses);
}

/// Whether the cache gives files such names; others in the folder are the user's.
bool is_own_name(const std::string& name) {
  constexpr size_t kDigits = 16;
  return name.size() == kDigits + kExtension.size() && name.ends_with(kExtension) &&
         name.find_first_not_of("0123456789abcdef") == kDigits;
}

void remove_oldest(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::file_time_type changed = at->last_write_time(error);
    if (!error && is_own_name(at->path().filename().string()))
      files.emplace_back(changed, at->path());
    error.clear();  // a file that another process has removed meanwhile
  }
  std::sort(files.begin(), files.end());
  for (size_t k = 0; k + ProfileCache::kMostFiles < files.size(); ++k)
    fs::remove(files[k].second, error);
}

}  // namespace

CacheChoice cache_choice(const std::string& text) {
  std::string asked = text;
  if (const char* variable = std::getenv("PENSTOCK_PROFILE_CACHE"); asked.empty() && variable)
    asked = variable;
  if (asked == kNoCache) return {};
  if (!asked.empty() && asked != kNewProfile) return {.folder = asked};
  CacheChoice choice{.looks_up = asked != kNewProfile};
  choice.folder = user_cache_folder("profiles");
  return choice;
}

std::string profile_key(const model::Model& model, const model::ProfilerOptions& options) {
  const std::string work = model::work_text(model);
  const std::string machine = machine_text();
  return work.empty() || machine.empty() ? "" : machine + options_text(options) + work;
}

fs::path ProfileCache::file_of(const std::string& key) const {
  return choice_.folder / fmt::format("{:016x}{}", hash_name(key), kExtension);
}

std::optional<CachedProfile> ProfileCache::find(const std::string& key,
                                                const model::ProfilerOptions& options) const {
  if (key.empty() || choice_.folder.empty() || !choice_.looks_up) return std::nullopt;
  const fs::path file = file_of(key);
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  try {
    const Json document = parse_json(read_file(file), file.string());
    const JsonReader root(document, file.string());
    check_format(root, kFormat, kVersion);
    if (root.at("key").text() != key) return std::nullopt;
    const std::chrono::system_clock::time_point measured{
        std::chrono::seconds(root.at("measured").integer(0, kLastSecond))};
    const auto age = std::chrono::system_clock::now() - measured;
    if (age > kOldest || age < -kOldest) return std::nullopt;
    CachedProfile found{.share = profile::parse_share(root.at("share").raw().dump(), file.string()),
                        .measured = measured};
    const auto costs = static_cast<int64_t>(found.share.profile.costs.size());
    if (found.share.profile.batch_size != options.batch_size ||
        costs != found.share.profile.graph.num_layers()) {
      return std::nullopt;
    }
    if (!is_enough(found.share, static_cast<int>(root.at("most_passes").integer(0, INT_MAX)),
                   options)) {
      return std::nullopt;
    }
    return found;
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool ProfileCache::keep(const std::string& key, const model::ProfilerOptions& options,
                        const profile::Share& share) const {
  if (key.empty() || choice_.folder.empty()) return false;
  try {
    std::error_code error;
    fs::create_directories(choice_.folder, error);
    const Json document = {{"format", "penstock-cached-profile"},
                           {"version", kVersion},
                           {"measured", seconds_of(std::chrono::system_clock::now())},
                           {"most_passes", options.most_samples},
                           {"key", key},
                           {"share", parse_json(profile::to_json(share), "the profile")}};
    write_file_atomic(file_of(key), document.dump(1));
    remove_oldest(choice_.folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace penstock::job
