#include "penstock/model/optimizers/adam.h"
#include "penstock/model/optimizers/plain_loop.h"
#include "penstock/model/optimizers/sgd.h"

namespace penstock::model::detail {

#define PENSTOCK_PLAIN_STEP(Formula)                                               \
  template void plain_step<Formula>(const float*, const float*, float*,            \
                                    std::array<float*, Formula::kStates>, int64_t, \
                                    const Formula::Coefficients<float>&)
PENSTOCK_PLAIN_STEP(SgdFormula<Momentum::None>);
PENSTOCK_PLAIN_STEP(SgdFormula<Momentum::Plain>);
PENSTOCK_PLAIN_STEP(SgdFormula<Momentum::Nesterov>);
PENSTOCK_PLAIN_STEP(AdamFormula<Decay::InGradient>);
PENSTOCK_PLAIN_STEP(AdamFormula<Decay::OfWeight>);

}  // namespace penstock::model::detail
