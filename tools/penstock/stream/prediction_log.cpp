#include "tools/penstock/stream/prediction_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/printable.h"

namespace penstock::tool {

namespace {

/// Six digits are more than a probability has.
double rounded(double value) { return std::round(value * 1e6) / 1e6; }

}  // namespace

PredictionLog::PredictionLog(std::string path, std::vector<std::string> names)
    : path_(std::move(path)), names_(std::move(names)), file_(path_, std::ios::binary) {
  if (!file_) {
    throw ConfigError(fmt::format("cannot write '{}': {}", printable(path_), std::strerror(errno)));
  }
}

std::string PredictionLog::name_of(int cls) const {
  const auto index = static_cast<size_t>(cls);
  return index < names_.size() ? names_[index] : fmt::to_string(cls);
}

void PredictionLog::add(const stream::FrameResult& result) {
  Json line{{"frame", result.frame}};
  const stream::Losses& losses = result.losses;
  if (losses.frames > 0) line["loss"] = losses.mean();
  if (losses.copied > 0) line["copying_loss"] = losses.copied_mean();
  if (losses.rebuilt > 0) line["rebuilt_loss"] = losses.rebuilt_mean();
  const std::vector<float>& classes = result.classes;
  if (!classes.empty()) {
    const auto best = std::max_element(classes.begin(), classes.end());
    line["class"] = name_of(static_cast<int>(best - classes.begin()));
    line["share"] = rounded(*best);
    Json shares = Json::object();
    for (size_t c = 0; c < classes.size(); ++c)
      shares[name_of(static_cast<int>(c))] = rounded(classes[c]);
    line["shares"] = std::move(shares);
  }
  if (result.label) line["label"] = name_of(*result.label);
  file_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

std::string PredictionLog::finish() {
  file_.close();
  return file_
             ? ""
             : fmt::format("'{}' could not be written whole: is the disk full?", printable(path_));
}

}  // namespace penstock::tool
