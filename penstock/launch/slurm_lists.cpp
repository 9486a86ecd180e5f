#include "penstock/launch/slurm_lists.h"

#include <algorithm>

#include "penstock/launch/whole_number.h"

namespace penstock::launch {

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
