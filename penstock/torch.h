// Everything: the torch-free core (penstock.h), models and training. Needs libtorch; includes no
// more of it than tensors.
//
//   const penstock::model::Model model = penstock::model::make_model({.name = "lenet5"});
//   const auto result = penstock::train::train(model, penstock::train::load_data({}),
//       {.plan = plan});
#pragma once

#include "penstock/imported/import_model.h"
#include "penstock/job/prepare.h"
#include "penstock/model/analytic_profile.h"
#include "penstock/model/builder.h"
#include "penstock/model/model.h"
#include "penstock/model/profiler.h"
#include "penstock/model/sequence_builder.h"
#include "penstock/model/zoo.h"
#include "penstock/penstock.h"
#include "penstock/stream/online_loop.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/data/load_data.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/session.h"
#include "penstock/train/trainer.h"
