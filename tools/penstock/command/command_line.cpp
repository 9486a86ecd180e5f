#include "tools/penstock/command/command_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <tuple>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"
#include "tools/penstock/command/run_file_words.h"

namespace penstock::tool {

namespace {

std::function<void(std::string_view)>& complaint() {
  static std::function<void(std::string_view)> print;
  return print;
}

}  // namespace

void set_complaint(std::function<void(std::string_view what)> print) {
  complaint() = std::move(print);
}

int complain(std::string_view what, int code) {
  if (complaint()) {
    complaint()(what);
    return code;
  }
  // Written as one piece: ranks of a job share the stream.
  std::string text = "penstock: ";
  for (size_t begin = 0; begin <= what.size();) {
    const size_t end = std::min(what.find('\n', begin), what.size());
    text += printable(what.substr(begin, end - begin)) + '\n';
    begin = end + 1;
  }
  std::cerr << text;
  return code;
}

namespace {

std::string command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The texts before and after `middle`; nothing where it does not occur.
std::optional<std::pair<std::string, std::string>> split_at(const std::string& text,
                                                            std::string_view middle) {
  const size_t at = text.find(middle);
  if (at == std::string::npos) return std::nullopt;
  return std::pair{text.substr(0, at), text.substr(at + middle.size())};
}

/// CLI11's message in our words, as far as it is one that our options lead to.
std::string plain_message(const CLI::ParseError& error) {
  std::string what = error.what();
  const std::string& kind = error.get_name();
  if (const auto parts = split_at(what, " = "); kind == "ConversionError" && parts) {
    const auto option = split_at(parts->first, ": ");
    return fmt::format("{}: expected a number in its range, found '{}'",
                       option ? option->second : parts->first, parts->second);
  }
  if (const auto parts = split_at(what, " excludes "); kind == "ExcludesError" && parts)
    return fmt::format("{} cannot be combined with {}", parts->first, parts->second);
  if (const auto parts = split_at(what, " requires "); kind == "RequiresError" && parts)
    return fmt::format("{} needs {}", parts->first, parts->second);
  if (const auto parts = split_at(what, " not expected: "); parts)  // named after the command
    return fmt::format("unexpected '{}'", parts->second);
  // "--x: 1 required INT missing", or "--x: At Most 1 required but received 2".
  if (const auto parts = split_at(what, ": "); kind == "ArgumentMismatch" && parts) {
    return parts->second.find("At Most") == std::string::npos
               ? fmt::format("{}: expected a value, found none", parts->first)
               : fmt::format("{}: expected one value, found several", parts->first);
  }
  return what;
}

/// What is wrong with the command line; an unknown command is named, with those that there are.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  std::string subcommand;
  std::string what = plain_message(error);
  for (const CLI::App* sub : app.get_subcommands()) {
    subcommand = " " + sub->get_name();
    // A command may have commands of its own.
    for (; !sub->get_subcommands().empty(); subcommand += " " + sub->get_name())
      sub = sub->get_subcommands().front();
    const std::vector<std::string> words = sub->remaining();
    if (error.get_name() == "RequiredError" && !command_names(*sub).empty()) {
      what = fmt::format("{}, expected one of {}",
                         words.empty() ? "no command" : "unknown command '" + words.front() + "'",
                         command_names(*sub));
    }
    if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) continue;
    const auto option = std::find_if(words.begin(), words.end(), [](const std::string& word) {
      return word.size() > 1 && word.starts_with('-');
    });
    if (option != words.end()) what = fmt::format("unknown option '{}'", *option);
  }
  if (subcommand.empty()) {
    const std::vector<std::string> words = app.remaining();
    if (!words.empty()) {
      what = fmt::format("unknown command '{}', expected one of {}", words.front(),
                         command_names(app));
    } else if (error.get_name() == "RequiredError") {
      what = fmt::format("expected a command, one of {}", command_names(app));
    }
  }
  return fmt::format("{}\nTry: penstock{} --help", what, subcommand);
}

/// The parser takes a number of more than 64 bits for the largest or the smallest that there is.
template <class Number>
std::string refuse_overlong(const std::string& text, Number (*parse)(const char*, char**, int)) {
  errno = 0;
  parse(text.c_str(), nullptr, 0);
  return errno == ERANGE ? fmt::format("expected a whole number of at most 64 bits, found {}", text)
                         : std::string();
}

/// The parser takes "nan" for a number, and no comparison with a bound refuses it.
std::string refuse_nan(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr))
             ? fmt::format("expected a number, found {}", text)
             : std::string();
}

/// As from a variable of the shell that is not set.
std::string refuse_empty(const std::string& text) {
  return text.empty() ? "expected a value, found an empty one" : "";
}

void refuse_odd_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_min() > 0) option->check(refuse_empty);
    const std::string type = option->get_type_name();
    if (type.starts_with("FLOAT")) {
      option->check(refuse_nan);
    } else if (type.starts_with("UINT")) {
      option->check([](const std::string& text) { return refuse_overlong(text, std::strtoull); });
    } else if (type.starts_with("INT")) {
      option->check([](const std::string& text) { return refuse_overlong(text, std::strtoll); });
    }
  }
}

/// So that a write to a closed pipe, or beyond a limit on the size of files, is an error that is
/// reported, and not the end without a word.
void ignore_signals_of_writes() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

/// A standard stream that is closed must not become the first file that is opened: it stays one
/// that cannot be written to.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF) std::ignore = open("/dev/null", O_RDONLY);
  }
}

int run(int argc, char** argv, const MakeCommands& make_commands, bool only_check) {
  CLI::App app(
      "Penstock: profile a model, plan the best pipeline for it, verify, simulate and train.",
      "penstock");
  app.require_subcommand(1);
  app.set_version_flag("--version", "penstock " PENSTOCK_VERSION " (" PENSTOCK_LIBTORCH ")");
  // Commands take over the footer that they find.
  const std::string codes =
      "Exit codes: 0 done or yes, 1 the answer no, 2 bad input, 3 failure at run time.";
  app.footer(codes);
  const std::vector<Command> commands = make_commands(app);
  app.footer(codes + "\nEach command has its own options: try `penstock train --help`.");
  for (const Command& command : commands) refuse_odd_values(*command.app);
  std::vector<std::string> words = with_run_file({argv, argv + argc});
  words.erase(words.begin());
  std::reverse(words.begin(), words.end());  // as the parser wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& success) {  // --help, --version
    if (only_check) return kExitYes;
    const int code = app.exit(success);
    write_output("", "");  // flushed, or an error
    return code;
  } catch (const CLI::ParseError& error) {
    return complain(usage_message(app, error), kExitUsage);
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (!only_check) return command.run();
    if (command.check) command.check();
    return kExitYes;
  }
  return kExitUsage;
}

}  // namespace

namespace {

int run_or_complain(int argc, char** argv, const MakeCommands& make_commands, bool only_check) {
  try {
    return run(argc, argv, make_commands, only_check);
  } catch (const NoAnswer& no) {
    return complain(no.what(), kExitNo);
  } catch (const ConfigError& error) {
    return complain(error.what(), kExitUsage);
  } catch (const ParseError& error) {
    return complain(error.what(), kExitUsage);
  } catch (const CheckpointError& error) {
    return complain(error.what(), kExitUsage);
  } catch (const InternalError& error) {
    return complain(fmt::format("internal error, please report it: {}", error.what()),
                    kExitFailure);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kExitFailure);
  } catch (const std::exception& error) {
    return complain(error.what(), kExitFailure);
  }
}

}  // namespace

int run_command_line(int argc, char** argv, const MakeCommands& make_commands) {
  ignore_signals_of_writes();
  occupy_standard_streams();
  return run_or_complain(argc, argv, make_commands, /*only_check=*/false);
}

int check_command_line(int argc, char** argv, const MakeCommands& make_commands) {
  return run_or_complain(argc, argv, make_commands, /*only_check=*/true);
}

}  // namespace penstock::tool
