#include "penstock/net/keyed_hash.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace penstock::net {
namespace {

std::string hex(const Hash& hash) {
  std::string text;
  for (const uint8_t byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

// RFC 4231, cases 1, 2 and 6: the key of the last one is longer than a block.
TEST(KeyedHash, IsThatOfTheStandard) {
  EXPECT_EQ(hex(keyed_hash(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(keyed_hash("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(keyed_hash(std::string(131, '\xaa'),
                           "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// A job without a token.
TEST(KeyedHash, AnEmptyKeyIsOne) {
  EXPECT_EQ(hex(keyed_hash("", "")),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

}  // namespace
}  // namespace penstock::net
