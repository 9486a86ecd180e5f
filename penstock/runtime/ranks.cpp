#include "penstock/runtime/ranks.h"

#include <fmt/format.h>

#include <exception>

#include "penstock/runtime/fabric/failure.h"
#include "penstock/runtime/fabric/world.h"

namespace penstock::runtime {

namespace {

// The first character of what a rank tells the others.
constexpr char kDone = '+';
constexpr char kFailed = '-';

}  // namespace

bool Ranks::is_first() const { return world == nullptr || world->site().rank == 0; }

std::vector<std::string> together(const Ranks& ranks, const std::function<std::string()>& part) {
  if (ranks.world == nullptr) return {part()};
  std::exception_ptr failure;
  std::string text;
  try {
    text = kDone + part();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    const Failure described = describe(failure);
    text = {kFailed, static_cast<char>(described.kind)};
    text += described.text;
  }
  Wait wait = wait_for(ranks.deadline);
  std::vector<std::string> texts = ranks.world->all_gather(text, wait);
  // What rank 0 has found as well is its to tell.
  const bool is_of_first = texts.front() == text && !ranks.is_first();
  if (failure && !is_of_first) std::rethrow_exception(failure);
  for (size_t r = 0; r < texts.size(); ++r) {
    const bool done = !texts[r].empty() && texts[r].front() == kDone;
    if (!done && texts[r].size() > 1) {
      const auto kind = static_cast<Failure::Kind>(texts[r][1]);
      raise({kind, fmt::format("rank {}: {}", r, texts[r].substr(2))});
    }
    if (!texts[r].empty()) texts[r].erase(0, 1);
  }
  return texts;
}

}  // namespace penstock::runtime
