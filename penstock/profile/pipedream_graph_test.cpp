#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/profile/profile.h"
#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::profile {
namespace {

using graph::ValueRef;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ValueRef of(int layer, int output = 0) { return {LayerId{layer}, output}; }

std::string node(const std::string& id, const std::string& description,
                 const std::string& forward = "1.000", const std::string& backward = "2.000",
                 const std::string& activation = "4.0", const std::string& parameter = "8.000") {
  return id + " -- " + description + " -- forward_compute_time=" + forward +
         ", backward_compute_time=" + backward + ", activation_size=" + activation +
         ", parameter_size=" + parameter + "\n";
}

std::string edge(const std::string& from, const std::string& to) {
  return "\t" + from + " -- " + to + "\n";
}

/// Two inputs, an LSTM with three outputs, a branch that is joined again, nodes out of order.
const std::string kGraph = node("node10", "Add", "0.000", "0.000", "64.0", "0.000") +
                           node("node3", "LSTM(2048, 1024)", "3.190", "5.348",
                                "[6291456.0; 131072.0; 131072.0]", "50364416.000") +
                           node("node2", "Input1", "9.000", "0.000", "0.0", "0.000") +
                           node("node1", "Input0", "18.962", "0.000", "77070336.000", "0.000") +
                           node("node9", "Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1))",
                                "0.0105", "1e-3", "128.0", "7168.000") +
                           edge("node1", "node3") + edge("node2", "node3") +
                           edge("node3", "node9") + edge("node3", "node10") +
                           edge("node9", "node10");

std::string graph_refusal(const std::string& text) {
  return tests::message_of<ParseError>([&] { parse_pipedream_graph(text, "g.txt"); });
}

TEST(PipedreamGraph, ImportsNodesEdgesAndCosts) {
  const Profile profile = parse_pipedream_graph(kGraph, "profiles/toy.graph.txt");
  EXPECT_EQ(profile.model, "toy");
  EXPECT_EQ(profile.source, "pipedream graph.txt");
  EXPECT_EQ(profile.batch_size, 0);
  EXPECT_EQ(profile.graph.num_inputs(), 2);
  ASSERT_EQ(profile.graph.num_layers(), 3);
  EXPECT_EQ(
      profile.graph.layers()[0],
      (graph::LayerNode{"node3", "lstm", {ValueRef::model_input(0), ValueRef::model_input(1)}, 3}));
  EXPECT_EQ(profile.graph.layers()[1],
            (graph::LayerNode{"node9", "conv2d", {of(0, 0), of(0, 1), of(0, 2)}, 1}));
  EXPECT_EQ(profile.graph.layers()[2],
            (graph::LayerNode{"node10", "add", {of(0, 0), of(0, 1), of(0, 2), of(1)}, 1}));
  EXPECT_THAT(profile.graph.outputs(), ElementsAre(of(2)));
  EXPECT_EQ(
      profile.costs[0],
      (LayerCost{
          3'190'000, 5'348'000, 0, 0, 0, 0, 0, {6291456, 131072, 131072}, 50364416, 6553600}));
  EXPECT_EQ(profile.costs[1], (LayerCost{10'500, 1'000, 0, 0, 0, 0, 0, {128}, 7168, 0}))
      << "nobody needs the output of a convolution before an addition";
}

TEST(PipedreamGraph, CountsWhatTheBackwardPassNeeds) {
  const std::string text =
      node("node1", "Input") + node("node2", "Conv2d(3, 64)", "1", "1", "100") +
      node("node3", "BatchNorm2d(64)", "1", "1", "100") +
      node("node4", "ReLU(inplace)", "1", "1", "100") + node("node5", "View(-1)", "1", "1", "100") +
      node("node6", "Linear(8, 8)", "1", "1", "10") + node("node7", "Mystery()", "1", "1", "10") +
      edge("node1", "node2") + edge("node2", "node3") + edge("node3", "node4") +
      edge("node4", "node5") + edge("node5", "node6") + edge("node6", "node7");
  std::vector<int64_t> kept;
  for (const LayerCost& cost : parse_pipedream_graph(text, "g.txt").costs)
    kept.push_back(cost.stash_bytes);
  EXPECT_THAT(kept, ElementsAre(0, 100, 100, 0, 0, 20));
}

TEST(PipedreamGraph, EverySinkIsAnOutputWithAllItsValues) {
  const std::string text = node("node1", "Input") + node("node2", "LSTM(1)", "1", "1", "[1; 2]") +
                           node("node3", "Tanh") + edge("node1", "node2") + edge("node1", "node3");
  EXPECT_THAT(parse_pipedream_graph(text, "g.txt").graph.outputs(),
              ElementsAre(of(0, 0), of(0, 1), of(1)));
}

TEST(PipedreamGraph, AcceptsVariantsOfTheLayout) {
  const Profile plain = parse_pipedream_graph(
      node("node1", "Input") + node("node2", "Size(0)") + edge("node1", "node2"), "g.txt");
  std::string windows;
  for (const char c :
       node("node1", "Input") + "\n" + node("node2", "Size(0)") + edge("node1", "node2"))
    windows += c == '\n' ? "\r\n" : std::string(1, c);
  EXPECT_EQ(parse_pipedream_graph(windows, "g.txt"), plain);
  std::string staged = node("node2", "Size(0)");
  staged.insert(staged.size() - 1, " -- stage_id=3");
  EXPECT_EQ(parse_pipedream_graph(node("node1", "Input") + staged + "\tnode1 -- node2", "g.txt"),
            plain);
}

TEST(PipedreamGraph, TakesTheKindFromTheFirstWord) {
  const auto kind = [](const std::string& description) {
    return parse_pipedream_graph(node("n", description), "g").graph.layers()[0].kind;
  };
  EXPECT_EQ(kind("__getitem__(0)"), "__getitem__");
  EXPECT_EQ(kind("RecurrentAttention(  (rnn): LSTM(1024, 1024) -- (attn): X"),
            "recurrentattention");
  EXPECT_EQ(kind("(strange)"), "layer");
  EXPECT_EQ(kind(""), "layer");
}

TEST(PipedreamGraph, NumbersInputsByTheirIds) {
  const std::string text = node("node10", "Input2") + node("node9", "Input1") +
                           node("node11", "Add") + edge("node10", "node11") +
                           edge("node9", "node11");
  EXPECT_THAT(parse_pipedream_graph(text, "g.txt").graph.layers()[0].inputs,
              ElementsAre(ValueRef::model_input(1), ValueRef::model_input(0)));
}

TEST(PipedreamGraph, ErrorsNameTheLine) {
  EXPECT_THAT(graph_refusal(node("node1", "Input") + "rubbish\n"),
              AllOf(StartsWith("g.txt:2: "), HasSubstr("'rubbish'")));
  EXPECT_THAT(graph_refusal(node("a", "X") + node("b", "X") + node("a", "X")),
              AllOf(StartsWith("g.txt:3: "), HasSubstr("'a'")));
  EXPECT_THAT(graph_refusal(node("a", "X") + edge("a", "q")),
              AllOf(StartsWith("g.txt:2: "), HasSubstr("'q'")));
  EXPECT_THAT(graph_refusal(node("a", "X") + "\ta -> a\n"), StartsWith("g.txt:2: "));
  EXPECT_THAT(graph_refusal(node("a b", "X")), AllOf(StartsWith("g.txt:1: "), HasSubstr("'a b'")));
  EXPECT_THAT(graph_refusal(node("a", "Input") + node("b", "X") + edge("b", "a")),
              AllOf(StartsWith("g.txt:3: "), HasSubstr("'a'")));
}

TEST(PipedreamGraph, RefusesNumbersThatAreNotTimesOrSizes) {
  for (const char* number : {"nan", "inf", "-inf", "-1", "-0.5", "1e999", "1e18", "", "1.0x",
                             "0x10", "1,5", "[1; 2]", "--1", "+1"}) {
    EXPECT_THAT(graph_refusal(node("a", "X", number)), StartsWith("g.txt:1: ")) << number;
  }
  for (const char* number : {"nan", "-4", "1e30", "[]", "[1; ]", "[1; nan]", "[1; -2]", "[1; 2",
                             "1]", "[[1]]", "1; 2"}) {
    EXPECT_THAT(graph_refusal(node("a", "X", "1", "1", number)),
                AllOf(StartsWith("g.txt:1: "), HasSubstr("activation_size")))
        << number;
  }
  EXPECT_THAT(graph_refusal(node("a", "X", "1", "1", "1", "1e19")), HasSubstr("parameter_size"));
  EXPECT_EQ(
      parse_pipedream_graph(node("a", "X", "1", "1", "4e18", "-0.0"), "g").costs[0].output_bytes[0],
      4'000'000'000'000'000'000);
}

TEST(PipedreamGraph, RefusesMissingRepeatedAndForeignFields) {
  const std::string start =
      "a -- X -- forward_compute_time=1, backward_compute_time=1, activation_size=1";
  EXPECT_THAT(graph_refusal(start + "\n"), HasSubstr("parameter_size"));
  EXPECT_THAT(graph_refusal(start + ", activation_size=1\n"), HasSubstr("expected parameter_size"));
  EXPECT_THAT(graph_refusal(start + ", parameter_size=1, colour=red\n"), HasSubstr("colour"));
  EXPECT_THAT(graph_refusal(start + ", parameter_size\n"), HasSubstr("expected parameter_size"));
  EXPECT_THAT(graph_refusal("forward_compute_time=1 -- forward_compute_time=1\n"),
              StartsWith("g.txt:1: "));
}

TEST(PipedreamGraph, RefusesCyclesAndFilesWithoutLayers) {
  EXPECT_THAT(graph_refusal(node("a", "X") + node("b", "X") + edge("a", "b") + edge("b", "a")),
              HasSubstr("a -> b -> a"));
  EXPECT_THAT(graph_refusal(""), HasSubstr("no layer"));
  EXPECT_THAT(graph_refusal(node("a", "Input")), HasSubstr("no layer"));
  EXPECT_THAT(graph_refusal(std::string("\0\xff\x1b\n", 4)),
              AllOf(StartsWith("g.txt:1: "), HasSubstr("found '??"
                                                       "?'")));
}

TEST(PipedreamGraph, RefusesEdgesThatCarryTooManyValues) {
  std::string sizes = "[1";
  for (int i = 1; i < 20'000; ++i) sizes += ";1";
  std::string text = node("a", "X", "1", "1", sizes + "]") + node("b", "X");
  for (int i = 0; i < 501; ++i) text += edge("a", "b");
  EXPECT_THAT(graph_refusal(text), HasSubstr("10020000 values, expected at most 10000000"));
}

TEST(PipedreamGraph, RoundTripsThroughOurOwnFormat) {
  const Profile profile = parse_pipedream_graph(kGraph, "toy.graph.txt");
  EXPECT_EQ(parse_profile(to_json(profile), "p.json"), profile);
}

RC_GTEST_PROP(PipedreamGraph, OrderOfTheNodesInTheFileDoesNotMatter, (uint64_t seed)) {
  std::vector<std::string> nodes;
  std::string edges;
  for (size_t start = 0; start < kGraph.size();) {
    const std::string line = kGraph.substr(start, kGraph.find('\n', start) + 1 - start);
    start += line.size();
    if (line[0] == '\t')
      edges += line;
    else
      nodes.push_back(line);
  }
  Rng(seed).shuffle<std::string>(nodes);
  std::string shuffled;
  for (const std::string& line : nodes) shuffled += line;
  RC_ASSERT(parse_pipedream_graph(shuffled + edges, "toy.txt") ==
            parse_pipedream_graph(kGraph, "toy.txt"));
}

RC_GTEST_PROP(PipedreamGraph, DamagedTextIsReadOrRefused, (uint64_t seed)) {
  for (const std::string& text : tests::mutants(kGraph, seed, 20)) {
    try {
      validate(parse_pipedream_graph(text, "g.txt"));
    } catch (const ParseError&) {
    }
  }
}

}  // namespace
}  // namespace penstock::profile
