// The options of `penstock profile`, and what they are for the profiler.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "penstock/options/sections.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::options {
namespace {

using OfProfile = ProfileRequest;
using ProfileRow = RowOf<ProfileRequest>;
using Measure = MeasureRequest;

constexpr int kMostPasses = 1'000'000;

Slot measured_precision(OfProfile& request) {
  Named value = named(request.run.precision, parse_precision,
                      [](Precision precision) { return to_string(precision); });
  value.hints_at_help = true;
  return value;
}

std::vector<ProfileRow> profile_loss_rows() {
  std::vector<ProfileRow> rows = loss_rows<OfProfile>();
  for (ProfileRow& row : rows) {
    if (row.name == "--label-smoothing") row = with_zero(std::move(row));
  }
  return in<OfProfile>(Section::Loss, std::move(rows));
}

constexpr std::array<std::pair<std::string_view, model::Repeats>, 3> kRepeats = {
    {{"auto", model::Repeats::Auto}, {"once", model::Repeats::Once}, {"all", model::Repeats::All}}};

model::Repeats parse_repeats(const std::string& name) {
  for (const auto& [own, repeats] : kRepeats) {
    if (own == name) return repeats;
  }
  throw ConfigError(fmt::format("expected auto, once or all, found '{}'", printable(name)));
}

Slot measured_repeats(OfProfile& request) {
  return named(request.run.repeats, parse_repeats, [](model::Repeats repeats) {
    return kRepeats.at(static_cast<size_t>(repeats)).first;
  });
}

/// An option of measurements alone.
ProfileRow measured(ProfileRow row) { return without("--analytic", std::move(row)); }

/// What is measured.
std::vector<ProfileRow> subject_rows() {
  return in<OfProfile>(
      Section::Run,
      {measured(
           row<OfProfile>("--precision", measured_precision,
                          fmt::format("Numbers in which the model computes: {}", kPrecisionHelp))),
       row<&OfProfile::run, &Measure::analytic>(
           "--analytic",
           "Estimate the times on --device from the model's operations instead of measuring "
           "on this machine"),
       path(row<&OfProfile::run, &Measure::device>(
                "--device",
                "What is measured: cpu (default) or a GPU such as cuda:0. With --analytic: a name "
                "of --list-devices, or a TOML file (docs/profiles.md)"),
            [](std::string_view value) { return value.ends_with(".toml"); }),
       measured(row<&OfProfile::run, &Measure::device_graphs>(
           "--cuda-graphs",
           "On a GPU: measure passes that are CUDA graphs, for train --cuda-graphs"))});
}

ProfileRow concurrency() {
  ProfileRow one = measured(row<&OfProfile::run, &Measure::concurrency>(
      "--concurrency",
      "Workers that measure at the same time, to include contention for memory bandwidth as in a "
      "real run",
      1, kMaxThreads));
  one.usual = [] { return fmt::to_string(usual_concurrency()); };
  return one;
}

std::vector<ProfileRow> measuring_rows() {
  return in<OfProfile>(
      Section::Run,
      {measured(row<&OfProfile::run, &Measure::samples>(
           "--samples",
           "Timed passes, of which the mean is reported (default: chosen). Chosen are 10 or more, "
           "until a second is over and the mean is known to 2 %, or ten seconds are over. They are "
           "fewer if they took longer than a minute",
           1, kMostPasses)),
       measured(row<&OfProfile::run, &Measure::warmup>(
           "--warmup",
           "Untimed passes before the timed ones, at least; without --samples more while times "
           "fall",
           0, kMostPasses)),
       measured(row<OfProfile>(
           "--measure", measured_repeats,
           "Of layers that do the same work: once (one of them, and another one as a check), all, "
           "or auto, which is once for large models")),
       without("--task",
               measured(path(row<&OfProfile::run, &Measure::lengths_of>(
                   "--lengths-of",
                   "Measure the lengths that mini-batches of this data have with train --lengths "
                   "bucketed, of --batch-size samples: a folder of penstock data")))),
       measured(row<&OfProfile::run, &Measure::layers>(
           "--layers",
           "Measure only these layers: FIRST..LAST, names or numbers from 0. The file is for "
           "--join")),
       measured(threads_row<OfProfile>("Threads per worker")), concurrency(),
       without("--loss",
               without("--batch-size",
                       measured(row<OfProfile>(
                           "--task", [](OfProfile& r) -> Slot { return named_task(r.run.task); },
                           "For penstock stream: single frames, and the model and the "
                           "loss of this task (reconstruct, predict, pixels or "
                           "label)"))))});
}

std::vector<ProfileRow> profile_output_rows() {
  ProfileRow file = row<&OfProfile::output, &ProfileOutputRequest::file>(
      "--output", "File to write the profile to (JSON)");
  file.letter = "-o";
  file.is_path = names_a_file;
  return in<OfProfile>(Section::Output, {std::move(file), json_row<OfProfile>()});
}

}  // namespace

template <>
std::span<const ProfileRow> rows_of() {
  static const std::vector<ProfileRow> kRows = joined<OfProfile>(
      {in<OfProfile>(Section::Model, model_rows<OfProfile>(/*is_required=*/true)),
       in<OfProfile>(Section::Model, sample_rows<OfProfile>()),
       in<OfProfile>(Section::Model, program_rows<OfProfile>()),
       in<OfProfile>(
           Section::Run,
           {row<&OfProfile::run, &Measure::batch_size>("--batch-size", "Samples per micro-batch",
                                                       1),
            row<OfProfile>(
                "--optimizer", [](OfProfile& r) -> Slot { return named_optimizer(r.optimizer); },
                optimizer_help() + ": the optimiser whose step is measured")}),
       profile_loss_rows(), subject_rows(), measuring_rows(), profile_output_rows(),
       in<OfProfile>(Section::Run, {seed_row<OfProfile>()}), file_rows<OfProfile>()});
  return kRows;
}

int usual_concurrency() {
  constexpr unsigned kMost = 2;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMost));
}

model::ProfilerOptions profiler_options_of(const ProfileRequest& request) {
  const MeasureRequest& run = request.run;
  model::ProfilerOptions profiler{
      .batch_size = run.batch_size,
      .warmup = run.warmup,
      .least_time = std::chrono::milliseconds(1000),
      .wanted_error = 0.02,
      .threads = run.threads,
      .concurrency = static_cast<int>(run.concurrency.value_or(usual_concurrency())),
      .seed = run.seed,
      .optimizer = request.optimizer,
      .loss = request.loss,
      .precision = run.precision,
      .device_graphs = run.device_graphs,
      .repeats = run.repeats};
  if (!run.samples) return profiler;
  profiler.samples = static_cast<int>(*run.samples);
  profiler.least_time = {};
  profiler.wanted_error = 0;
  profiler.most_time = {};
  return profiler;
}

}  // namespace penstock::options
