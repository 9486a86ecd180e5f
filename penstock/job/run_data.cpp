#include "penstock/job/run_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/imported/import_model.h"
#include "penstock/job/chosen_model.h"
#include "penstock/model/zoo.h"
#include "penstock/train/data/data_formats.h"
#include "penstock/train/data/token_folder.h"
#include "penstock/util/error.h"

namespace penstock::job {

namespace {

/// Of clips with captions: "12x3072x9", with a place for the captions' end.
std::string clip_input(const train::ClipSizes& clips) {
  return fmt::format("{}x{}x{}", clips.frames, clips.numbers, clips.words + 1);
}

bool takes_clips(const std::string& name) {
  return std::any_of(model::zoo().begin(), model::zoo().end(), [&](const model::ZooEntry& entry) {
    return entry.name == name && entry.takes_clips;
  });
}

}  // namespace

model::Model model_for_data(const options::ModelRequest& request, const std::string& data) {
  const train::DataFormatRow* const format = train::find_data_format(data);
  const bool has_vocabulary = format != nullptr && format->named == train::DataNamed::AsTokenFolder;
  if (!has_vocabulary || imported::is_program_file(request.name)) return chosen_model(request);
  const train::TokenFolder folder(data);
  options::ModelRequest of_data = request;
  if (of_data.input.empty() && folder.task == train::TokenTask::Captions &&
      takes_clips(of_data.name))
    of_data.input = clip_input(folder.clips);
  model::Model model = chosen_model(of_data);
  const bool takes_tokens = model.inputs().back().values > 0;
  if (!takes_tokens || of_data.classes > 0) return model;
  of_data.classes = folder.vocabulary;
  return chosen_model(of_data);
}

train::DataSplit data_for(const model::Model& model, const options::TrainRequest& request) {
  const options::DataRequest& data = request.data;
  const std::string name = data.name.value_or(options::kUsualData);
  const train::DataFormatRow* const format = train::find_data_format(name);
  if (!data.test_file.empty() && (format == nullptr || !format->is_own())) {
    throw ConfigError(
        fmt::format("--test-data is for training samples in a file, --data is {}", name));
  }
  try {
    return train::load_data({.name = name,
                             .folder = data.folder,
                             .sample = train::samples_for(model, request.loss),
                             .train_samples = data.train_samples.value_or(0),
                             .test_samples = data.test_samples.value_or(0),
                             .seed = request.run.seed,
                             .test_file = data.test_file,
                             .test_share = data.test_share,
                             .ignore_index = request.loss.ignore_index,
                             .skip_bad_samples = data.bad_samples == options::BadSamples::Skip,
                             .class_order = data.class_order,
                             .turns_images = data.turns_images,
                             .bytes_are_tokens = data.bytes_are_tokens,
                             .in_order = data.carry_state});
  } catch (const ConfigError& error) {
    if (data.name) throw;
    throw ConfigError(fmt::format("no --data is given, and the default, {}, cannot be used: {}",
                                  name, error.what()));
  }
}

std::vector<profile::LengthGroup> lengths_for(const model::Model& model, const train::Dataset& data,
                                              const train::TrainingOrder& order) {
  constexpr int64_t kGroups = 4;
  const std::string why = train::why_not_shorter(model, data);
  if (why.empty()) return train::length_groups(data, order, kGroups);
  throw ConfigError(fmt::format("lengths {}: the model takes sequences of one length only: {}",
                                train::kLengths[static_cast<size_t>(order.lengths)], why));
}

}  // namespace penstock::job
