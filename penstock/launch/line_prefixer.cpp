#include "penstock/launch/line_prefixer.h"

#include <algorithm>
#include <utility>

namespace penstock::launch {

LinePrefixer::LinePrefixer(std::string prefix)
    : prefix_size_(prefix.size()), line_(std::move(prefix)) {}

void LinePrefixer::add(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const size_t room = kMostLineBytes - (line_.size() - prefix_size_);
    const size_t newline = bytes.find('\n');
    const size_t size = std::min({room, newline, bytes.size()});
    line_ += bytes.substr(0, size);
    bytes.remove_prefix(size);
    if (size == newline) {
      bytes.remove_prefix(1);
      pass_on(sink);
    } else if (size == room && !bytes.empty()) {
      pass_on(sink);
    }
  }
}

void LinePrefixer::finish(const Sink& sink) {
  if (line_.size() > prefix_size_) pass_on(sink);
}

void LinePrefixer::pass_on(const Sink& sink) {
  line_ += '\n';
  const std::string_view line(line_);
  const bool is_object =
      line.substr(prefix_size_).starts_with("{\"time\":") && line.ends_with("}\n");
  sink(is_object ? line.substr(prefix_size_) : line);
  line_.resize(prefix_size_);
}

}  // namespace penstock::launch
