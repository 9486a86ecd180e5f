#include "penstock/train/evaluation_record.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "penstock/train/checkpoint/file_stream.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"

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

}  // namespace

void EvaluationRecord::read(const fs::path& folder, int64_t steps) {
  all_.clear();
  std::error_code error;
  if (!fs::exists(folder / kName, error)) return;
  std::vector<Evaluation> found;
  try {
    FileReader file(folder / kName);
    if (file.size() > kMostBytes) return;
    std::string text(static_cast<size_t>(file.size()), '\0');
    file.read(text.data(), file.size());
    const Json document = parse_json(text, kName);
    const JsonReader root(document, kName);
    if (root.at("format").text() != kFormat) return;
    for (const JsonReader& entry : root.at("evaluations").elements(kMostEvaluations)) {
      Evaluation one{.step = entry.at("step").integer(0),
                     .loss = number_of(entry, "loss").value_or(std::nan("")),
                     .accuracy = number_of(entry, "accuracy"),
                     .top5 = number_of(entry, "top5"),
                     .written = number_of(entry, "written")};
      if (one.step <= steps && (found.empty() || one.step > found.back().step))
        found.push_back(one);
    }
  } catch (const Error&) {
    return;
  }
  all_ = std::move(found);
}

std::optional<int64_t> EvaluationRecord::best_step() const {
  const Evaluation* best = nullptr;
  for (const Evaluation& one : all_) {
    const double value = one.of(metric_);
    if (std::isnan(value)) continue;
    if (best == nullptr || !reaches(metric_, best->of(metric_), value)) best = &one;
  }
  return best == nullptr ? std::nullopt : std::optional(best->step);
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
