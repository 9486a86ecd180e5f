#include "penstock/runtime/fabric/teams.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::runtime {

uint64_t signature_of(const TeamExchange& exchange, const TensorLayout& layout) {
  uint64_t signature = derive_seed(static_cast<uint64_t>(exchange.number), exchange.op,
                                   exchange.micro_batch.value, layout.type, layout.sizes.size());
  for (const int64_t size : layout.sizes) signature = derive_seed(signature, size);
  return signature;
}

void check_given(const TeamExchange& exchange, int from, const TensorLayout& expected,
                 uint64_t given) {
  if (given == signature_of(exchange, expected)) return;
  throw RuntimeError(fmt::format(
      "in exchange {} of a team, micro-batch {}, member {} of stage {} has given something else "
      "than member {} expects: {} of shape {}; all members must do the same in the same order",
      exchange.number, exchange.micro_batch.value, from, exchange.first.value, exchange.member,
      c10::toString(expected.type), fmt::join(expected.sizes, "x")));
}

}  // namespace penstock::runtime
