#include "penstock/options/run_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "penstock/util/error.h"

namespace penstock::options {
namespace {

using ::testing::HasSubstr;

/// Another value than usual, for options whose values have names or another form.
const std::map<std::string_view, std::string> kOtherValues = {{"--strategy", "1f1b-flush"},
                                                              {"--tensor", "auto"},
                                                              {"--weights", "latest"},
                                                              {"--compensate", "predict"},
                                                              {"--boundary", "int8"},
                                                              {"--sync", "ring"},
                                                              {"--sync-precision", "bfloat16"},
                                                              {"--precision", "bfloat16"},
                                                              {"--fabric", "tcp"},
                                                              {"--tls", "secret"},
                                                              {"--metric", "accuracy"},
                                                              {"--bad-samples", "skip"},
                                                              {"--class-order", "numbers"},
                                                              {"--lengths", "bucketed"},
                                                              {"--frozen-weights", "int8"},
                                                              {"--optimizer", "adamw,beta2=0.98"},
                                                              {"--large-batch", "all,-gamma"},
                                                              {"--task", "label"},
                                                              {"--serve", "8080"},
                                                              {"--metrics", "9400"},
                                                              {"--log-format", "json"},
                                                              {"--measure", "all"}};

/// A value of the row that is not its usual one.
template <class Request>
std::string other_value(const RowOf<Request>& row) {
  Request request;
  const Slot slot = row.slot(request);
  if (is_flag(slot)) return "yes";
  if (std::holds_alternative<std::string*>(slot) ||
      std::holds_alternative<std::optional<std::string>*>(slot))
    return row.is_path != nullptr ? "/a folder/\"x\".pt2" : "a \\ b = \"c\"";
  if (std::holds_alternative<Named>(slot)) {
    const std::string_view name = row.name;
    if (name == "--strategy" && std::is_same_v<Request, StreamRequest>) return "serial";
    const auto found = kOtherValues.find(name);
    EXPECT_NE(found, kOtherValues.end()) << name << ": kOtherValues needs one of its values";
    return found == kOtherValues.end() ? "" : found->second;
  }
  const bool is_real =
      std::holds_alternative<double*>(slot) || std::holds_alternative<std::optional<double>*>(slot);
  const double least = std::isinf(row.least) ? 0 : row.least;
  const double most = std::isinf(row.most) ? 1e6 : row.most;
  // A third of the way, with more digits than a float has.
  const double value = least + (std::min(most, 1e6) - least) / 3;
  return is_real ? fmt::format("{}", value) : fmt::format("{}", std::llround(value));
}

template <class Request>
Request request_of(const std::vector<FileOption>& options) {
  Request request;
  for (const FileOption& option : options) {
    for (const RowOf<Request>& row : rows_of<Request>()) {
      if (row.name == option.name) set_text(row.slot(request), is_flag(row) ? "yes" : option.value);
    }
  }
  return request;
}

template <class Request>
std::map<std::string_view, std::string> texts_of(const Request& request) {
  std::map<std::string_view, std::string> texts;
  for (const RowOf<Request>& row : rows_of<Request>()) texts[row.name] = text_of(row, request);
  return texts;
}

/// Each row by itself, and all together.
template <class Request>
void expect_round_trip() {
  Request all;
  for (const RowOf<Request>& row : rows_of<Request>()) {
    if (row.section == Section::File) continue;
    SCOPED_TRACE(row.name);
    Request request;
    const std::string value = other_value(row);
    set_text(row.slot(request), value);
    set_text(row.slot(all), value);
    EXPECT_NE(text_of(row, request), text_of(row, Request{}));
    const std::string text = run_file_text(request, {});
    EXPECT_EQ(texts_of(request_of<Request>(parse_run_file<Request>(text, "/b/run.toml"))),
              texts_of(request))
        << text;
  }
  const std::string text = run_file_text(all, {});
  EXPECT_EQ(texts_of(request_of<Request>(parse_run_file<Request>(text, "/b/run.toml"))),
            texts_of(all))
      << text;
}

TEST(RunFile, GivesEachRowBack) {
  expect_round_trip<TrainRequest>();
  expect_round_trip<StreamRequest>();
  expect_round_trip<ProfileRequest>();
}

/// A row that is forgotten here would be looked for in the wrong folder.
template <class Request>
void expect_paths() {
  for (const RowOf<Request>& row : rows_of<Request>()) {
    Request request;
    const Slot slot = row.slot(request);
    if (is_flag(slot)) continue;
    std::string help = row.help;
    std::transform(help.begin(), help.end(), help.begin(), [](char c) { return std::tolower(c); });
    const bool speaks_of_files =
        help.find("folder") != std::string::npos || help.find("file") != std::string::npos;
    if (!speaks_of_files || row.is_path != nullptr) continue;
    // That speak of files which other options name.
    constexpr std::string_view kOthers[] = {"--test-share",     "--bad-samples", "--class-order",
                                            "--compile",        "--lora",        "--layers",
                                            "--frozen-weights", "--source-fps",  "--lr-schedule"};
    EXPECT_NE(std::find(std::begin(kOthers), std::end(kOthers), row.name), std::end(kOthers))
        << row.name << ": does it name a file? Then its row has is_path";
  }
}

TEST(RunFile, RowsOfFilesSaySo) {
  expect_paths<TrainRequest>();
  expect_paths<StreamRequest>();
  expect_paths<ProfileRequest>();
}

TEST(RunFile, IsShortAndSortedBySections) {
  TrainRequest request{.model = {.name = "mlp"}};
  request.rates.base = 0.02;
  request.data.shuffle = false;
  EXPECT_EQ(run_file_text(request, std::vector<std::string_view>{"--epochs"}),
            "# Model\nmodel = \"mlp\"\n\n# Data\nno-shuffle = true\n\n# Learning\nepochs = 1\n"
            "lr = 0.02\n");
}

TEST(RunFile, PathsAreRelativeToIt) {
  const auto options = parse_run_file<TrainRequest>(
      "model = 'nets/a.pt2'\ndata = 'synthetic'\ntest-data = '../b.npz'\nplan = '/c.json'\n"
      "profile-cache = 'off'\n",
      "runs/1/run.toml");
  ASSERT_EQ(options.size(), 5U);
  EXPECT_EQ(options[0].value, "runs/1/nets/a.pt2");
  EXPECT_EQ(options[1].value, "synthetic");
  EXPECT_EQ(options[2].value, "runs/b.npz");
  EXPECT_EQ(options[3].value, "/c.json");
  EXPECT_EQ(options[4].value, "off");
  EXPECT_EQ(parse_run_file<TrainRequest>("model = 'mlp'", "runs/run.toml").front().value, "mlp");
}

TEST(RunFile, FlagsThatAreOffSayNothing) {
  const auto options = parse_run_file<TrainRequest>(
      "no-eval = false\nno-shuffle = true\nlarge-batch = true\ntensor = 2\n", "run.toml");
  ASSERT_EQ(options.size(), 3U);
  EXPECT_EQ(options[0].name, "--no-shuffle");
  EXPECT_EQ(options[1].name, "--large-batch");
  EXPECT_EQ(options[1].value, "");
  EXPECT_EQ(options[2].value, "2");
  EXPECT_EQ(options[2].line, 4);
}

std::string file_refusal(const std::string& text) {
  try {
    parse_run_file<TrainRequest>(text, "run.toml");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RunFile, RefusesWithLineAndNearestName) {
  EXPECT_EQ(file_refusal("model = 'mlp'\nbatch_size = 3\n"),
            "run.toml:2: unknown option 'batch_size', the nearest is 'batch-size'");
  EXPECT_EQ(file_refusal("--lr = 3\n"), "run.toml:1: unknown option '--lr', the nearest is 'lr'");
  EXPECT_EQ(file_refusal("\nepochs = '3'"),
            "run.toml:2: epochs: expected an integer, found a string");
  EXPECT_EQ(file_refusal("epochs = 1.5"), "run.toml:1: epochs: expected an integer, found a float");
  EXPECT_EQ(file_refusal("lr = true"), "run.toml:1: lr: expected a number, found a boolean");
  EXPECT_EQ(file_refusal("lr = nan"), "run.toml:1: lr: expected a number, found nan");
  EXPECT_EQ(file_refusal("lr = inf"), "run.toml:1: lr: expected a finite number, found inf");
  EXPECT_EQ(file_refusal("lr = -inf"), "run.toml:1: lr: expected a finite number, found -inf");
  EXPECT_EQ(file_refusal("clip-norm = inf"), "accepted");
  EXPECT_EQ(file_refusal("no-eval = 1"),
            "run.toml:1: no-eval: expected true or false, found an integer");
  EXPECT_EQ(file_refusal("model = 3"), "run.toml:1: model: expected a string, found an integer");
  EXPECT_EQ(file_refusal("model = ''"), "run.toml:1: model: expected a value, found an empty one");
  EXPECT_EQ(file_refusal("batch-size = [1]"),
            "run.toml:1: batch-size: expected an integer, found an array");
  EXPECT_EQ(file_refusal("threads = 0"),
            "run.toml:1: threads: expected a whole number from 1 to 1024, found 0");
  EXPECT_EQ(file_refusal("seed = -1"),
            "run.toml:1: seed: expected a whole number in its range, found '-1'");
  EXPECT_EQ(file_refusal("dropout = 2"),
            "run.toml:1: dropout: expected a number from 0 to 0.99, found 2");
  EXPECT_THAT(file_refusal("strategy = 'gpip'"), HasSubstr("run.toml:1: strategy: "));
  EXPECT_THAT(file_refusal("model = 'mlp'\nmodel = 'gpt'\n"),
              HasSubstr("run.toml:2: not valid TOML"));
  EXPECT_THAT(file_refusal("[model]\nwidth = 3\n"),
              HasSubstr("run.toml:1: expected options, found the "
                        "table 'model'"));
  EXPECT_THAT(file_refusal("config = 'b.toml'"), HasSubstr("unknown option 'config'"));
  EXPECT_EQ(file_refusal("seed = '18446744073709551615'"), "accepted");
}

}  // namespace
}  // namespace penstock::options
