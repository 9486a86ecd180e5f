#include "penstock/train/evaluation_record.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/file_stream.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/process/log.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "penstock-evaluations";
constexpr const char* kName = "evaluations.json";
constexpr int64_t kMostBytes = 64 << 20;
constexpr int64_t kMostEvaluations = 1'000'000;

std::optional<double> number_of(const JsonReader& entry, std::string_view name) {
  const auto found = entry.find(name);
  return found ? std::optional(found->number()) : std::nullopt;
}

Json optional_json(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? Json(*number) : Json(nullptr);
}

/// Nothing: there is no file. Throws Error where it cannot be read.
std::optional<std::string> text_of(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / kName, error)) return std::nullopt;
  FileReader file(folder / kName);
  if (file.size() > kMostBytes)
    throw ConfigError(fmt::format("expected at most {} bytes, found {}", kMostBytes, file.size()));
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(text.data(), file.size());
  return text;
}

/// Out of the way of the one that this run will write.
void set_aside(const fs::path& folder, const std::string& why) {
  const fs::path file = folder / kName;
  const fs::path aside = folder / fmt::format("{}.damaged", kName);
  std::error_code error;
  fs::rename(file, aside, error);
  log_warning(
      fmt::format("'{}' is damaged ({}): the evaluations before are not known, and the next one "
                  "counts as the best; {}",
                  file.string(), why,
                  error ? "it cannot be renamed and will be replaced: " + error.message()
                        : fmt::format("it is kept as '{}'", aside.string())));
}

bool has_checkpoint_of(const fs::path& folder, int64_t step) {
  std::error_code error;
  return fs::exists(folder / checkpoint_folder_name(step) / "manifest.json", error);
}

}  // namespace

std::vector<Evaluation> EvaluationRecord::parse(const std::string& text, int64_t steps) {
  std::vector<Evaluation> found;
  const Json document = parse_json(text, kName);
  const JsonReader root(document, kName);
  if (const std::string& format = root.at("format").text(); format != kFormat)
    throw ConfigError(fmt::format("expected the format {}, found {}", kFormat, printable(format)));
  for (const JsonReader& entry : root.at("evaluations").elements(kMostEvaluations)) {
    Evaluation one{.step = entry.at("step").integer(0),
                   .loss = number_of(entry, "loss").value_or(std::nan("")),
                   .accuracy = number_of(entry, "accuracy"),
                   .top5 = number_of(entry, "top5"),
                   .written = number_of(entry, "written")};
    if (one.step <= steps && (found.empty() || one.step > found.back().step)) found.push_back(one);
  }
  return found;
}

void EvaluationRecord::read(const fs::path& folder, int64_t steps, const runtime::Ranks& ranks) {
  // Ranks with other views of the folder would save at other steps, and saving is collective.
  const std::vector<std::string> texts = runtime::together(ranks, [&]() -> std::string {
    if (!ranks.is_first()) return "";
    std::optional<std::string> text;
    std::vector<Evaluation> kept;
    try {
      text = text_of(folder);
      if (text) kept = parse(*text, steps);
    } catch (const Error& error) {
      set_aside(folder, error.what());
      text.reset();
    }
    std::erase_if(kept,
                  [&](const Evaluation& one) { return !has_checkpoint_of(folder, one.step); });
    const Evaluation* best = best_of(kept);
    return fmt::format("{}\n{}", best == nullptr ? -1 : best->step, text.value_or(""));
  });
  const std::string& spread = texts.front();
  const size_t line = spread.find('\n');
  const int64_t kept = std::stoll(spread.substr(0, line));
  const std::string text = spread.substr(line + 1);
  all_ = text.empty() ? std::vector<Evaluation>() : parse(text, steps);
  kept_.reset();
  for (const Evaluation& one : all_) {
    if (one.step == kept) kept_ = one;
  }
}

const Evaluation* EvaluationRecord::best_of(const std::vector<Evaluation>& all) const {
  const Evaluation* best = nullptr;
  for (const Evaluation& one : all) {
    const double value = one.of(metric_);
    if (std::isnan(value)) continue;
    if (best == nullptr || !reaches(metric_, best->of(metric_), value)) best = &one;
  }
  return best;
}

std::optional<int64_t> EvaluationRecord::best_step() const {
  const Evaluation* best = best_of(all_);
  return best == nullptr ? std::nullopt : std::optional(best->step);
}

std::optional<int64_t> EvaluationRecord::kept_step() const {
  return kept_ ? std::optional(kept_->step) : std::nullopt;
}

bool EvaluationRecord::keep(const Evaluation& evaluation) {
  const double value = evaluation.of(metric_);
  if (std::isnan(value) || (kept_ && reaches(metric_, kept_->of(metric_), value))) return false;
  kept_ = evaluation;
  return true;
}

void EvaluationRecord::write(const fs::path& folder) const {
  Json evaluations = Json::array();
  for (const Evaluation& one : all_) {
    Json entry = {{"step", one.step},
                  {"loss", optional_json(one.loss)},
                  {"accuracy", optional_json(one.accuracy)},
                  {"perplexity", optional_json(std::exp(one.loss))}};
    if (one.top5) entry["top5"] = optional_json(one.top5);
    if (one.written) entry["written"] = optional_json(one.written);
    evaluations.push_back(std::move(entry));
  }
  const std::optional<int64_t> best = best_step();
  const std::string text = to_text({{"format", kFormat},
                                    {"metric", to_string(metric_)},
                                    {"best_step", best ? Json(*best) : Json(nullptr)},
                                    {"evaluations", evaluations}});
  const fs::path part = folder / fmt::format(".{}.part", kName);
  std::error_code error;
  fs::remove(part, error);  // of a run that was killed
  FileWriter file(part);
  file.write(text.data(), text.size());
  file.finish();
  fs::rename(part, folder / kName, error);
  if (error) {
    throw RuntimeError(
        fmt::format("cannot write '{}': {}", (folder / kName).string(), error.message()));
  }
}

}  // namespace penstock::train
