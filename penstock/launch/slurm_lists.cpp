#include "penstock/launch/slurm_lists.h"

#include <algorithm>

#include "penstock/launch/whole_number.h"

namespace penstock::launch {

namespace {

struct Place {
  std::optional<int64_t> found;  ///< of what was looked for
  int64_t count = 0;             ///< of all
};

/// Among the numbers of a bracket, "07-09,12". Nothing if it is malformed.
std::optional<Place> place_in(std::string_view inside, std::string_view number) {
  const auto looked_for = whole_number(number);
  Place place;
  while (!inside.empty()) {
    const std::string_view range = inside.substr(0, inside.find(','));
    inside.remove_prefix(std::min(inside.size(), range.size() + 1));
    const size_t dash = range.find('-');
    const auto first = whole_number(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : whole_number(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last > INT32_MAX) return std::nullopt;
    const bool has = looked_for && *looked_for >= *first && *looked_for <= *last &&
                     number.size() >= std::min(dash, range.size());
    if (has && !place.found) place.found = place.count + *looked_for - *first;
    place.count += *last - *first + 1;
  }
  return place;
}

/// The first entry of `list`, up to a comma outside of brackets; takes it away.
std::string_view take_entry(std::string_view& list) {
  bool inside = false;
  size_t end = 0;
  for (; end < list.size() && (inside || list[end] != ','); ++end)
    if (list[end] == '[' || list[end] == ']') inside = list[end] == '[';
  const std::string_view entry = list.substr(0, end);
  list.remove_prefix(std::min(list.size(), end + 1));
  return entry;
}

/// The place of `host` among those that the entry stands for, and their number.
std::optional<Place> place_in_entry(std::string_view entry, std::string_view host) {
  Place place{.found = 0, .count = 1};
  while (!entry.empty()) {
    if (entry.front() != '[') {
      if (host.empty() || host.front() != entry.front()) place.found.reset();
      entry.remove_prefix(1);
      host.remove_prefix(host.empty() ? 0 : 1);
      continue;
    }
    const size_t close = entry.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const size_t digits = std::min(host.find_first_not_of("0123456789"), host.size());
    const auto here = place_in(entry.substr(1, close - 1), host.substr(0, digits));
    if (!here || here->count > INT32_MAX / place.count) return std::nullopt;
    place.count *= here->count;
    if (place.found && here->found)
      place.found = *place.found * here->count + *here->found;
    else
      place.found.reset();
    entry.remove_prefix(close + 1);
    host.remove_prefix(digits);
  }
  if (!host.empty()) place.found.reset();
  return place;
}

}  // namespace

std::optional<int64_t> index_of_host(std::string_view list, std::string_view host) {
  int64_t before = 0;
  while (!list.empty()) {
    const auto place = place_in_entry(take_entry(list), host);
    if (!place || before > INT32_MAX) return std::nullopt;
    if (place->found) return before + *place->found;
    before += place->count;
  }
  return std::nullopt;
}

std::optional<std::string> first_host(std::string_view list) {
  std::string host;
  while (!list.empty() && list.front() != ',') {
    if (list.front() != '[') {
      host += list.front();
      list.remove_prefix(1);
      continue;
    }
    const size_t close = list.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view inside = list.substr(1, close - 1);
    const std::string_view first = inside.substr(0, inside.find_first_of(",-"));
    if (!whole_number(first)) return std::nullopt;
    host += first;
    list.remove_prefix(close + 1);
  }
  if (host.empty()) return std::nullopt;
  return host;
}

std::optional<int64_t> tasks_on_node(std::string_view list, int64_t node) {
  int64_t before = 0;
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    const size_t open = entry.find("(x");
    const auto tasks = whole_number(entry.substr(0, open));
    std::optional<int64_t> nodes = 1;
    if (open != std::string_view::npos) {
      if (!entry.ends_with(')')) return std::nullopt;
      nodes = whole_number(entry.substr(open + 2, entry.size() - open - 3));
    }
    if (!tasks || !nodes || *nodes > INT32_MAX) return std::nullopt;
    if (node < before + *nodes) return tasks;
    before += *nodes;
  }
  return std::nullopt;
}

}  // namespace penstock::launch
