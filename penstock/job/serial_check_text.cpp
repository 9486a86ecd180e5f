#include "penstock/job/serial_check_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/plan/boundaries.h"
#include "penstock/util/files/json.h"

namespace penstock::job {

namespace {

std::string quality(const train::SerialCheck& check) {
  return check.tolerance == 0 ? "bit for bit equal"
                              : fmt::format("equal to {:g} of their size", check.tolerance);
}

/// Behind the losses, where nothing differs.
std::string weights_text(const train::SerialCheck& check) {
  return check.compares_weights ? ", and so are all weights after them"
                                : "; weights are not compared, because the optimiser makes whole "
                                  "steps of the rounding "
                                  "where a gradient is zero: compare them with --optimizer sgd";
}

/// What the codings of boundaries did to the losses.
std::string codings_text(const plan::Plan& plan, const train::SerialCheck& check) {
  if (check.uncoded_losses.empty()) return "";
  const double above = check.loss_above_uncoded();
  return fmt::format("  messages in {}: losses {:.2g} % {} uncoded\n", plan::boundaries_text(plan),
                     100 * std::abs(above), above < 0 ? "below" : "above");
}

/// All digits, so that a difference in the last bit shows.
std::string row(size_t i, const std::vector<double>& ours, const std::vector<double>& theirs,
                const char* what) {
  return fmt::format("  {:>6} {:<13} {:>24.17g} {:>24.17g} {:>12.3g}\n", i + 1, what, ours[i],
                     theirs[i], ours[i] - theirs[i]);
}

std::string table_of_difference(const train::SerialCheck& check) {
  constexpr size_t kBefore = 2;
  constexpr size_t kRows = 6;
  const auto first = static_cast<size_t>(check.first_difference);
  const size_t begin = first > kBefore ? first - kBefore : 0;
  std::string text = fmt::format("  {:>6} {:<13} {:>24} {:>24} {:>12}\n", "step", "", "pipeline",
                                 "reference", "difference");
  for (size_t i = begin; i < std::min(begin + kRows, check.losses.size()); ++i) {
    text += row(i, check.losses, check.reference_losses, "loss");
    if (!check.grad_norms.empty())
      text += row(i, check.grad_norms, check.reference_grad_norms, "gradient norm");
  }
  return text;
}

}  // namespace

std::string check_json(const plan::Plan& plan, const train::SerialCheck& check) {
  const Json document{
      {"equal", check.equal()},
      {"bit_for_bit", check.tolerance == 0},
      {"tolerance", check.tolerance},
      {"reference", check.reference},
      {"strategy", to_string(plan.strategy)},
      {"config", plan.config()},
      {"weights", to_string(plan.weights)},
      {"steps", check.losses.size()},
      {"first_difference",
       check.first_difference < 0 ? Json(nullptr) : Json(check.first_difference + 1)},
      {"largest_difference",
       std::isfinite(check.largest_difference) ? Json(check.largest_difference) : Json(nullptr)},
      {"compares_weights", check.compares_weights},
      {"first_weight", check.first_weight.empty() ? Json(nullptr) : Json(check.first_weight)},
      {"losses", check.losses},
      {"uncoded_losses", check.uncoded_losses},
      {"reference_losses", check.reference_losses},
      {"grad_norms", check.grad_norms},
      {"reference_grad_norms", check.reference_grad_norms}};
  return document.dump() + "\n";
}

std::string check_text(const plan::Plan& plan, const train::SerialCheck& check) {
  const std::string what = fmt::format("{} {} ({} weights) against {}", to_string(plan.strategy),
                                       plan.config(), to_string(plan.weights), check.reference);
  if (check.equal()) {
    return fmt::format("{}:\n  losses of {} steps {}{}\n{}", what, check.losses.size(),
                       quality(check), weights_text(check), codings_text(plan, check));
  }
  if (check.first_difference < 0) {
    return fmt::format(
        "{}:\n  losses of {} steps {}, but after them the weights differ, first '{}'\n", what,
        check.losses.size(), quality(check), check.first_weight);
  }
  return fmt::format(
      "{}:\n  step {} is the first of {} that is not {}; the losses differ by up to {:.3g} of "
      "their size\n{}",
      what, check.first_difference + 1, check.losses.size(), quality(check),
      check.largest_difference, table_of_difference(check));
}

}  // namespace penstock::job
