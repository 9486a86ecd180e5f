// Compiled pieces in the user's folder of caches. A piece has a folder of its own, named after a
// digest of what it was made from. Internal to compiled.
//
//   const PackageFolder folder(place, request);
//   if (!folder.is_whole()) folder.make(python);
#pragma once

#include <atomic>
#include <filesystem>
#include <string>

#include "penstock/util/error.h"
#include "penstock/util/files/json.h"

namespace penstock::compiled {

/// No Python with this PyTorch, or no C++ compiler: nothing at all can be compiled.
class NoCompiler : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Files of several processes do no harm to each other: a folder appears as a whole.
class PackageFolder {
 public:
  /// The oldest folders beyond so many are removed when another one is made.
  static constexpr size_t kMost = 100;

  /// `request`: all that the packages depend on.
  PackageFolder(const std::filesystem::path& place, std::string request);

  const std::filesystem::path& path() const { return path_; }
  /// Whether packages of this request are there, with the bytes that were written.
  bool is_whole() const;
  /// Why this request could not be compiled, the last time; empty: nobody has tried, or it could.
  std::string failure() const;
  /// piece.json. Throws ParseError.
  Json answer() const;
  /// Compiles: runs Python, for 10 to 60 s and more. Replaces what is there. Throws
  /// NoCompiler, ConfigError saying why it failed, or RuntimeError where `stop` becomes true.
  void make(const std::string& python, const std::atomic<bool>* stop) const;

 private:
  std::filesystem::path place_;
  std::string request_;
  std::filesystem::path path_;
};

/// penstock/compiled in $XDG_CACHE_HOME or ~/.cache, or the folder that the variable
/// PENSTOCK_COMPILE_CACHE names. Throws ConfigError where there is none of these.
std::filesystem::path usual_package_place();

}  // namespace penstock::compiled
