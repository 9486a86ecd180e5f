#include "tools/penstock/train/console_observer.h"

#include <fmt/format.h>

#include <cmath>
#include <iostream>

#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/units.h"

namespace penstock::tool {

void ConsoleObserver::on_mini_batch(const train::Progress& p) {
  if (!bar_) bar_.emplace(fmt::format("epoch {}/{}", p.epoch + 1, p.epochs));
  bar_->update(
      p.mini_batch, p.mini_batches,
      fmt::format("loss {:.4f}{}  {} samples/s", p.loss,
                  std::isnan(p.accuracy) ? std::string()
                                         : fmt::format("  accuracy {:.1f} %", 100 * p.accuracy),
                  format_rate(p.samples_per_s)));
}

std::string epoch_text(const train::EpochSummary& s) {
  if (!(s.samples_per_s > 0)) return {};
  std::string text = fmt::format("epoch {}{}: loss {:.4f}", s.epoch + 1,
                                 s.is_whole ? "" : " (stopped within it)", s.loss);
  if (!std::isnan(s.train_accuracy))
    text += fmt::format(", accuracy {:.2f} %", 100 * s.train_accuracy);
  if (s.test_loss) text += fmt::format("; test loss {:.4f}", *s.test_loss);
  if (s.test_accuracy) text += fmt::format(", test accuracy {:.2f} %", 100 * *s.test_accuracy);
  if (s.grad_norm) text += fmt::format("; mean gradient norm {:.4g}", *s.grad_norm);
  return text + fmt::format("; {} samples/s, {}", format_rate(s.samples_per_s),
                            format_duration(s.train_ns));
}

std::string evaluation_text(const train::Evaluation& e) {
  std::string text = fmt::format("step {}: test loss {:.4f}", e.step, e.loss);
  if (e.accuracy) text += fmt::format(", test accuracy {:.2f} %", 100 * *e.accuracy);
  if (e.top5) text += fmt::format(", top-5 {:.2f} %", 100 * *e.top5);
  if (e.written) text += fmt::format(", {:.4g} of written sentences", *e.written);
  return text;
}

void ConsoleObserver::on_epoch(const train::EpochSummary& summary) {
  bar_.reset();
  if (const std::string text = epoch_text(summary); !text.empty()) std::cerr << text << std::endl;
}

void ConsoleObserver::on_evaluation(const train::Evaluation& evaluation) {
  bar_.reset();
  std::cerr << evaluation_text(evaluation) << std::endl;
}

}  // namespace penstock::tool
