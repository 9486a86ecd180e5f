#include "penstock/live/host_check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

namespace penstock::live {
namespace {

TEST(HostCheck, AllowsTheNamesOfThisMachineWithAnyPort) {
  for (const char* header : {"localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]",
                             "[::1]:65535", "localhost:"})
    EXPECT_TRUE(is_allowed_host(header, "127.0.0.1")) << header;
}

TEST(HostCheck, RefusesOtherNames) {
  for (const char* header :
       {"", "evil.example", "localhost.evil.example", "evil.example:80", "127.0.0.1.evil.example",
        "127.0.0.2", "10.0.0.1", "::1", "[::1", "::1]", "[]", "[localhost]", "localhost:80:80",
        "localhost:x", "localhost:123456", "user@localhost", " localhost", "localhost/", ":80"})
    EXPECT_FALSE(is_allowed_host(header, "127.0.0.1")) << header;
}

TEST(HostCheck, AllowsTheHostThatIsListenedOn) {
  EXPECT_TRUE(is_allowed_host("gpu-7.example.org:80", "GPU-7.example.org"));
  EXPECT_TRUE(is_allowed_host("[fe80::1]:80", "fe80::1"));
  EXPECT_FALSE(is_allowed_host("example.org", "gpu-7.example.org"));
}

TEST(HostCheck, AllowsAddressesInNumbersAndTheMachinesNameIfAllAreListenedOn) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  for (const char* host : {"0.0.0.0", "::"}) {
    EXPECT_TRUE(is_allowed_host("10.1.2.3:8080", host));
    EXPECT_TRUE(is_allowed_host("[2001:db8::1]:8080", host));
    EXPECT_TRUE(is_allowed_host(std::string(name.data()) + ":8080", host));
    EXPECT_FALSE(is_allowed_host("evil.example", host));
    EXPECT_FALSE(is_allowed_host("[10.1.2.3]", host));
  }
}

TEST(HostCheck, WritesAddressesOfVersionSixInBrackets) {
  EXPECT_EQ(host_and_port("localhost", 80), "localhost:80");
  EXPECT_EQ(host_and_port("::1", 80), "[::1]:80");
}

}  // namespace
}  // namespace penstock::live
