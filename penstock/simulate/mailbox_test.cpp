#include "penstock/simulate/mailbox.h"

#include <gtest/gtest.h>

#include <map>

#include "penstock/util/numbers/rng.h"

namespace penstock::simulate::detail {

TEST(Mailbox, BehavesLikeAMap) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    Mailbox box;
    std::map<int64_t, int64_t> expected;
    const uint64_t range = 1 + rng.below(300);
    const uint64_t stride = seed % 3 == 0 ? 64 : 1;  // all in the same place of the table
    for (int i = 0; i < 3'000; ++i) {
      const auto key = static_cast<int64_t>(stride * rng.below(range));
      Letter* letter = box.find(key);
      ASSERT_EQ(letter != nullptr, expected.contains(key)) << "seed " << seed;
      if (letter == nullptr) {
        box.insert(key, Letter::State::Arrived).arrival_ns = i;
        expected[key] = i;
      } else {
        ASSERT_EQ(letter->arrival_ns, expected[key]) << "seed " << seed;
        box.remove(*letter);
        expected.erase(key);
      }
    }
  }
}

TEST(Mailbox, ReleasesMemoryWhenItIsEmpty) {
  Mailbox box;
  for (int round = 0; round < 3; ++round) {
    for (int64_t b = 0; b < 1'000; ++b) box.insert(b, Letter::State::Offered);
    for (int64_t b = 0; b < 1'000; ++b) box.remove(*box.find(b));
    EXPECT_EQ(box.find(5), nullptr);
  }
}

// A table with neighbouring keys side by side would walk over all that follow: 10^10 steps here.
TEST(Mailbox, RemovesTheOldestOfManyQuickly) {
  constexpr int64_t kLetters = 200'000;
  for (const int64_t stride : {1, 64, 1'000, 1 << 20}) {
    Mailbox box;
    for (int64_t b = 0; b < kLetters; ++b) box.insert(stride * b, Letter::State::Arrived);
    for (int64_t b = 0; b < kLetters; ++b) box.remove(*box.find(stride * b));
    EXPECT_EQ(box.find(0), nullptr);
  }
}

}  // namespace penstock::simulate::detail
