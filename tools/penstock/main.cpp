// The penstock tool: one file per subcommand. It starts in milliseconds, because libtorch is in its
// training part alone (training_part.h).
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/penstock/command/command_line.h"
#include "tools/penstock/command/end_signals.h"
#include "tools/penstock/train/training_part.h"

int main(int argc, char** argv) {
  using namespace penstock::tool;
  if (argc > 1 && std::string_view(argv[1]).starts_with(kPartOf)) {
    return complain(std::string("the training part ") + argv[0] +
                        " is penstock itself: install the tool as a whole",
                    kExitFailure);
  }
  // Nothing that these have begun is cut off (training_part.h); their handlers come with libtorch.
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "train" || command == "stream") hold_end_signals();
  const int own = words_before_command(argc, argv);
  const std::vector<std::string> launched(argv + std::min(own + 1, argc), argv + argc);
  const auto refuses = [](std::vector<std::string> words) {
    words.insert(words.begin(), "penstock");
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    const int count = static_cast<int>(arguments.size());
    arguments.push_back(nullptr);
    return check_command_line(count, arguments.data(), [&](CLI::App& app) -> std::vector<Command> {
      return {profile_command(app, arguments.data()), probe_command(app, arguments.data()),
              train_command(app, arguments.data())};
    });
  };
  return run_command_line(own, argv, [&](CLI::App& app) -> std::vector<Command> {
    std::vector<Command> commands = {
        models_command(app, argv),  import_command(app, argv),
        profile_command(app, argv), probe_command(app, argv),
        plan_command(app),          schedule_command(app),
        verify_command(app),        simulate_command(app),
        train_command(app, argv),   stream_command(app, argv),
        report_command(app),        launch_command(app, launched, refuses),
        demo_command(app)};
    for (Command& made : data_commands(app, {argv, argv + argc}))
      commands.push_back(std::move(made));
    return commands;
  });
}
