// Who hears what is done before a run begins: lines for people, and how far a measurement is.
//
//   const Listener listener{.say = [](const std::string& text) { std::cerr << text; }};
#pragma once

#include <functional>
#include <string>

namespace penstock::job {

/// One that is empty hears nothing.
struct Listener {
  using Progress = std::function<void(int done, int total)>;

  /// One line or more, each with its newline.
  std::function<void(const std::string& text)> say = {};
  /// Called when a measurement begins, with its name; what it returns is called now and then, and
  /// destroyed at the end.
  std::function<Progress(const std::string& what)> progress = {};

  void tell(const std::string& text) const {
    if (say && !text.empty()) say(text);
  }
};

/// On standard error, with a bar (report::ProgressBar): for programs that want that.
Listener console_listener();

}  // namespace penstock::job
