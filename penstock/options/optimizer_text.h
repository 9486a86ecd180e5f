// Optimisers as text: a name, and the parameters that have other values than usual.
//
//   OptimizerSpec spec;
//   set_optimizer(spec, "adam,beta2=0.99,amsgrad");
//   optimizer_text(spec) == "adam,beta2=0.99,amsgrad";
#pragma once

#include <string>

#include "penstock/model/optimizer_spec.h"

namespace penstock::options {

/// Another optimiser than that of `spec` has its usual parameters, and then those of the text:
/// NAME, KEY=NUMBER for numbers, and KEY or KEY=no for what it does. Throws ConfigError for names
/// of none, for parameters that the optimiser does not have, and for values out of range.
void set_optimizer(model::OptimizerSpec& spec, const std::string& text);

/// Without momentum and nesterov, which are options of their own.
std::string optimizer_text(const model::OptimizerSpec& spec);

/// "sgd, rmsprop, lars or muon"
std::string optimizers_with_momentum();

/// "beta1, beta2, epsilon, amsgrad, maximize": what follows its name.
std::string parameter_names(model::OptimizerKind kind);

}  // namespace penstock::options
