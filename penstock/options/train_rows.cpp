#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "penstock/options/sections.h"
#include "penstock/train/data/data_formats.h"
#include "penstock/util/error.h"

namespace penstock::options {
namespace {

using R = TrainRequest;

constexpr int64_t kMostSamples = 1'000'000'000;

Named bad_samples(DataRequest& data) {
  return {[&data](const std::string& name) {
            if (name != "fatal" && name != "skip")
              throw ConfigError(fmt::format("expected fatal or skip, found '{}'", name));
            data.bad_samples = name == "skip" ? BadSamples::Skip : BadSamples::Fatal;
          },
          [&data] { return data.bad_samples == BadSamples::Skip ? "skip" : "fatal"; }};
}

Named fabric(RunRequest& run) {
  return {[&run](const std::string& name) { run.fabric = net::parse_fabric(name); },
          [&run] { return net::to_string(run.fabric); }};
}

Named tls(RunRequest& run) {
  return {[&run](const std::string& name) { run.tls = net::parse_tls(name); },
          [&run] { return run.tls ? net::to_string(*run.tls) : ""; }};
}

Named metric(DataRequest& data) {
  return named_or_none(data.metric, train::parse_metric,
                       [](train::Metric value) { return to_string(value); });
}

std::string without_writing(const RunFacts& facts) {
  const train::Metric metric = facts.request.data.metric.value_or(train::Metric::Loss);
  return traits(metric).writes
             ? ""
             : fmt::format("--metric is {}, expected bleu or meteor", to_string(metric));
}

std::string without_beam(const RunFacts& facts) {
  if (std::string why = without_writing(facts); !why.empty()) return why;
  return facts.request.data.beam > 1 ? ""
                                     : "--beam is 1: one beginning is followed, whatever it says";
}

std::string in_streams(const RunFacts& facts) {
  return facts.request.data.carry_state
             ? "--carry-state reads the text in its order, and leaves out what does not fill a step"
             : "";
}

std::string without_job(const RunFacts& facts) {
  return facts.in_job ? "" : "this process is not a rank of a job of several";
}

std::vector<Row> trained_program_rows() {
  std::vector<Row> rows = program_rows<R>();
  rows.back().kept = [](const R& r) -> std::optional<std::string> {
    if (!r.model.name.ends_with(".pt2")) return std::nullopt;
    return std::string(to_string(r.model.frozen_weights));
  };
  return rows;
}

std::vector<Row> data_rows() {
  return in<R>(
      Section::Data, "data comes with the calls of fit and step",
      {{.name = "--data",
        .slot = at<&R::data, &DataRequest::name>,
        .help = fmt::format("{} (default: {})", train::data_format_help(), kUsualData),
        .is_path = names_data},
       {.name = "--test-data",
        .slot = at<&R::data, &DataRequest::test_file>,
        .help = "File or folder with the test samples (default: those of --data, or a part of "
                "them)",
        .is_path = names_a_file},
       {.name = "--test-share",
        .slot = at<&R::data, &DataRequest::test_share>,
        .help = "The part of a file's samples that is for the test, where it has no others",
        .excludes = {"--test-data"}},
       {.name = "--bad-samples",
        .slot = [](R& r) -> Slot { return bad_samples(r.data); },
        .help = "What to do with samples of a file that hold nan, or a token or class that does "
                "not exist, and with images that cannot be decoded: fatal or skip"},
       {.name = "--class-order",
        .changes = Changes::Learning,
        .slot = [](R& r) -> Slot { return one_of(r.data.class_order, train::kClassOrders); },
        .help = "How folders of classes are numbered: text (1, 10, 2), as torchvision does, or "
                "numbers (1, 2, 10), as timm does"},
       {.name = "--turn-images",
        .changes = Changes::Learning,
        .slot = at<&R::data, &DataRequest::turns_images>,
        .help = "Turn images as their cameras were held (EXIF), which torchvision does not"},
       {.name = "--bytes-as-tokens",
        .slot = at<&R::data, &DataRequest::bytes_are_tokens>,
        .help = "Take the bytes of a text as tokens, also for a model that knows more than 1024 "
                "tokens"},
       {.name = "--data-threads",
        .slot = at<&R::data, &DataRequest::threads>,
        .help = "Threads that decode the next images, or gather the next samples for a GPU, while "
                "the model computes; 0: none (default: 1, with a GPU up to 4)",
        .least = 0,
        .most = kMaxThreads},
       {.name = "--data-folder",
        .slot = at<&R::data, &DataRequest::folder>,
        .help = "The data folder of data sets that need one",
        .is_path = names_a_file},
       {.name = "--train-samples",
        .slot = at<&R::data, &DataRequest::train_samples>,
        .help = "Use only the first N training samples",
        .least = 1,
        .most = kMostSamples},
       {.name = "--test-samples",
        .slot = at<&R::data, &DataRequest::test_samples>,
        .help = "Use only the first N test samples",
        .least = 1,
        .most = kMostSamples},
       {.name = "--no-shuffle",
        .changes = Changes::Learning,
        .slot = off<&R::data, &DataRequest::shuffle>,
        .help = "Keep the order of the data set",
        .idle = in_streams},
       {.name = "--lengths",
        .changes = Changes::Both,
        .slot = [](R& r) -> Slot { return one_of(r.data.lengths, train::kLengths); },
        .help = "What sequences are padded to: whole (the model's inputs), batch (the longest of "
                "their mini-batch) or bucketed (likewise, and sentences of like length share a "
                "mini-batch)"},
       {.name = "--carry-state",
        .changes = Changes::Learning,
        .slot = at<&R::data, &DataRequest::carry_state>,
        .help =
            "Take the samples as windows of one text, and carry the states of LSTMs from each to "
            "the next (truncated backpropagation through time). The text is read in as many "
            "parts at once as a mini-batch has samples. Models: awd_lm"},
       {.name = "--drop-last",
        .keyword = "drop_last",
        .changes = Changes::Learning,
        .slot = at<&R::data, &DataRequest::drop_last>,
        .help = "End an epoch before a step that would not have all of its samples",
        .idle = in_streams},
       {.name = "--no-eval",
        .slot = off<&R::data, &DataRequest::evaluate>,
        .help = "Do not evaluate on the test set"},
       {.name = "--eval-every",
        .slot = at<&R::data, &DataRequest::eval_every>,
        .help = "Evaluate also after every N optimiser steps, for which the pipeline is emptied "
                "(default: only after each epoch)",
        .least = 1,
        .excludes = {"--no-eval"}},
       {.name = "--metric",
        .slot = [](R& r) -> Slot { return metric(r.data); },
        .help =
            fmt::format("What evaluations are judged by (default: loss). {}", train::metric_help()),
        .excludes = {"--no-eval"}},
       {.name = "--target",
        .slot = at<&R::data, &DataRequest::target>,
        .help = "End with the first evaluation whose metric is at least as good, and report the "
                "time to it",
        .excludes = {"--no-eval"}},
       {.name = "--beam",
        .slot = at<&R::data, &DataRequest::beam>,
        .help = "Metrics bleu and meteor: beginnings of a sentence that are followed while it is "
                "written; 1: always the likeliest token",
        .least = 1,
        .idle = without_writing},
       {.name = "--length-penalty",
        .slot = at<&R::data, &DataRequest::length_penalty>,
        .help = "Metrics bleu and meteor: how much longer sentences are preferred; 0: not at all",
        .idle = without_beam},
       {.name = "--coverage-penalty",
        .slot = at<&R::data, &DataRequest::coverage_penalty>,
        .help = "Metrics bleu and meteor: how much sentences are preferred whose attention has "
                "seen all words of the source, such as 0.2; 0: not at all. Models: gnmt8, gnmt16",
        .least = 0,
        .idle = without_beam}});
}

std::vector<Row> run_rows() {
  return in<R>(
      Section::Run, "the trainer has its own ways",
      {with("threads", Changes::Plan, threads_row<R>("Threads per worker")),
       {.name = "--device",
        .keyword = "device",
        .changes = Changes::Plan,
        .slot = at<&R::run, &RunRequest::device>,
        .help = "What workers compute on: cpu, cuda (all GPUs), or a list such as cuda:0,cuda:1; "
                "neighbouring workers share a device where there are more workers"},
       {.name = "--cuda-graphs",
        .keyword = "cuda_graphs",
        .slot = at<&R::run, &RunRequest::device_graphs>,
        .help = "On GPUs, give all kernels of a forward or backward pass in one call: faster where "
                "launches take longer than kernels; with one version of the weights (flush, "
                "latest, current), docs/devices.md"},
       {.name = "--compile",
        .keyword = "compile",
        .slot = at<&R::run, &RunRequest::compile>,
        .help = "Compile the stages of a program (FILE.pt2) ahead of time by PyTorch's compiler, "
                "for workers on CPUs in float32: needs python3 with the same PyTorch, and a C++ "
                "compiler; docs/compile.md"},
       {.name = "--deadline",
        .slot = at<&R::run, &RunRequest::deadline_s>,
        .help = "Longest time that a worker may wait, in seconds"},
       {.name = "--silence",
        .slot = at<&R::run, &RunRequest::silence_s>,
        .help = "In a job: a rank that has not answered for so many seconds is lost",
        .idle = without_job},
       {.name = "--patience",
        .slot = at<&R::run, &RunRequest::patience_s>,
        .help = "In a job: how many seconds ranks wait at the start until all have come",
        .idle = without_job},
       {.name = "--stopped-exit-code",
        .slot = at<&R::run, &RunRequest::stopped_exit_code>,
        .help = "Exit code when a signal ends the run before its end. Another one than 0 tells "
                "what starts the command that it is not complete, such as a Kubernetes Job whose "
                "pod is drained",
        .least = 0,
        .most = 255},
       {.name = "--fabric",
        .keyword = "fabric",
        .slot = [](R& r) -> Slot { return fabric(r.run); },
        .help = "In a job: what carries large messages between ranks. auto: connections, and the "
                "memory of the same host. tcp: connections. gloo, mpi (started by mpirun) and nccl "
                "(between GPUs): those libraries. local refuses a job of several ranks"},
       {.name = "--tls",
        .keyword = "tls",
        .slot = [](R& r) -> Slot { return tls(r.run); },
        .help = "In a job: how connections between ranks are encrypted. off; secret: with "
                "PENSTOCK_JOB_TOKEN as the key; or a folder with tls.crt, tls.key and ca.crt "
                "(default: PENSTOCK_TLS, or off)",
        .idle = without_job,
        .is_path = [](std::string_view value) { return value != "off" && value != "secret"; }},
       {.name = "--checkpoint",
        .slot = at<&R::run, &RunRequest::checkpoint>,
        .help = "Folder for checkpoints: saved after every epoch and when interrupted; one that "
                "holds a checkpoint needs --resume",
        .excludes = {"--check-against-serial"},
        .is_path = names_a_file},
       {.name = "--save-every",
        .slot = at<&R::run, &RunRequest::save_every>,
        .help = "Save a checkpoint also after every N optimiser steps, for which the pipeline is "
                "emptied",
        .least = 1,
        .needs = "--checkpoint"},
       {.name = "--keep-last",
        .slot = at<&R::run, &RunRequest::keep_last>,
        .help = "Keep the newest N checkpoints; older ones go when a new one is whole",
        .least = 1,
        .most = 1'000'000'000,
        .needs = "--checkpoint"},
       {.name = "--keep-best",
        .slot = at<&R::run, &RunRequest::keep_best>,
        .help = "Keep the checkpoint with the best evaluation by --metric as well, and have the "
                "link best in the folder name it; one is saved where an evaluation is the best",
        .excludes = {"--no-eval"},
        .needs = "--checkpoint"},
       {.name = "--resume",
        .slot = at<&R::run, &RunRequest::resume>,
        .help = "Continue from the newest checkpoint in the folder; at step 0 where there is none",
        .excludes = {"--check-against-serial"}},
       {.name = "--check-against-serial",
        .slot = at<&R::run, &RunRequest::check_against_serial>,
        .help = "Only compare: train a few steps with the plan and without it, and say whether "
                "losses and weights are equal"},
       {.name = "--check-steps",
        .slot = at<&R::run, &RunRequest::check_steps>,
        .help = "Steps to compare",
        .needs = "--check-against-serial"},
       with("seed", Changes::Run, seed_row<R>())});
}

std::vector<Row> output_rows() {
  return in<R>(
      Section::Output, "the trainer returns its results",
      {{.name = "--history",
        .slot = at<&R::output, &OutputRequest::history>,
        .help = "Write loss, learning rate and gradient norm of every step to this file (JSON)",
        .excludes = {"--check-against-serial"},
        .is_path = names_a_file},
       {.name = "--log-dir",
        .slot = at<&R::output, &OutputRequest::log_folder>,
        .help = "Write loss, learning rate and evaluations into this folder while the run goes "
                "on: as events for TensorBoard, as log.csv and as log.jsonl",
        .excludes = {"--check-against-serial"},
        .is_path = names_a_file},
       {.name = "--html",
        .slot = at<&R::output, &OutputRequest::html>,
        .help =
            "Write an HTML page about the run to this file: timelines, memory, curves; needs no "
            "network",
        .excludes = {"--check-against-serial"},
        .is_path = names_a_file},
       {.name = "--trace",
        .slot = at<&R::output, &OutputRequest::trace>,
        .help = "Write predicted and measured timelines to this file (Chrome/Perfetto)",
        .excludes = {"--check-against-serial"},
        .is_path = names_a_file},
       json_row<R>()});
}

}  // namespace

bool names_data(std::string_view value) {
  return std::none_of(
      train::kDataFormats.begin(), train::kDataFormats.end(),
      [value](const train::DataFormatRow& row) { return !row.is_own() && row.name == value; });
}

std::string_view to_string(Section section) {
  constexpr std::string_view kNames[] = {"Source",   "Model", "Data",    "Loss",      "Plan",
                                         "Learning", "Run",   "Results", "Operation", "Run file"};
  return kNames[static_cast<size_t>(section)];
}

template <>
std::span<const Row> rows_of() {
  static const std::vector<Row> kRows =
      joined<R>({in<R>(Section::Model, "the module, or its file, is the model",
                       joined<R>({model_rows<R>(/*is_required=*/true), sample_rows<R>(),
                                  trained_program_rows()})),
                 data_rows(), in<R>(Section::Loss, "", loss_rows<R>()), plan_rows(),
                 learning_rows(), run_rows(), output_rows(), operation_rows(), file_rows<R>()});
  return kRows;
}

const Row* find_row(std::string_view name) {
  for (const Row& row : train_rows())
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace penstock::options
