// The account of a run's memory: what was measured beside what was predicted.
#pragma once

#include "penstock/job/prediction.h"
#include "penstock/report/memory/memory_account.h"
#include "penstock/train/train_result.h"

namespace penstock::job {

/// `predicted`: null where nothing was trained. Empty where tensors are not counted.
report::MemoryAccount memory_account(const train::TrainResult& result, const Prediction* predicted);

}  // namespace penstock::job
