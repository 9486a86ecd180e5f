#include "penstock/util/text/near_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock {

namespace {

/// Levenshtein's, row by row.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchanged, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> near_names(const std::string& name, std::vector<std::string> names,
                                    size_t most) {
  std::vector<std::pair<size_t, std::string>> all;
  for (std::string& one : names) {
    const size_t far = distance(name, one);
    all.emplace_back(far, std::move(one));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> near;
  for (size_t i = 0; i < std::min(most, all.size()); ++i) near.push_back(std::move(all[i].second));
  return near;
}

}  // namespace penstock
