// Whether a model, a profile and a plan go with the frames of a stream.
#pragma once

#include <string>

#include "penstock/frames/frame.h"
#include "penstock/frames/task.h"
#include "penstock/model/model.h"
#include "penstock/plan/plan.h"
#include "penstock/profile/profile.h"

namespace penstock::job {

/// Throws ConfigError naming --size where batch normalisation would have one number per channel of
/// a single frame.
void check_norms(const model::Model& model, const frames::FrameSize& size);

/// Times of frames of another size, or of another task, say nothing of these: throws ConfigError
/// naming `path`. The profile is of this model.
void check_profile_size(const profile::Profile& profile, const model::Model& model,
                        frames::Task task, const frames::FrameSize& size, const std::string& path);

/// Throws ConfigError naming `path` where the plan's stages are not those of the model, which is
/// made for the task, and where they have teams.
void check_plan_layers(const plan::Plan& plan, const model::Model& model, frames::Task task,
                       const std::string& path);

/// A plan runs with frames of any size, but predicts only for those that it was made for: a line
/// that says so; empty: it was made for these. Plans of one stage do not say what they were made
/// for.
std::string plan_size_warning(const plan::Plan& plan, const model::Model& model,
                              const frames::FrameSize& size, const std::string& path);

}  // namespace penstock::job
