// The penstock tool: one file per subcommand; this one parses the command line and turns errors
// into messages and exit codes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/printable.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

void add_common(CLI::App& app, CommonOptions& options) {
  app.add_flag(
      "--json", options.json,
      "Print one JSON object on standard output; progress and messages go to standard error");
  app.add_option("--seed", options.seed, "Seed of everything random")
      ->capture_default_str()
      // the conversion to an unsigned number would wrap around
      ->check([](const std::string& text) {
        return text.find('-') == std::string::npos
                   ? std::string()
                   : fmt::format("expected a whole number of at least 0, found '{}'", text);
      });
}

void refuse_standard_output(const std::string& option, const std::string& path) {
  if (path == "-")
    throw ConfigError(fmt::format(
        "{} expected a file name, found '-': standard output has the command's own result",
        option));
}

void write_output(const std::string& path, const std::string& text) {
  if (!path.empty() && path != "-") return write_file_atomic(path, text);
  std::cout << text << std::flush;
  if (!std::cout) throw RuntimeError("cannot write to standard output");
}

namespace {

/// Messages quote their input: what could steer a terminal, or is no UTF-8, is shown as '?'.
int complain(std::string_view what, int code) {
  std::cerr << "penstock: ";
  for (size_t begin = 0; begin <= what.size();) {
    const size_t end = std::min(what.find('\n', begin), what.size());
    std::cerr << printable(what.substr(begin, end - begin)) << '\n';
    begin = end + 1;
  }
  return code;
}

/// What CLI11 objects to; an unknown command is named, with those that there are.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  std::string subcommand;
  for (const CLI::App* sub : app.get_subcommands()) subcommand = " " + sub->get_name();
  std::string what = error.what();
  if (const std::vector<std::string> words = app.remaining();
      subcommand.empty() && !words.empty()) {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
    what = fmt::format("unknown command '{}', expected one of {}", words.front(),
                       fmt::join(names, ", "));
  }
  return fmt::format("{}\nTry: penstock{} --help", what, subcommand);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Penstock: profile a model, plan the best pipeline for it, verify, simulate and train.",
      "penstock");
  app.require_subcommand(1);
  app.set_version_flag("--version", "penstock " PENSTOCK_VERSION);
  app.footer(
      "Exit codes: 0 done or yes, 1 a well-formed no, 2 bad input, 3 failure at run time.\nTry "
      "`penstock train --help`.");
  const std::vector<Command> commands = {
      models_command(app),   profile_command(app),  probe_command(app),
      plan_command(app),     schedule_command(app), verify_command(app),
      simulate_command(app), train_command(app),    report_command(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(usage_message(app, error), kExitUsage);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return kExitUsage;
}

int guarded(int argc, char** argv) {
  try {
    return run(argc, argv);
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

}  // namespace penstock::tool

int main(int argc, char** argv) { return penstock::tool::guarded(argc, argv); }
