// The labels of the cut state that is being covered: which of them beats which, and what a cover
// must leave free to be worth making. Internal to label_search.cpp.
//
// docs/lab/planner-appendix.md says why a label that beats another may replace it.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <vector>

#include "penstock/planner/partition/covered_states.h"
#include "penstock/planner/partition/label.h"
#include "penstock/planner/partition/placement_units.h"

namespace penstock::planner {

class LabelRivals {
 public:
  /// Of `labels`, those of the state come last. `held` counts them. Keeps references to
  /// all.
  LabelRivals(std::vector<Label>& labels, HeldBytes& held, const Units& units)
      : labels_(labels), held_(held), units_(units) {}

  /// For all states of a search. `counts_workers`: covers with fewer workers are better, not only
  /// those that leave more free. `most_workers` of a whole partition matter for Wanted::Best.
  void begin_search(Wanted wanted, bool counts_workers, int most_workers) {
    wanted_ = wanted;
    counts_workers_ = counts_workers;
    most_workers_ = most_workers;
  }

  /// A state without labels. `kind` is the largest unit that the stages on both sides of its cut
  /// may span; the layers before it need `least_free` free workers at least, and use
  /// `least_workers`.
  void begin_state(int kind, int least_free, int least_workers) {
    kind_ = kind;
    least_free_ = least_free;
    least_workers_ = least_workers;
    most_free_ = -1;
    begin_ = labels_.size();
    // Then one label suffices: the one with the most free workers.
    only_free_counts_ = kind == units_.top() && !counts_workers_;
    update_least_wanted();
  }

  // Labels with fewer free workers are of no use.
  int wanted_free() const {
    return only_free_counts_ ? std::max(least_free_, most_free_ + 1) : least_free_;
  }

  // Whether all covers of the state that begin with a stage of at least `least` replicas, in front
  // of labels of that extent, are beaten.
  bool hopeless(const Extent& extent, int least) const {
    const int free = extent.most_free - least;
    if (free < wanted_free()) return true;
    const int workers = extent.fewest_workers + least;
    if (wanted_ == Wanted::Best && workers + least_workers_ > most_workers_) return true;
    if (kind_ == units_.top()) {
      return counts_workers_ && std::any_of(labels_.begin() + static_cast<std::ptrdiff_t>(begin_),
                                            labels_.end(), [&](const Label& label) {
                                              return label.free >= free &&
                                                     no_dearer(label, workers);
                                            });
    }
    if (least >= units_.size(kind_)) return true;
    if (kind_ + 1 < units_.top() || units_.size(kind_) > kFewRooms) return false;
    return counts_workers_ ? least_wanted(least, workers) > free
                           : least_wanted_[static_cast<size_t>(least)] > free;
  }

  // Adds the label unless another beats it, and drops those that it beats. Throws OutOfMemory.
  void offer(const Label& label) {
    for (size_t l = begin_; l < labels_.size(); ++l) {
      if (beats(labels_[l], label)) return;
    }
    const auto begin = labels_.begin() + static_cast<std::ptrdiff_t>(begin_);
    labels_.erase(std::remove_if(begin, labels_.end(),
                                 [&](const Label& other) { return beats(label, other); }),
                  labels_.end());
    make_room(labels_, held_);
    labels_.push_back(label);
    most_free_ = std::max(most_free_, label.free);
    update_least_wanted();
  }

 private:
  // Up to this many workers in a unit, all numbers that may stay free in it are looked at one by
  // one.
  static constexpr int kFewRooms = 16;

  // Whether whatever can be put before `b` can be put before `a`, at no higher price.
  bool beats(const Label& a, const Label& b) const {
    if (a.free < b.free) return false;
    if (wanted_ == Wanted::Best ? b.cost() < a.cost() : counts_workers_ && a.workers > b.workers)
      return false;
    for (int kind = kind_; kind < units_.top(); ++kind) {
      if (units_.before(a.free, kind) < units_.before(b.free, kind)) return false;
    }
    return true;
  }

  // Whether the label beats all that use that many workers or more, as far as the price goes.
  bool no_dearer(const Label& label, int workers) const {
    return !counts_workers_ || label.workers < workers + (wanted_ == Wanted::Best ? 0 : 1);
  }

  // Where only the room in one kind of unit matters: the least number of free workers that is of
  // use to a cover that begins with a stage of at least `least` replicas and uses at least
  // `workers`.
  int least_wanted(int least, int workers) const {
    const int size = units_.size(kind_);
    int result = INT_MAX;
    for (int room = 1; room <= size - least; ++room) {
      int beaten = wanted_free() - 1;
      for (size_t l = begin_; l < labels_.size(); ++l) {
        if (labels_[l].free > beaten && no_dearer(labels_[l], workers) &&
            units_.before(labels_[l].free, kind_) >= room)
          beaten = labels_[l].free;
      }
      const int next = beaten + 1;
      result = std::min(result, next + (room + size - next % size) % size);
    }
    return result;
  }

  void update_least_wanted() {
    if (counts_workers_ || kind_ + 1 != units_.top() || units_.size(kind_) > kFewRooms) return;
    least_wanted_.resize(static_cast<size_t>(units_.size(kind_)));
    for (int least = 1; least < units_.size(kind_); ++least)
      least_wanted_[static_cast<size_t>(least)] = least_wanted(least, 0);
  }

  std::vector<Label>& labels_;
  HeldBytes& held_;
  const Units& units_;
  Wanted wanted_ = Wanted::Any;
  bool counts_workers_ = false;
  int most_workers_ = INT_MAX;
  int kind_ = 0;
  int least_free_ = 0;
  int least_workers_ = 0;
  bool only_free_counts_ = false;
  int most_free_ = -1;
  size_t begin_ = 0;
  std::vector<int> least_wanted_;  ///< least_wanted() by the replicas of the stage
};

}  // namespace penstock::planner
