// The variables of a process's environment as values, with errors that name them.
//
//   const Variables variables(variable);
//   const int64_t ranks = variables.number("WORLD_SIZE", 1, kMaxJobRanks);
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace penstock::launch {

/// Ranks of the largest job that is taken for one.
inline constexpr int kMaxJobRanks = 1'000'000;

/// The value of an environment variable, or a null pointer; std::getenv is one.
using Variable = std::function<const char*(const char*)>;

/// Of `variable`, which must outlive it. As thread-safe as that.
class Variables {
 public:
  explicit Variables(const Variable& variable) : variable_(variable) {}

  /// A null name is that of no variable.
  bool has(const char* name) const { return name != nullptr && variable_(name) != nullptr; }
  /// Empty without the variable.
  std::string text(const char* name) const;
  /// Throws ConfigError if the variable is missing or its value not in least .. most.
  int64_t number(const char* name, int64_t least, int64_t most) const;
  /// A number below `of`, the value of the variable `count`. Throws as number().
  int64_t index(const char* name, std::string_view count, int64_t of) const;
  [[noreturn]] void missing(const char* name, std::string_view because) const;

  /// Whether Kubernetes has set it for a Service: NAME_PORT is "tcp://10.0.0.7:80" in every pod
  /// beside a Service that is called NAME.
  bool is_of_service(const char* name) const;

  /// The text of the variable `name`. Throws ConfigError where that cannot be a machine.
  std::string address(const char* name) const;
  /// `found`, which comes from the variable `name`. Throws as address().
  std::string checked_address(const char* name, std::string found) const;

 private:
  int64_t number(const char* name, int64_t least, int64_t most, const std::string& expected) const;

  const Variable& variable_;
};

}  // namespace penstock::launch
