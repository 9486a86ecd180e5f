#include "penstock/net/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::net {
namespace {

TEST(Wire, ReadsWhatWasWritten) {
  WireWriter out;
  out.put<int64_t>(-7);
  out.text("stage 1");
  out.list(std::vector<double>{0.5, 2});
  out.text("");
  const std::string text = out.take();
  WireReader in(text);
  EXPECT_EQ(in.get<int64_t>(), -7);
  EXPECT_EQ(in.text(), "stage 1");
  EXPECT_THAT(in.list<double>(), ::testing::ElementsAre(0.5, 2));
  EXPECT_EQ(in.text(), "");
  EXPECT_TRUE(in.empty());
}

TEST(Wire, ATextThatIsCutIsAnError) {
  WireWriter out;
  out.text("stage 1");
  out.list(std::vector<int64_t>{1, 2, 3});
  const std::string text = out.take();
  for (size_t length = 0; length < text.size(); ++length) {
    WireReader in(std::string_view(text).substr(0, length));
    EXPECT_THROW(
        {
          in.text();
          in.list<int64_t>();
        },
        TransportError)
        << length;
  }
}

TEST(Wire, AHugeLengthIsAnErrorAndTakesNoMemory) {
  WireWriter out;
  out.put<uint64_t>(UINT64_MAX / 2);
  out.put<uint64_t>(7);
  const std::string text = out.take();
  EXPECT_THROW(WireReader(text).text(), TransportError);
  EXPECT_THROW(WireReader(text).list<int64_t>(), TransportError);
}

}  // namespace
}  // namespace penstock::net
