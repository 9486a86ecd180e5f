// The data of a run, and what it says about the model and its sequences.
//
//   const model::Model model = model_for_data(request.model, "help");
//   const train::DataSplit data = data_for(model, request);
#pragma once

#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/options/request.h"
#include "penstock/profile/lengths.h"
#include "penstock/train/data/lengths.h"
#include "penstock/train/data/load_data.h"

namespace penstock::job {

/// The chosen model. A language model of the zoo knows as many tokens as the data's vocabulary has,
/// and one of clips takes those of the data, unless the user has said otherwise. Throws ConfigError
/// as chosen_model().
model::Model model_for_data(const options::ModelRequest& request, const std::string& data);

/// Reads what the request names, for this model. Throws ConfigError as train::load_data().
train::DataSplit data_for(const model::Model& model, const options::TrainRequest& request);

/// The lengths of an epoch's mini-batches, for a profile (train::length_groups()). Throws
/// ConfigError where the model takes sequences of one length.
std::vector<profile::LengthGroup> lengths_for(const model::Model& model, const train::Dataset& data,
                                              const train::TrainingOrder& order);

}  // namespace penstock::job
