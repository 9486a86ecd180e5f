#include <fmt/format.h>

#include "penstock/report/plan/plan_picture.h"
#include "penstock/report/text/text.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/printable.h"

namespace penstock::report {

namespace {

std::string title(const plan::Plan& plan) {
  return fmt::format("{}: {} {}", plan.model.empty() ? "model" : shortened(plan.model, 40),
                     to_string(plan.strategy), short_config(plan.config(), 40));
}

std::string how_it_runs(const PlanView& view) {
  const plan::Plan& plan = view.plan;
  const int used = plan.num_workers();
  const int all = view.topology ? view.topology->num_workers() : used;
  return fmt::format(
      "{}, weights {}{}, {} of {} per step, {} in flight per worker of stage 0",
      used < all ? fmt::format("{} of {} workers", used, all) : plural(used, "worker"),
      plan.weights_text(),
      used > static_cast<int>(plan.stages.size()) ? ", gradients by " + view.gradient_method() : "",
      plural(plan.micro_batches, "micro-batch"), plural(plan.micro_batch_size, "sample"),
      plan.depth);
}

std::string what_it_reaches(const PlanView& view) {
  const plan::Plan& plan = view.plan;
  std::string text =
      fmt::format("predicted {} samples/s", format_rate(plan.prediction.throughput_samples_per_s));
  if (plan.prediction.idle_share > 0)
    text += fmt::format(", workers idle {} of the time", percent_text(plan.prediction.idle_share));
  text += fmt::format(", cost model {}", shortened(plan.explanation.cost_model, 20));
  if (plan.explanation.optimality_gap > 0)
    text += fmt::format(", at most {} above the optimum",
                        percent_text(plan.explanation.optimality_gap));
  return text;
}

}  // namespace

void draw_time_bar(Svg& svg, const Box& box, const StageView& stage, double full_ns) {
  svg.rect(box, "track", 2);
  if (!(full_ns > 0)) return;
  double x = box.x;
  const auto part = [&](double ns, std::string_view style) {
    const double width = box.width * ns / full_ns;
    if (width > 0.05) svg.rect({x, box.y, width, box.height}, style);
    x += width;
  };
  part(stage.forward_ns, "forward");
  part(stage.backward_ns, "backward");
  part(stage.sync_ns, "sync");
  part(stage.step_ns, "step");
}

void draw_legend(Svg& svg, double y, double full_ns) {
  double x = kPictureMargin;
  const auto entry = [&](std::string_view style, std::string_view name, double width) {
    svg.rect({x, y - 10, 14, 12}, style);
    svg.text(x + 20, y, "muted", name);
    x += width;
  };
  entry("forward", "forward", 92);
  entry("backward", "backward", 102);
  entry("sync", "gradient synchronisation", 196);
  entry("step", "optimiser step", 130);
  entry("memory", "memory", 92);
  svg.text(x, y, "muted",
           fmt::format("A full bar of time is {} per micro-batch, the slowest part's.",
                       duration_text(full_ns)));
}

std::string plan_picture(const PlanView& view) {
  const plan::Plan& plan = view.plan;
  Svg svg;
  double y = 38;
  svg.text(kPictureMargin, y, "title", title(plan));
  svg.text(kPictureMargin, y += 24, "muted", fitted(how_it_runs(view), kPictureContent, "muted"));
  svg.text(kPictureMargin, y += 18, "muted", what_it_reaches(view));
  if (view.bottleneck.time_ns > 0) {
    svg.text(kPictureMargin, y += 18, "accent",
             fmt::format("slowest part: {}, {} per micro-batch", view.bottleneck_name(),
                         duration_text(view.bottleneck.time_ns)));
  }
  if (view.stages.size() <= kMostCards) {
    draw_legend(svg, y += 28, view.bottleneck.time_ns);
    y = draw_cards(svg, view, y + 18);
  }
  y = draw_places(svg, view, y + 28);
  return svg.document(kPictureWidth, y + kPictureMargin, fmt::format("Plan of {}", title(plan)));
}

}  // namespace penstock::report
