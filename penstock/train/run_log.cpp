#include "penstock/train/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>

#include "penstock/util/error.h"
#include "penstock/util/process/log.h"

namespace penstock::train {
namespace {

/// The same as those of penstock.loggers.CSV.
constexpr std::array<std::string_view, 10> kColumns = {
    "step",          "train/epoch",     "train/loss",          "train/accuracy",
    "train/lr",      "train/grad_norm", "train/samples_per_s", "eval/loss",
    "eval/accuracy", "eval/perplexity"};

std::string header() {
  std::string line;
  for (const std::string_view name : kColumns)
    line += fmt::format("{}{}", line.empty() ? "" : ",", name);
  return line + "\n";
}

std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() || number < 0) return std::nullopt;
  return number;
}

/// {"step": 7, ...
std::optional<int64_t> step_of_object(std::string_view line) {
  constexpr std::string_view kBegin = "{\"step\": ";
  return line.starts_with(kBegin) ? number_in(line.substr(kBegin.size())) : std::nullopt;
}

/// The shortest text that reads back as the same number.
std::string text_of(double number) { return fmt::format("{}", number); }

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& folder, int64_t step)
    : events_(folder, step + 1),
      table_(folder / "log.csv", step, header(), number_in),
      lines_(folder / "log.jsonl", step, "", step_of_object) {}

void RunLog::step(const StepNumbers& numbers) {
  Numbers all{{"train/epoch", static_cast<double>(numbers.epoch)}, {"train/loss", numbers.loss}};
  if (numbers.accuracy) all.emplace_back("train/accuracy", *numbers.accuracy);
  all.emplace_back("train/lr", numbers.learning_rate);
  if (numbers.grad_norm) all.emplace_back("train/grad_norm", *numbers.grad_norm);
  if (numbers.samples_per_s) all.emplace_back("train/samples_per_s", *numbers.samples_per_s);
  write(numbers.step, all);
}

void RunLog::evaluation(const Evaluation& evaluation) {
  Numbers all{{"eval/loss", evaluation.loss}};
  if (evaluation.accuracy) all.emplace_back("eval/accuracy", *evaluation.accuracy);
  all.emplace_back("eval/perplexity", std::exp(evaluation.loss));
  if (evaluation.top5) all.emplace_back("eval/top5", *evaluation.top5);
  if (evaluation.written) all.emplace_back("eval/written", *evaluation.written);
  write(evaluation.step, all);
}

void RunLog::write(int64_t step, const Numbers& numbers) {
  if (has_failed_) return;
  std::string row = fmt::format("{}", step);
  for (const std::string_view name : kColumns) {
    if (name == kColumns.front()) continue;
    const auto found = std::find_if(numbers.begin(), numbers.end(),
                                    [&](const auto& one) { return one.first == name; });
    row += "," + (found == numbers.end() ? std::string() : text_of(found->second));
  }
  std::string line = fmt::format("{{\"step\": {}, \"time\": {:.3f}", step, seconds_since_1970());
  for (const auto& [name, number] : numbers)
    line += fmt::format(", \"{}\": {}", name, std::isfinite(number) ? text_of(number) : "null");
  try {
    events_.add(step, numbers);
    table_.add(row + "\n");
    lines_.add(line + "}\n");
  } catch (const Error& error) {
    has_failed_ = true;
    log_warning(fmt::format("the run goes on without its log: {}", error.what()));
  }
}

}  // namespace penstock::train
