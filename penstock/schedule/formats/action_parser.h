// Reads single actions and lines of actions: the part that both file forms (with header, PyTorch's
// CSV) share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/action.h"

namespace penstock::schedule {

/// A place in a text, for error messages.
struct TextPlace {
  std::string_view name;
  int64_t line = 0;

  /// Throws ParseError here.
  [[noreturn]] void fail(std::string_view message) const;
};

/// `text` without spaces, tabs and carriage returns at both ends.
std::string_view trimmed(std::string_view text);
/// All of `text` as a decimal number >= 0, or nothing.
std::optional<int64_t> parse_count(std::string_view text);

inline constexpr std::string_view kOverlapWord = "OVERLAP_F_B";

/// The texts of the actions in (0F3;7B1)OVERLAP_F_B, which begins with the parenthesis. Throws
/// ParseError for anything else, and where there is none.
std::vector<std::string_view> overlapped_texts(std::string_view text, const TextPlace& place,
                                               int64_t cell);

/// The action in `text`, which holds nothing else; `cell` is its number in the line, from 1, for
/// messages. The mini-batch of compute actions and messages stays 0; the caller fills it in from
/// the shape. Throws ParseError.
Action parse_action(std::string_view text, const TextPlace& place, int64_t cell);

/// The actions of one line; empty cells are skipped. In an OVERLAP_F_B each but the last runs with
/// the next; a single one does, too, for the verifier to find. Throws ParseError as parse_action()
/// does, and when more than `max_actions` are found.
std::vector<Action> parse_actions(std::string_view line, const TextPlace& place,
                                  int64_t max_actions);

}  // namespace penstock::schedule
