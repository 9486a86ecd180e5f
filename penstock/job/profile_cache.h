// Measured profiles, kept in a folder for later runs of the same work on the same machine.
//
//   const ProfileCache cache(cache_choice(request.plan.profile_cache));
//   const std::string key = profile_key(model, options);
//   if (const auto kept = cache.find(key, options)) return kept->share;
//   cache.keep(key, options, share);
//
// A file has the key and the share, and nothing but time is lost with it: one that cannot be read,
// that is of another version or damaged, counts as none. Files are replaced as a whole, so that
// processes may share a folder.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "penstock/model/model.h"
#include "penstock/model/profiler_options.h"
#include "penstock/profile/share.h"

namespace penstock::job {

/// What --profile-cache says besides a folder.
inline constexpr const char* kNoCache = "off";
inline constexpr const char* kNewProfile = "new";

struct CacheChoice {
  std::filesystem::path folder = {};  ///< empty: nothing is looked up and nothing is kept
  bool looks_up = true;               ///< false: what is measured replaces what was kept
};

/// "off", "new" or a folder; empty: as the variable PENSTOCK_PROFILE_CACHE says, and where that is
/// not set, penstock/profiles in $XDG_CACHE_HOME or else in ~/.cache. A user without a home has no
/// cache.
CacheChoice cache_choice(const std::string& text);

/// All that a measurement depends on: the work of each layer (KnownCode), sizes, options, the
/// machine, libtorch and this program. Empty where a layer does not say what it does. Values of
/// weights do not count, nor do the numbers of passes.
std::string profile_key(const model::Model& model, const model::ProfilerOptions& options);

struct CachedProfile {
  profile::Share share;
  std::chrono::system_clock::time_point measured;
};

class ProfileCache {
 public:
  static constexpr int kMostFiles = 200;
  static constexpr std::chrono::hours kOldest{24 * 30};

  explicit ProfileCache(CacheChoice choice) : choice_(std::move(choice)) {}

  /// Nothing for an empty key, for what is older than kOldest, and for what was measured with fewer
  /// passes than these options want, unless it was as sure as they want. Throws nothing.
  std::optional<CachedProfile> find(const std::string& key,
                                    const model::ProfilerOptions& options) const;
  /// Removes the oldest of its files beyond kMostFiles, and no others. A folder that cannot be
  /// written is no error: false.
  bool keep(const std::string& key, const model::ProfilerOptions& options,
            const profile::Share& share) const;
  const std::filesystem::path& folder() const { return choice_.folder; }

 private:
  std::filesystem::path file_of(const std::string& key) const;

  CacheChoice choice_;
};

}  // namespace penstock::job
