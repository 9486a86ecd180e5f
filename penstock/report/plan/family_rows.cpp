#include "penstock/report/plan/family_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/report/text/text.h"
#include "penstock/util/text/printable.h"

namespace penstock::report {

namespace {

constexpr double kSame = 0.005;

plan::Alternative numbers_of(const plan::Plan& plan) {
  int64_t memory_bytes = 0;
  for (const plan::Stage& stage : plan.stages)
    memory_bytes = std::max(memory_bytes, stage.memory_bytes);
  return {.strategy = plan.strategy,
          .config = plan.config(),
          .throughput_samples_per_s = plan.prediction.throughput_samples_per_s,
          .weights = plan.weights,
          .micro_batches = plan.micro_batches,
          .latency_ns = plan.prediction.latency_ns,
          .memory_bytes = memory_bytes,
          .idle_share = plan.prediction.idle_share,
          .bytes_per_sample = plan.prediction.bytes_per_sample,
          .note = ""};
}

std::string name_of(const plan::Alternative& family) {
  const std::string strategy(to_string(family.strategy));
  return family.config.empty() ? strategy
                               : fmt::format("{} {}", strategy, short_config(family.config, 24));
}

// "1f1b 15-1 wins: 1.85x the next best, dp 16." A plan made for one strategy, or priced, need not
// be the fastest.
std::string winner_line(const Family& winner, const std::vector<Family>& families) {
  const Family* next = nullptr;
  for (const Family& family : families) {
    if (&family == &winner || !(family.numbers.throughput_samples_per_s > 0)) continue;
    if (next == nullptr ||
        family.numbers.throughput_samples_per_s > next->numbers.throughput_samples_per_s)
      next = &family;
  }
  std::string text = name_of(winner.numbers);
  if (next == nullptr) {
    text += " is this plan.";
  } else {
    const double ratio =
        winner.numbers.throughput_samples_per_s / next->numbers.throughput_samples_per_s;
    text += std::fabs(ratio - 1) < kSame
                ? fmt::format(" wins: as fast as {}.", name_of(next->numbers))
            : ratio > 1
                ? fmt::format(" wins: {:.2f}x the next best, {}.", ratio, name_of(next->numbers))
                : fmt::format(" is this plan; {} is {:.2f}x as fast.", name_of(next->numbers),
                              1 / ratio);
  }
  return winner.numbers.note.empty() ? text
                                     : fmt::format("{} {}", text, printable(winner.numbers.note));
}

// Notes that go on from the name ("is 0.50x as fast") follow it directly.
std::string loser_line(const plan::Alternative& family) {
  const bool goes_on = family.note.starts_with("would ") || family.note.starts_with("is ");
  return fmt::format("{}{} {}", name_of(family), goes_on ? "" : ":", printable(family.note));
}

}  // namespace

std::string name_of(std::optional<plan::WeightPolicy> weights) {
  return weights ? std::string(to_string(*weights)) : std::string();
}

bool is_chosen(const plan::Plan& plan, const plan::Alternative& alternative) {
  return alternative.strategy == plan.strategy && alternative.config == plan.config() &&
         (!alternative.weights || alternative.weights == plan.weights) &&
         (alternative.micro_batches == 0 || alternative.micro_batches == plan.micro_batches);
}

std::vector<Family> families_of(const plan::Plan& plan) {
  std::vector<Family> families;
  bool found = false;
  for (const plan::Alternative& alternative : plan.explanation.alternatives) {
    const bool winner = !found && is_chosen(plan, alternative);
    families.push_back({winner && !alternative.weights ? numbers_of(plan) : alternative, winner});
    found = found || winner;
  }
  if (!found) families.insert(families.begin(), {numbers_of(plan), true});
  return families;
}

double throughput_of(const std::vector<Family>& families, plan::Strategy strategy) {
  for (const Family& family : families) {
    if (family.numbers.strategy == strategy) return family.numbers.throughput_samples_per_s;
  }
  return 0;
}

std::vector<std::string> reasons_of(const std::vector<Family>& families) {
  std::vector<std::string> lines;
  for (size_t f = 0; f < families.size(); ++f) {
    const plan::Alternative& family = families[f].numbers;
    if (families[f].is_winner) lines.insert(lines.begin(), winner_line(families[f], families));
    if (families[f].is_winner || family.note.empty()) continue;
    if (family.throughput_samples_per_s > 0) {
      lines.push_back(loser_line(family));
      continue;
    }
    // Those that have no plan for the same reason share a line.
    const auto same = [&](const Family& other) {
      return !other.is_winner && other.numbers.throughput_samples_per_s <= 0 &&
             other.numbers.note == family.note;
    };
    if (std::any_of(families.begin(), families.begin() + static_cast<std::ptrdiff_t>(f), same))
      continue;
    std::vector<plan::Strategy> strategies;
    for (const Family& other : families) {
      if (same(other)) strategies.push_back(other.numbers.strategy);
    }
    lines.push_back(strategies.size() == 1 ? loser_line(family)
                                           : fmt::format("{}: {}", plan::names_of(strategies),
                                                         printable(family.note)));
  }
  return lines;
}

std::vector<std::string> other_notes(const plan::Plan& plan) {
  std::vector<std::string> notes = plan.explanation.notes;
  for (const plan::Alternative& family : plan.explanation.alternatives) {
    if (family.note.empty()) continue;
    std::erase_if(notes, [&](const std::string& note) {
      return note.find(family.note) != std::string::npos;
    });
  }
  return notes;
}

std::string change_text(const plan::WhatIfResult& change) {
  if (!change.feasible) return "no plan";
  if (!(change.speedup > 0)) return "-";
  if (std::fabs(change.speedup - 1) < kSame) return "same";
  return fmt::format("{}{}", change.speedup > 1 ? "+" : "", percent_text(change.speedup - 1));
}

}  // namespace penstock::report
