// One subcommand of the tool: its options live in the closure of `run`.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::tool {

/// Exit codes of every command: 0 yes or done, 1 the answer "no", 2 bad input or usage, 3
/// failure at run time.
inline constexpr int kExitYes = 0;
inline constexpr int kExitNo = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitFailure = 3;

struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
  /// What run() refuses before it does anything, for those who only want to know; may be empty.
  std::function<void()> check = {};
};

/// Options that every command takes.
struct CommonOptions {
  bool json = false;
  uint64_t seed = 1;
};
void add_common(CLI::App& app, CommonOptions& options);

/// As a rank of a job it is one of the commands below.
Command probe_command(CLI::App& parent, char** argv);
Command plan_command(CLI::App& parent);
Command schedule_command(CLI::App& parent);
Command verify_command(CLI::App& parent);
Command simulate_command(CLI::App& parent);
Command report_command(CLI::App& parent);
Command demo_command(CLI::App& parent);
/// `data` has commands of its own: what is to be made, or measured. `words` is the command line,
/// for the manifest.
std::vector<Command> data_commands(CLI::App& parent, const std::vector<std::string>& words);
/// `words` are what stands after `--`: the command to launch, which is not for this parser.
/// `refuses` says what is wrong with them and returns an exit code, or returns 0.
Command launch_command(CLI::App& parent, std::vector<std::string> words,
                       std::function<int(const std::vector<std::string>&)> refuses);
/// How many of the arguments are for the parser: all, but for `launch` those before `--`.
int words_before_command(int argc, char** argv);

/// The commands that need libtorch. `penstock` parses and checks their options and starts the
/// training part with the arguments `argv` (training_part.h); a build without libtorch says that it
/// is one (no_torch.cpp); the training part does the work and ignores `argv`.
Command models_command(CLI::App& parent, char** argv);
Command import_command(CLI::App& parent, char** argv);
Command profile_command(CLI::App& parent, char** argv);
Command train_command(CLI::App& parent, char** argv);
Command stream_command(CLI::App& parent, char** argv);

/// For CLI::Option::check: refuses whole numbers outside of these bounds; the parser names the
/// option.
std::function<std::string(const std::string&)> whole_number(int64_t least,
                                                            int64_t most = INT64_MAX);

/// An option of one or more whole numbers with commas between them. The parser's own lists leave
/// out what is empty: "4," would be one number.
template <class Number>
CLI::Option* add_numbers(CLI::App& app, const std::string& name, std::vector<Number>& numbers,
                         const std::string& description) {
  const auto take = [&numbers, name](const std::string& text) {
    std::vector<Number> found;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      if (!CLI::detail::lexical_cast(text.substr(begin, end - begin), found.emplace_back()))
        throw CLI::ValidationError(
            name, "expected whole numbers with commas between them, found '" + text + "'");
      begin = end + 1;
    }
    numbers = std::move(found);
  };
  return app.add_option_function<std::string>(name, take, description)->type_name("INT,...");
}

/// SIGINT, SIGTERM and SIGHUP (unless the caller ignores that, as under nohup) run `handler`, which
/// asks for an orderly end.
void catch_end_signals(void (*handler)(int));
/// For the handler: the next SIGINT or SIGTERM ends the program at once. A terminal that closes may
/// send SIGHUP more than once.
void end_at_next_signal();

/// parse(text), with the option's name before whatever it objects to.
template <class Parse>
auto parse_option(const std::string& name, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const Error& error) {
    throw ConfigError(name + " " + error.what());
  }
}

/// An option whose value has a name; `parse` throws ConfigError for names of none.
template <class Value, class Parse>
CLI::Option* add_named(CLI::App& app, const std::string& name, Value& value, Parse parse,
                       const std::string& description) {
  return app
      .add_option_function<std::string>(
          name,
          [&value, name, parse](const std::string& text) {
            value = parse_option(name + ":", text, parse);
          },
          description)
      ->type_name("TEXT");
}

/// Whether the path names what standard output goes to: "-", "/dev/stdout", the file that it was
/// redirected to.
bool is_standard_output(const std::string& path);

/// Whether this process is a rank of a job, but not rank 0, which alone writes such files.
bool is_later_rank();

/// Throws ConfigError when `path`, the output file of `option`, cannot be written or is standard
/// output, which is the command's own: hours of work must not end in a complaint that was due at
/// the start. An empty path passes, and so does any on a later rank.
void check_output(const std::string& option, const std::string& path);

/// Writes `text` to the file, or to standard output when the path is empty or "-". Throws
/// RuntimeError.
void write_output(const std::string& path, const std::string& text);

}  // namespace penstock::tool
