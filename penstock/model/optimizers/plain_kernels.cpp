#include "penstock/model/optimizers/adagrad.h"
#include "penstock/model/optimizers/adam.h"
#include "penstock/model/optimizers/asgd.h"
#include "penstock/model/optimizers/lion.h"
#include "penstock/model/optimizers/nadam.h"
#include "penstock/model/optimizers/plain_loop.h"
#include "penstock/model/optimizers/rms_prop.h"
#include "penstock/model/optimizers/sgd.h"

namespace penstock::model::detail {

namespace {

using AmsGrad = AdamFormula<Decay::InGradient, Moment::Largest>;
using AmsGradW = AdamFormula<Decay::OfWeight, Moment::Largest>;
using RmsProp = RmsPropFormula<false, Divisor::MeanSquare>;
using CentredRmsProp = RmsPropFormula<false, Divisor::Deviation>;
using MovingRmsProp = RmsPropFormula<true, Divisor::MeanSquare>;
using MovingCentredRmsProp = RmsPropFormula<true, Divisor::Deviation>;

}  // namespace

#define PENSTOCK_PLAIN_STEP(Formula)                                               \
  template void plain_step<Formula>(const float*, const float*, float*,            \
                                    std::array<float*, Formula::kStates>, int64_t, \
                                    const Formula::Coefficients<float>&)
PENSTOCK_PLAIN_STEP(SgdFormula<Momentum::None>);
PENSTOCK_PLAIN_STEP(SgdFormula<Momentum::Plain>);
PENSTOCK_PLAIN_STEP(SgdFormula<Momentum::Nesterov>);
PENSTOCK_PLAIN_STEP(AdamFormula<Decay::InGradient>);
PENSTOCK_PLAIN_STEP(AdamFormula<Decay::OfWeight>);
PENSTOCK_PLAIN_STEP(AmsGrad);
PENSTOCK_PLAIN_STEP(AmsGradW);
PENSTOCK_PLAIN_STEP(NAdamFormula<Decay::InGradient>);
PENSTOCK_PLAIN_STEP(NAdamFormula<Decay::OfWeight>);
PENSTOCK_PLAIN_STEP(RmsProp);
PENSTOCK_PLAIN_STEP(CentredRmsProp);
PENSTOCK_PLAIN_STEP(MovingRmsProp);
PENSTOCK_PLAIN_STEP(MovingCentredRmsProp);
PENSTOCK_PLAIN_STEP(AdagradFormula);
PENSTOCK_PLAIN_STEP(LionFormula);
PENSTOCK_PLAIN_STEP(AsgdFormula);

}  // namespace penstock::model::detail
