#include <numeric>
#include <span>

#include "penstock/train/data/dataset.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {

std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle) {
  PENSTOCK_CHECK(size >= 0, size);
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (shuffle)
    Rng(derive_seed(seed, hash_name("epoch order"), epoch)).shuffle(std::span<int64_t>(order));
  return order;
}

}  // namespace penstock::train
