#include "tools/penstock/train/line_log.h"

#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <optional>

#include "penstock/util/process/log.h"
#include "penstock/util/text/format_rate.h"
#include "tools/penstock/command/command_line.h"
#include "tools/penstock/train/console_observer.h"

namespace penstock::tool {

namespace {

constexpr std::chrono::seconds kBetweenSteps{5};
constexpr std::string_view kWarning = "warning: ";

Json or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }
Json or_null(const std::optional<double>& value) { return value ? or_null(*value) : Json(); }

/// One that says its level itself is of that.
job::LogRecord record_of(std::string_view text) {
  if (!text.starts_with(kWarning)) return {.message = std::string(text)};
  return {.level = "warning", .message = std::string(text.substr(kWarning.size()))};
}

}  // namespace

void LineLog::write(const job::LogRecord& record) const {
  std::cerr << job::log_line(form_, std::chrono::system_clock::now(), rank_, record) << std::flush;
}

void LineLog::take_all_messages() const {
  set_complaint(
      [this](std::string_view what) { write({.level = "error", .message = std::string(what)}); });
  set_log_sink([this](LogLevel level, std::string_view message) {
    job::LogRecord record = record_of(message);
    if (level == LogLevel::Warning) record.level = "warning";
    // Rank 0 says what is the same on all.
    if (rank_ == 0 || level == LogLevel::Warning) write(record);
  });
}

job::Listener LineLog::listener() const {
  return {.say = [this](const std::string& text) { write(record_of(text)); },
          .progress =
              [this](const std::string& what) {
                write({.message = what});
                return [](int, int) {};
              }};
}

void LineLog::on_mini_batch(const train::Progress& p) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kBetweenSteps) return;
  last_ = now;
  write({.message = fmt::format("step {}, {}/{} of epoch {}/{}: loss {:.4f}, {} samples/s", p.step,
                                p.mini_batch, p.mini_batches, p.epoch + 1, p.epochs, p.loss,
                                format_rate(p.samples_per_s)),
         .fields = {{"event", "step"},
                    {"step", p.step},
                    {"epoch", p.epoch + 1},
                    {"loss", or_null(p.loss)},
                    {"accuracy", or_null(p.accuracy)},
                    {"samples_per_s", or_null(p.samples_per_s)}}});
}

void LineLog::on_epoch(const train::EpochSummary& s) {
  const std::string text = epoch_text(s);
  if (text.empty()) return;
  write({.message = text,
         .fields = {{"event", "epoch"},
                    {"epoch", s.epoch + 1},
                    {"whole", s.is_whole},
                    {"loss", or_null(s.loss)},
                    {"test_loss", or_null(s.test_loss)},
                    {"test_accuracy", or_null(s.test_accuracy)},
                    {"samples_per_s", or_null(s.samples_per_s)}}});
}

void LineLog::on_evaluation(const train::Evaluation& e) {
  write({.message = evaluation_text(e),
         .fields = {{"event", "evaluation"},
                    {"step", e.step},
                    {"test_loss", or_null(e.loss)},
                    {"test_accuracy", or_null(e.accuracy)}}});
}

}  // namespace penstock::tool
