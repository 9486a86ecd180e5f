#include "penstock/text/metrics/wordnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <system_error>

#include "penstock/text/sources/debian_package.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::text {

namespace {

constexpr std::array<std::string_view, 4> kPartsOfSpeech = {"noun", "verb", "adj", "adv"};

struct Ending {
  std::string_view from;
  std::string_view to;
};
/// morphy(7WN), "rules of detachment".
constexpr Ending kNounEndings[] = {{"s", ""},      {"ses", "s"},   {"ves", "f"},
                                   {"xes", "x"},   {"zes", "z"},   {"ches", "ch"},
                                   {"shes", "sh"}, {"men", "man"}, {"ies", "y"}};
constexpr Ending kVerbEndings[] = {{"s", ""},   {"ies", "y"}, {"es", "e"},  {"es", ""},
                                   {"ed", "e"}, {"ed", ""},   {"ing", "e"}, {"ing", ""}};
constexpr Ending kAdjectiveEndings[] = {{"er", ""}, {"est", ""}, {"er", "e"}, {"est", "e"}};

/// In the order of kPartsOfSpeech.
constexpr std::array<std::span<const Ending>, 4> kEndings = {
    kNounEndings, kVerbEndings, kAdjectiveEndings, std::span<const Ending>()};

/// The fields of the line whose first is `word`, of a text whose lines are sorted by it; none:
/// there is no such line.
std::vector<std::string_view> fields_of(std::string_view sorted, std::string_view word) {
  size_t low = 0;
  size_t high = sorted.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const size_t before = middle == 0 ? std::string_view::npos : sorted.rfind('\n', middle - 1);
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const size_t end = std::min(sorted.find('\n', middle), sorted.size());
    const std::string_view line = sorted.substr(begin, end - begin);
    const std::string_view first = line.substr(0, line.find(' '));
    if (first < word) {
      low = end + 1;
    } else if (first > word) {
      high = begin;
    } else {
      std::vector<std::string_view> fields;
      for (size_t at = 0; at < line.size();) {
        const size_t space = std::min(line.find(' ', at), line.size());
        if (space > at) fields.push_back(line.substr(at, space - at));
        at = space + 1;
      }
      return fields;
    }
  }
  return {};
}

int64_t number_in(std::string_view field) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  return error == std::errc() && end == field.data() + field.size() ? number : -1;
}

}  // namespace

WordNet::WordNet(const std::filesystem::path& folder) : folder_(folder) {
  constexpr int64_t kMost = int64_t{1} << 28;
  for (size_t pos = 0; pos < kPartsOfSpeech.size(); ++pos) {
    const std::filesystem::path index = folder / fmt::format("index.{}", kPartsOfSpeech[pos]);
    std::error_code ignored;
    if (!std::filesystem::exists(index, ignored))
      throw ConfigError(fmt::format("WordNet's synonyms are expected in {}, which is missing; {}",
                                    printable(index.string()), how_to_install("wordnet-base")));
    parts_[pos].index = std::make_unique<const FileBytes>(index, kMost);
    parts_[pos].exceptions = std::make_unique<const FileBytes>(
        folder / fmt::format("{}.exc", kPartsOfSpeech[pos]), kMost);
  }
}

/// A line of an index: word, part of speech, number of synsets, of pointers, the pointers, two more
/// numbers, the synsets (wndb(5WN)).
void WordNet::add_synsets(size_t pos, std::string_view form, std::vector<int64_t>& found) const {
  if (form.empty()) return;
  const std::vector<std::string_view> fields = fields_of(parts_[pos].index->view(), form);
  if (fields.empty()) return;
  const int64_t count = fields.size() < 4 ? -1 : number_in(fields[2]);
  if (count < 1 || count > std::ssize(fields) - 6)
    throw ParseError((folder_ / fmt::format("index.{}", kPartsOfSpeech[pos])).string(), 0,
                     fmt::format("the line of '{}' has {} fields, which do not fit its number of "
                                 "sets of synonyms",
                                 printable(std::string(form)), fields.size()));
  for (size_t i = fields.size() - static_cast<size_t>(count); i < fields.size(); ++i) {
    const int64_t offset = number_in(fields[i]);
    found.push_back(offset * std::ssize(kPartsOfSpeech) + static_cast<int64_t>(pos));
  }
}

std::vector<int64_t> WordNet::synsets(std::string_view word) const {
  std::vector<int64_t> found;
  for (size_t pos = 0; pos < kPartsOfSpeech.size(); ++pos) {
    add_synsets(pos, word, found);
    const auto irregular = fields_of(parts_[pos].exceptions->view(), word);
    for (size_t i = 1; i < irregular.size(); ++i) add_synsets(pos, irregular[i], found);
    if (!irregular.empty()) continue;
    for (const Ending& ending : kEndings[pos]) {
      if (!word.ends_with(ending.from)) continue;
      const std::string_view stem = word.substr(0, word.size() - ending.from.size());
      add_synsets(pos, std::string(stem) += ending.to, found);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

bool WordNet::are_synonyms(std::string_view one, std::string_view other) const {
  return have_common(synsets(one), synsets(other));
}

bool have_common(const std::vector<int64_t>& one, const std::vector<int64_t>& other) {
  for (size_t i = 0, j = 0; i < one.size() && j < other.size();) {
    if (one[i] == other[j]) return true;
    if (one[i] < other[j]) {
      ++i;
    } else {
      ++j;
    }
  }
  return false;
}

}  // namespace penstock::text
