#include "tools/penstock/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <iostream>
#include <new>

#include "penstock/util/error.h"
#include "penstock/util/printable.h"

namespace penstock::tool {

int complain(std::string_view what, int code) {
  std::cerr << "penstock: ";
  for (size_t begin = 0; begin <= what.size();) {
    const size_t end = std::min(what.find('\n', begin), what.size());
    std::cerr << printable(what.substr(begin, end - begin)) << '\n';
    begin = end + 1;
  }
  return code;
}

namespace {

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

int run(int argc, char** argv, const MakeCommands& make_commands) {
  CLI::App app(
      "Penstock: profile a model, plan the best pipeline for it, verify, simulate and train.",
      "penstock");
  app.require_subcommand(1);
  app.set_version_flag("--version", "penstock " PENSTOCK_VERSION);
  app.footer(
      "Exit codes: 0 done or yes, 1 the answer no, 2 bad input, 3 failure at run time.\nTry "
      "`penstock train --help`.");
  const std::vector<Command> commands = make_commands(app);
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

}  // namespace

int run_command_line(int argc, char** argv, const MakeCommands& make_commands) {
  try {
    return run(argc, argv, make_commands);
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

}  // namespace penstock::tool
