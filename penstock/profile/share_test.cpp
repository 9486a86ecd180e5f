// Profiles of some layers, and joining them.
#include "penstock/profile/share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"

namespace penstock::profile {
namespace {

using testing::HasSubstr;
using testing::Property;
using testing::Throws;

template <class Error>
auto refused(const std::string& words) {
  return Throws<Error>(Property(&Error::what, HasSubstr(words)));
}

/// Layers a, b, 1 and c in a chain; those from `first` to `last` take `ns` forward.
Share share_of(int first, int last, int64_t ns) {
  const auto from = [](int layer) { return std::vector{graph::ValueRef{LayerId{layer}, 0}}; };
  Share share{.profile = {}, .layers = {LayerId{first}, LayerId{last}}, .measured = 1};
  share.profile.model = "net";
  share.profile.device = "cpu";
  share.profile.source = "measured";
  share.profile.batch_size = 8;
  share.profile.samples = static_cast<int>(ns);
  share.profile.copy_bandwidth_bytes_per_s = ns;
  share.profile.pass = {.mean_ns = ns, .spread = 0.5, .error = 0.01, .stretches = 20};
  share.profile.graph = graph::ModelGraph::build(1,
                                                 {{"a", "k", from(-1), 1},
                                                  {"b", "k", from(0), 1},
                                                  {"1", "k", from(1), 1},
                                                  {"c", "k", from(2), 1}},
                                                 {{LayerId{3}, 0}});
  share.profile.costs.assign(4, {.output_bytes = {0}});
  for (int l = first; l <= last; ++l)
    share.profile.costs[static_cast<size_t>(l)] = {.forward_ns = ns, .output_bytes = {40}};
  return share;
}

TEST(ProfileShare, JoinsToTheWholeModelInAnyOrder) {
  const Share whole = join({share_of(2, 3, 300), share_of(0, 1, 100)}, {"back", "front"});
  EXPECT_TRUE(whole.is_whole());
  EXPECT_EQ(whole.measured, 2);
  std::vector<int64_t> times;
  for (const LayerCost& cost : whole.profile.costs) {
    times.push_back(cost.forward_ns);
    EXPECT_EQ(cost.output_bytes, std::vector<int64_t>{40});
  }
  EXPECT_EQ(times, (std::vector<int64_t>{100, 100, 300, 300}));
  EXPECT_EQ(whole.profile.samples, 100);
  EXPECT_EQ(whole.profile.copy_bandwidth_bytes_per_s, 200);
  EXPECT_EQ(whole.profile.pass,
            (PassTimes{.mean_ns = 400, .spread = 0.5, .error = 0.01, .stretches = 20}));
  EXPECT_EQ(join({whole}, {"whole"}), whole);
  Share unknown = share_of(0, 1, 100);
  unknown.profile.pass = {};
  EXPECT_EQ(join({share_of(2, 3, 300), unknown}, {"a", "b"}).profile.pass, PassTimes{});
}

TEST(ProfileShare, RefusesWhatDoesNotMakeOneProfile) {
  const auto joining = [](std::vector<Share> shares) {
    return [shares] { join(shares, std::vector<std::string>(shares.size(), "file")); };
  };
  EXPECT_THAT(joining({}), refused<ConfigError>("at least one profile"));
  EXPECT_THAT(joining({share_of(0, 1, 1), share_of(3, 3, 1)}),
              refused<ConfigError>("layer '1': is in none of the profiles"));
  EXPECT_THAT(joining({share_of(0, 1, 1)}),
              refused<ConfigError>("layers '1' to 'c': are in none of the profiles"));
  EXPECT_THAT(joining({share_of(1, 3, 1)}), refused<ConfigError>("layer 'a'"));
  EXPECT_THAT(joining({share_of(0, 2, 1), share_of(1, 3, 1)}),
              refused<ConfigError>("layers 'b' to '1': both file and file have it"));
  const auto changed = [&](auto change) {
    Share other = share_of(2, 3, 1);
    change(other.profile);
    return joining({share_of(0, 1, 1), other});
  };
  EXPECT_THAT(changed([](Profile& p) { p.model = "other"; }),
              refused<ConfigError>("their models differ, net and other"));
  EXPECT_THAT(changed([](Profile& p) { p.batch_size = 4; }),
              refused<ConfigError>("their micro-batches differ, 8 samples and 4"));
  EXPECT_THAT(changed([](Profile& p) { p.precision = Precision::BFloat16; }),
              refused<ConfigError>("their precisions differ"));
  EXPECT_THAT(changed([](Profile& p) { p.device = "gpu"; }),
              refused<ConfigError>("their devices differ, 'cpu' and 'gpu'"));
  EXPECT_THAT(changed([](Profile& p) { p.graph = share_of(0, 0, 1).profile.graph; }),
              testing::Not(testing::Throws<ConfigError>()));
  Share other = share_of(2, 3, 1);
  other.profile.device = "gpu";
  EXPECT_EQ(join({share_of(0, 1, 1), other}, {"a", "b"}, Devices::Any).profile.device,
            "cpu and gpu");
}

TEST(ProfileShare, HasAFileOfItsOwnThatIsNoProfile) {
  const Share share = share_of(1, 2, 100);
  EXPECT_EQ(parse_share(to_json(share), "file"), share);
  EXPECT_THAT([&] { parse_profile(to_json(share), "file"); },
              refused<ParseError>("expected a whole profile"));
  Share whole = join({share_of(0, 1, 100), share_of(2, 3, 300)}, {"a", "b"});
  EXPECT_EQ(parse_share(to_json(whole), "file"), whole);
  EXPECT_EQ(parse_profile(to_json(whole), "file"), whole.profile);
  EXPECT_THAT(to_json(whole), HasSubstr("\"measured_layers\": 2"));
  whole.measured = 4;
  EXPECT_EQ(to_json(whole), to_json(whole.profile)) << "all layers were timed";
  std::string swapped = to_json(share);
  const auto replace = [&](const std::string& from, const std::string& to) {
    swapped.replace(swapped.find(from), from.size(), to);
  };
  replace("\"last_layer\": \"1\"", "\"last_layer\": \"a\"");
  EXPECT_THAT([&] { parse_share(swapped, "file"); }, refused<ParseError>("before the first"));
  replace("\"last_layer\": \"a\"", "\"last_layer\": \"z\"");
  EXPECT_THAT([&] { parse_share(swapped, "file"); }, refused<ParseError>("z"));
}

TEST(ProfileShare, NamesLayersByNameOrNumber) {
  const graph::ModelGraph graph = share_of(0, 3, 1).profile.graph;
  const auto range = [](int first, int last) { return LayerRange{LayerId{first}, LayerId{last}}; };
  EXPECT_EQ(parse_layers("a..c", graph), range(0, 3));
  EXPECT_EQ(parse_layers("0..b", graph), range(0, 1));
  EXPECT_EQ(parse_layers("2", graph), range(2, 2));
  EXPECT_EQ(parse_layers("1..3", graph), range(2, 3)) << "a layer has the name 1";
  for (const char* bad : {"", "d", "4", "-1", "a..", "..a", "a..c..", "0x1"})
    EXPECT_THAT([&] { parse_layers(bad, graph); }, refused<ConfigError>("there is no layer"))
        << bad;
  EXPECT_THAT([&] { parse_layers("c..a", graph); },
              refused<ConfigError>("layer 'c' comes after 'a'"));
}

}  // namespace
}  // namespace penstock::profile
