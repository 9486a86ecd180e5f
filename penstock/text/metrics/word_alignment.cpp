#include "penstock/text/metrics/word_alignment.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "penstock/util/check.h"

namespace penstock::text {

namespace {

/// The largest number of links (augmenting paths, breadth first).
class LargestMatching {
 public:
  LargestMatching(const AlignmentCandidates& candidates, size_t references)
      : candidates_(candidates),
        taken_by_(references, kNoWord),
        from_(references),
        seen_(references, kNoWord) {}

  int64_t size() {
    int64_t links = 0;
    for (size_t word = 0; word < candidates_.size(); ++word) links += extend(word) ? 1 : 0;
    return links;
  }

 private:
  bool extend(size_t word) {
    std::vector<size_t> open = {word};
    for (size_t next = 0; next < open.size(); ++next) {
      const size_t one = open[next];
      for (const size_t reference : candidates_[one]) {
        if (seen_[reference] == static_cast<int64_t>(word)) continue;
        seen_[reference] = static_cast<int64_t>(word);
        from_[reference] = one;
        if (taken_by_[reference] == kNoWord) {
          turn(reference, word);
          return true;
        }
        open.push_back(static_cast<size_t>(taken_by_[reference]));
      }
    }
    return false;
  }

  /// Every word on the path to `reference` takes the reference behind it.
  void turn(size_t reference, size_t first) {
    std::vector<int64_t> had(candidates_.size(), kNoWord);
    for (size_t r = 0; r < taken_by_.size(); ++r) {
      if (taken_by_[r] != kNoWord) had[static_cast<size_t>(taken_by_[r])] = static_cast<int64_t>(r);
    }
    for (size_t r = reference;;) {
      const size_t word = from_[r];
      taken_by_[r] = static_cast<int64_t>(word);
      if (word == first) return;
      r = static_cast<size_t>(had[word]);
    }
  }

  const AlignmentCandidates& candidates_;
  std::vector<int64_t> taken_by_;
  std::vector<size_t> from_;   ///< the word that reached a reference
  std::vector<int64_t> seen_;  ///< in the search for which word
};

/// The references that a stage has taken.
using Taken = std::vector<uint64_t>;

bool has(const Taken& taken, size_t reference) {
  return ((taken[reference / 64] >> (reference % 64)) & 1) != 0;
}

int64_t count_above(const Taken& taken, size_t reference) {
  const size_t first = reference / 64;
  int64_t count = std::popcount((taken[first] >> (reference % 64)) >> 1);
  for (size_t i = first + 1; i < taken.size(); ++i) count += std::popcount(taken[i]);
  return count;
}

/// What came of the words so far. Crossings that are still to come depend on `taken` alone, chunks
/// on the last word's reference: of the states that share both, the best one is enough.
struct AlignmentState {
  Taken taken;
  int64_t last = kNoWord;  ///< the reference of the word before
  int64_t skipped = 0;     ///< words that could have had a link
  int64_t crossings = 0;
  int64_t chunks = 0;
  size_t step = 0;    ///< index of its last choice
  size_t anchor = 0;  ///< the reference behind the last link

  auto cost() const { return std::tie(skipped, crossings, chunks); }
};

struct Choice {
  int64_t reference = kNoWord;
  size_t before = 0;
};

class StageSearch {
 public:
  StageSearch(const AlignmentCandidates& candidates, const std::vector<int64_t>& earlier,
              size_t references)
      : candidates_(candidates), earlier_(earlier) {
    constexpr size_t kMostStates = 256;
    constexpr size_t kStateWords = 20'000;
    most_states_ =
        std::clamp(kStateWords / std::max<size_t>(1, earlier.size()), size_t{8}, kMostStates);
    int64_t linkable = 0;
    for (const std::vector<size_t>& some : candidates) linkable += some.empty() ? 0 : 1;
    may_skip_ = linkable - LargestMatching(candidates, references).size();
    choices_.push_back({});
    AlignmentState start;
    start.taken.resize(references / 64 + 1);
    states_.push_back(std::move(start));
  }

  /// By word of the hypothesis: the link of this stage, or kNoWord.
  std::vector<int64_t> best() {
    for (size_t word = 0; word < earlier_.size(); ++word) follow(word);
    const auto best = std::min_element(
        states_.begin(), states_.end(),
        [](const AlignmentState& a, const AlignmentState& b) { return a.cost() < b.cost(); });
    std::vector<int64_t> links(earlier_.size(), kNoWord);
    size_t step = best->step;
    for (size_t word = links.size(); word-- > 0; step = choices_[step].before)
      links[word] = choices_[step].reference;
    return links;
  }

 private:
  using Key = std::pair<Taken, int64_t>;

  void follow(size_t word) {
    std::map<Key, AlignmentState> next;
    for (const AlignmentState& state : states_) {
      const std::vector<size_t> free = nearest_free(word, state);
      for (const size_t reference : free) {
        AlignmentState linked = state;
        linked.crossings += count_above(state.taken, reference) + crossings(word, reference);
        linked.taken[reference / 64] |= uint64_t{1} << (reference % 64);
        keep(std::move(linked), static_cast<int64_t>(reference), static_cast<int64_t>(reference),
             next);
      }
      if (!free.empty() && state.skipped >= may_skip_) continue;
      AlignmentState without = state;
      without.skipped += candidates_[word].empty() ? 0 : 1;
      keep(std::move(without), kNoWord, earlier_[word], next);
    }
    states_.clear();
    for (auto& [key, state] : next) states_.push_back(std::move(state));
    if (states_.size() <= most_states_) return;
    std::stable_sort(
        states_.begin(), states_.end(),
        [](const AlignmentState& a, const AlignmentState& b) { return a.cost() < b.cost(); });
    states_.resize(most_states_);
  }

  /// The references that the word may be linked to, those nearest to the last link.
  std::vector<size_t> nearest_free(size_t word, const AlignmentState& state) const {
    constexpr size_t kMostNear = 16;
    const std::vector<size_t>& all = candidates_[word];
    auto above = std::lower_bound(all.begin(), all.end(), state.anchor);
    auto below = above;
    std::vector<size_t> free;
    while (free.size() < kMostNear && (above != all.end() || below != all.begin())) {
      const bool goes_up = below == all.begin() ||
                           (above != all.end() && *above - state.anchor < state.anchor - below[-1]);
      const size_t reference = goes_up ? *above++ : *--below;
      if (!has(state.taken, reference)) free.push_back(reference);
    }
    return free;
  }

  /// `here`: the reference of this word, also one of an earlier stage.
  void keep(AlignmentState state, int64_t link, int64_t here, std::map<Key, AlignmentState>& next) {
    const bool goes_on = state.last != kNoWord && here == state.last + 1;
    state.chunks += here == kNoWord || goes_on ? 0 : 1;
    state.last = here;
    if (here != kNoWord) state.anchor = static_cast<size_t>(here) + 1;
    const auto [found, is_new] = next.try_emplace({state.taken, here}, state);
    if (!is_new && found->second.cost() <= state.cost()) return;
    choices_.push_back({link, state.step});
    state.step = choices_.size() - 1;
    found->second = std::move(state);
  }

  /// With links of earlier stages.
  int64_t crossings(size_t word, size_t reference) const {
    int64_t count = 0;
    for (size_t other = 0; other < earlier_.size(); ++other) {
      if (earlier_[other] == kNoWord) continue;
      count += (other < word) != (earlier_[other] < static_cast<int64_t>(reference)) ? 1 : 0;
    }
    return count;
  }

  const AlignmentCandidates& candidates_;
  const std::vector<int64_t>& earlier_;
  size_t most_states_ = 0;
  int64_t may_skip_ = 0;
  std::vector<AlignmentState> states_;
  std::vector<Choice> choices_;
};

}  // namespace

void WordAlignment::add_stage(const AlignmentCandidates& candidates) {
  PENSTOCK_CHECK(candidates.size() == reference_of_.size(), candidates.size(),
                 reference_of_.size());
  const bool has_any = std::any_of(candidates.begin(), candidates.end(),
                                   [](const auto& some) { return !some.empty(); });
  if (!has_any) return;
  const std::vector<int64_t> links =
      StageSearch(candidates, reference_of_, is_taken_.size()).best();
  for (size_t word = 0; word < links.size(); ++word) {
    if (links[word] == kNoWord) continue;
    reference_of_[word] = links[word];
    is_taken_[static_cast<size_t>(links[word])] = true;
  }
}

int64_t WordAlignment::num_links() const {
  return std::ssize(reference_of_) -
         std::count(reference_of_.begin(), reference_of_.end(), kNoWord);
}

int64_t WordAlignment::num_chunks() const {
  int64_t chunks = 0;
  int64_t last = kNoWord;
  for (const int64_t reference : reference_of_) {
    const bool goes_on = last != kNoWord && reference == last + 1;
    chunks += reference == kNoWord || goes_on ? 0 : 1;
    last = reference;
  }
  return chunks;
}

}  // namespace penstock::text
