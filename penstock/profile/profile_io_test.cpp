#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "penstock/profile/profile.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "tests/support/mutate.h"

namespace penstock::profile {
namespace {

using graph::ModelGraph;
using graph::ValueRef;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Two inputs and a layer with two outputs; `b` is listed before what it reads.
const std::string kDocument = R"({
 "format": "penstock-profile", "version": 1,
 "model": "toy", "device": "cpu", "source": "measured", "batch_size": 16, "samples": 5,
 "copy_bandwidth_bytes_per_s": 1000,
 "num_inputs": 2,
 "layers": [
  {"name": "b", "kind": "add", "inputs": [["a", 1], ["a", 0], ["@1", 0]],
   "forward_ns": 3, "backward_ns": 4, "step_ns": 0,
   "forward_spread_ns": 1, "backward_spread_ns": 2,
   "output_bytes": [64], "weight_bytes": 0, "stash_bytes": 0},
  {"name": "a", "kind": "split", "inputs": [["@0", 0]],
   "forward_ns": 10, "backward_ns": 20, "backward_weight_ns": 15, "accumulate_ns": 6, "step_ns": 7,
   "forward_spread_ns": 0, "backward_spread_ns": 0,
   "output_bytes": [8, 16], "weight_bytes": 400, "stash_bytes": 24}
 ],
 "outputs": [["b", 0]]
})";

Profile toy() {
  Profile profile;
  profile.model = "toy";
  profile.device = "cpu";
  profile.source = "measured";
  profile.batch_size = 16;
  profile.samples = 5;
  profile.copy_bandwidth_bytes_per_s = 1000;
  profile.graph = ModelGraph::build(
      2,
      {{"a", "split", {ValueRef::model_input(0)}, 2},
       {"b", "add", {{LayerId{0}, 1}, {LayerId{0}, 0}, ValueRef::model_input(1)}, 1}},
      {{LayerId{1}, 0}});
  profile.costs = {{10, 20, 15, 6, 7, 0, 0, {8, 16}, 400, 24}, {3, 4, 0, 0, 0, 1, 2, {64}, 0, 0}};
  return profile;
}

TEST(ProfileIo, WhatTeamsShareIsReadBackAndChecked) {
  Profile profile = toy();
  EXPECT_EQ(to_json(profile).find("team"), std::string::npos);
  profile.costs[0].team = {.spread = 0.75,
                           .spread_stash = 0.5,
                           .units = 12,
                           .sums = 2,
                           .sum_bytes = 4096,
                           .back_sums = 1,
                           .back_sum_bytes = 2048};
  EXPECT_EQ(parse_profile(to_json(profile), "p.json"), profile);
  profile.costs[0].team.sequence = {.work = 1, .stash = 0.25, .sums = 2, .sum_bytes = 64};
  EXPECT_EQ(parse_profile(to_json(profile), "p.json"), profile);
  const auto refusal = [&](auto change) {
    Profile changed = profile;
    change(changed.costs[0].team);
    return tests::message_of<ConfigError>([&] { validate(changed); });
  };
  EXPECT_THAT(refusal([](TensorShare& team) { team.spread = 1.5; }),
              HasSubstr("layer 'a': expected spread of a team from 0 to 1, found 1.5"));
  EXPECT_THAT(refusal([](TensorShare& team) { team.sequence->stash = -1; }),
              HasSubstr("expected sequence.stash of a team from 0 to 1, found -1"));
  EXPECT_THAT(refusal([](TensorShare& team) { team.sequence->sums = 0; }),
              HasSubstr("sequence.sum_bytes of a team of 0 without sequence.sums, found 64"));
  EXPECT_THAT(refusal([](TensorShare& team) { team.units = -1; }),
              HasSubstr("units of a team of at least 0, found -1"));
  EXPECT_THAT(refusal([](TensorShare& team) { team.back_sums = 0; }),
              HasSubstr("back_sum_bytes of a team of 0 without back_sums, found 2048"));
}

/// kDocument with one part replaced.
std::string with(const std::string& old_text, const std::string& new_text) {
  std::string text = kDocument;
  const size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return text.replace(at, old_text.size(), new_text);
}

std::string refusal(const std::string& text) {
  return tests::message_of<ParseError>([&] { parse_profile(text, "p.json"); });
}

TEST(ParseProfile, ReadsLayersInAnyOrderAndKeepsCostsWithThem) {
  EXPECT_EQ(parse_profile(kDocument, "p.json"), toy());
}

TEST(ParseProfile, HowWellPassesAreKnownReadsBack) {
  Profile profile = toy();
  profile.pass = {.mean_ns = 44, .spread = 0.25, .error = 0.0125, .stretches = 20};
  profile.hand_over_ns = 7;
  profile.device_graphs = true;
  EXPECT_EQ(parse_profile(to_json(profile), "p.json"), profile);
  EXPECT_EQ(parse_profile(kDocument, "p.json").pass, PassTimes{}) << "files of older versions";
  const auto with_pass = [](const std::string& pass) {
    return with("\"num_inputs\": 2,", "\"num_inputs\": 2, \"pass\": " + pass + ",");
  };
  EXPECT_THAT(refusal(with_pass(R"({"mean_ns": 4})")), HasSubstr("spread"));
  EXPECT_THAT(refusal(with_pass(R"({"mean_ns": 4, "spread": -1, "error": 0})")),
              HasSubstr("from 0 to 1000000, found -1"));
  EXPECT_THAT(refusal(with_pass(R"({"mean_ns": 4, "spread": 1e308, "error": 0})")),
              HasSubstr("from 0 to 1000000, found 1e+308"));
  EXPECT_THAT(refusal(with("\"num_inputs\": 2,", "\"num_inputs\": 2, \"hand_over_ns\": -3,")),
              HasSubstr("hand_over_ns"));
}

TEST(ParseProfile, FillsInOptionalKeys) {
  const Profile profile =
      parse_profile(R"({"format": "penstock-profile", "version": 1, "num_inputs": 1, "outputs": [],
      "layers": [{"name": "a", "inputs": [["@0", 0]], "forward_ns": 1, "backward_ns": 2,
                  "output_bytes": [3, 4], "weight_bytes": 5}]})",
                    "p.json");
  EXPECT_EQ(profile.costs[0], (LayerCost{1, 2, 0, 0, 0, 0, 0, {3, 4}, 5, 7}));
  EXPECT_EQ(profile.batch_size, 0);
}

TEST(ParseProfile, KnowsTheLossAsAPartOfItsLayer) {
  Profile profile = toy();
  EXPECT_EQ(to_json(profile).find("loss_ns"), std::string::npos) << "as older versions wrote it";
  profile.costs[1].loss_ns = 7;
  EXPECT_EQ(parse_profile(to_json(profile), "p.json"), profile);
  EXPECT_EQ(total_compute_ns(profile), total_compute_ns(toy())) << "it is not counted twice";
  EXPECT_EQ(refusal(with("\"forward_ns\": 3", "\"loss_ns\": 8, \"forward_ns\": 3")),
            "p.json: layer 'b': expected loss_ns of at most forward_ns + backward_ns, 7, found 8");
}

TEST(ParseProfile, SaysItsPrecisionAndOldFilesAreFloat32) {
  Profile profile = parse_profile(kDocument, "p");
  EXPECT_EQ(profile.precision, Precision::Float32);
  profile.precision = Precision::BFloat16;
  profile.costs[0].weight_bytes = 40;
  profile.costs[0].short_weight_bytes = 40;
  EXPECT_EQ(parse_profile(to_json(profile), "p"), profile);
  profile.costs[0].short_weight_bytes = 41;
  EXPECT_THROW(to_json(profile), ConfigError);
}

TEST(ParseProfile, ConstantsAndWhatPassesNeedAreReadBackAndMissingOnesAreNone) {
  for (const auto& [key, bytes] : {std::pair("constant_bytes", &LayerCost::constant_bytes),
                                   std::pair("working_bytes", &LayerCost::working_bytes)}) {
    SCOPED_TRACE(key);
    Profile profile = parse_profile(kDocument, "p");
    EXPECT_EQ(profile.costs[0].*bytes, 0);
    EXPECT_EQ(to_json(profile).find(key), std::string::npos);
    profile.costs[0].*bytes = 536'870'912;
    EXPECT_EQ(parse_profile(to_json(profile), "p"), profile);
    profile.costs[0].*bytes = -1;
    EXPECT_THROW(to_json(profile), ConfigError);
  }
}

TEST(ParseProfile, WhatLayersSaveAndHowOutputsLieIsReadBackAndMissingIsNotKnown) {
  Profile profile = parse_profile(kDocument, "p");
  EXPECT_EQ(profile.costs[1].saves, LayerSaves{});
  EXPECT_EQ(to_json(profile).find("saves"), std::string::npos);
  profile.costs[1].saves = saves_of(profile.graph.layers()[1], true, false);
  profile.costs[1].strided_outputs = {0};
  EXPECT_EQ(parse_profile(to_json(profile), "p"), profile);
  profile.costs[1].saves.view_of = {0};
  EXPECT_EQ(parse_profile(to_json(profile), "p"), profile);
  EXPECT_EQ(refusal(with("\"forward_ns\": 3", "\"strided_outputs\": [1], \"forward_ns\": 3")),
            "p.json: layers[0].strided_outputs[0]: expected an integer from 0 to 0, found 1");
  const auto saving = [](const std::string& saves) {
    return refusal(with("\"forward_ns\": 3", "\"saves\": " + saves + ", \"forward_ns\": 3"));
  };
  EXPECT_THAT(saving(R"({"inputs": [7], "outputs": []})"), HasSubstr("layers[0].saves.inputs[0]"));
  EXPECT_THAT(saving(R"({"inputs": [], "outputs": [], "view_of": []})"),
              HasSubstr("0 inputs for 1 outputs"));
  profile.costs[1].saves.outputs = {true, true};
  EXPECT_THROW(to_json(profile), ConfigError);
}

TEST(ParseProfile, NamesPlaceAndKey) {
  EXPECT_EQ(refusal(with("\"forward_ns\": 3", "\"forward_ns\": -3")),
            "p.json: layers[0].forward_ns: expected an integer of at least 0, found -3");
  EXPECT_THAT(refusal(with("\"a\", 1", "\"q\", 1")),
              AllOf(HasSubstr("layers[0].inputs[0][0]"), HasSubstr("no layer \"q\"")));
  EXPECT_THAT(refusal(with("\"weight_bytes\": 400, ", "")),
              HasSubstr("layers[1]: the key \"weight_bytes\" is missing"));
  EXPECT_THAT(refusal(with("\"name\": \"a\"", "\"name\": \"b\"")),
              HasSubstr("two layers have the name \"b\""));
}

/// Three layers in a row; the last uses the weight of the first.
Profile tied_profile() {
  Profile profile = toy();
  profile.graph = ModelGraph::build(1,
                                    {{"a", "linear", {ValueRef::model_input(0)}, 1},
                                     {"b", "linear", {{LayerId{0}, 0}}, 1},
                                     {"c", "linear", {{LayerId{1}, 0}}, 1, {{1, {LayerId{0}, 0}}}},
                                     {"d", "linear", {{LayerId{2}, 0}}, 1, {{0, {LayerId{0}, 0}}}}},
                                    {{LayerId{3}, 0}});
  profile.costs.assign(4, {.forward_ns = 1,
                           .backward_ns = 2,
                           .output_bytes = {8},
                           .weight_bytes = 100,
                           .stash_bytes = 8});
  profile.costs[2].tied_bytes = {60};
  profile.costs[3].tied_bytes = {60};
  return profile;
}

TEST(ParseProfile, TiedWeightsRoundTripAndCountOncePerStage) {
  const Profile profile = tied_profile();
  EXPECT_EQ(parse_profile(to_json(profile), "p.json"), profile);
  EXPECT_EQ(weight_bytes_of(profile, {LayerId{0}, LayerId{1}}), 200);
  EXPECT_EQ(weight_bytes_of(profile, {LayerId{0}, LayerId{1}, LayerId{2}, LayerId{3}}), 280);
  EXPECT_EQ(weight_bytes_of(profile, {LayerId{1}, LayerId{2}}), 200)
      << "the owner is in another stage: a copy is held";
  EXPECT_EQ(weight_bytes_of(profile, {LayerId{2}, LayerId{3}}), 140)
      << "two borrowers share one copy";
}

TEST(ParseProfile, RefusesTiesThatDoNotFit) {
  std::string text = to_json(tied_profile());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string copy = text;
    const size_t at = copy.find(from);
    EXPECT_NE(at, std::string::npos);
    return copy.replace(at, from.size(), to);
  };
  const size_t at = text.find("\"ties\"");
  const size_t end = text.find("]", text.find("]", at) + 1) + 1;
  const std::string ties = text.substr(at, end - at);
  EXPECT_THAT(refusal(changed(ties, R"("ties": [[1, "q", 0, 60]])")), HasSubstr("no layer \"q\""));
  EXPECT_THAT(refusal(changed(ties, R"("ties": [[1, "d", 0, 60]])")),
              HasSubstr("does not come before it"));
  EXPECT_THAT(refusal(changed(ties, R"("ties": [[1, "a", 0, 101]])")),
              HasSubstr("at most weight_bytes, 100, found 101"));
  EXPECT_THAT(refusal(changed(ties, R"("ties": [[1, "a", 0]])")),
              HasSubstr("expected [parameter, owner layer"));
  EXPECT_THAT(refusal(changed(ties, R"("ties": [[1, "a", -1, 60]])")), HasSubstr("found -1"));
  EXPECT_THAT(refusal(changed(ties, R"("ties": 3)")), HasSubstr("ties"));
}

TEST(ParseProfile, TheBackwardOfTheWeightsIsAtMostTheWholeBackward) {
  EXPECT_THAT(refusal(with("\"backward_weight_ns\": 15", "\"backward_weight_ns\": 21")),
              HasSubstr("at most backward_ns, 20, found 21"));
  EXPECT_THAT(refusal(with("\"backward_weight_ns\": 15", "\"backward_weight_ns\": -1")),
              HasSubstr("backward_weight_ns"));
}

TEST(ParseProfile, RefusesInputsThatDoNotExist) {
  for (const char* name : {"@2", "@", "@-1", "@01", "@1x", "@99999999999999999999", "@ 1"}) {
    EXPECT_THAT(refusal(with("\"@1\"", '"' + std::string(name) + '"')), HasSubstr("2 inputs"))
        << name;
  }
  EXPECT_THAT(refusal(with("[\"@0\", 0]", "[\"@0\", 1]")), HasSubstr("inputs[0][1]"));
  EXPECT_THAT(refusal(with("[\"a\", 1]", "[\"a\", 2]")), HasSubstr("output 2 of layer 'a'"));
  EXPECT_THAT(refusal(with("[\"a\", 1]", "[\"a\"]")), HasSubstr("inputs[0]"));
  EXPECT_THAT(refusal(with("[\"a\", 1]", "[\"a\", 1, 2]")), HasSubstr("inputs[0]"));
  EXPECT_THAT(refusal(with("[\"b\", 0]", "[\"b\", 4294967296]")), HasSubstr("outputs[0][1]"));
}

TEST(ParseProfile, RefusesCyclesAndEmptyModels) {
  EXPECT_THAT(refusal(with("[\"@0\", 0]", "[\"b\", 0]")),
              AllOf(HasSubstr("p.json:"), HasSubstr("cycle")));
  EXPECT_THAT(refusal(
                  R"({"format": "penstock-profile", "version": 1, "num_inputs": 0, "layers": [],
              "outputs": []})"),
              HasSubstr("no layer"));
}

TEST(ParseProfile, RefusesNumbersThatAreNotSizes) {
  for (const char* number : {"1.5", "-1", "1e3", "1e18", "9223372036854775808",
                             "18446744073709551616", "\"8\"", "null", "[8]", "true"}) {
    EXPECT_THAT(refusal(with("[8, 16]", "[" + std::string(number) + ", 16]")),
                HasSubstr("output_bytes[0]"))
        << number;
  }
  EXPECT_THROW(parse_profile(with("[8, 16]", "[1e999, 16]"), "p.json"), ParseError);
  EXPECT_THROW(parse_profile(with("[8, 16]", "[NaN, 16]"), "p.json"), ParseError);
  EXPECT_THAT(refusal(with("[64]", "[]")), HasSubstr("at least 1 output"));
  EXPECT_THAT(refusal(with("\"num_inputs\": 2", "\"num_inputs\": 1000000000000000000")),
              HasSubstr("num_inputs"));
  EXPECT_THAT(refusal(with("\"samples\": 5", "\"samples\": 3000000000")), HasSubstr("samples"));
}

TEST(ParseProfile, SaturatesTheDefaultStash) {
  const std::string text =
      with("\"output_bytes\": [8, 16], \"weight_bytes\": 400, \"stash_bytes\": 24",
           "\"output_bytes\": [9223372036854775807, 16], \"weight_bytes\": 400");
  EXPECT_EQ(parse_profile(text, "p.json").costs[0].stash_bytes, INT64_MAX);
}

TEST(ParseProfile, RefusesOtherDocuments) {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("null"),
        std::string(100'000, '['), std::string("\x89PNG\r\n\x1a\n\0\0", 10),
        with("penstock-profile", "penstock-plan"), with("\"version\": 1", "\"version\": 2")}) {
    EXPECT_THROW(parse_profile(text, "p.json"), ParseError) << text.substr(0, 40);
  }
}

TEST(ParseProfile, EveryTruncationIsRefused) {
  for (size_t length = 0; length + 1 < kDocument.size(); ++length) {
    EXPECT_THROW(parse_profile(kDocument.substr(0, length), "p.json"), ParseError) << length;
  }
}

TEST(ProfileToJson, RefusesAProfileThatCouldNotBeRead) {
  Profile profile = toy();
  profile.costs.pop_back();
  EXPECT_THROW(to_json(profile), ConfigError);
}

TEST(LoadProfile, TellsTheFormatsApartByContent) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("penstock_profile_io_test." + std::to_string(::getpid()));
  write_file_atomic(path, "\n " + to_json(toy()));
  EXPECT_EQ(load_profile(path), toy());
  write_file_atomic(path,
                    "node1 -- ReLU -- forward_compute_time=1.0, backward_compute_time=1.0, "
                    "activation_size=4.0, parameter_size=0.0\n");
  EXPECT_EQ(load_profile(path).source, "pipedream graph.txt");
  write_file_atomic(path, "");
  EXPECT_THROW(load_profile(path), ParseError);
  std::filesystem::remove(path);
  EXPECT_THROW(load_profile(path), ConfigError);
  EXPECT_THROW(load_profile(std::filesystem::temp_directory_path()), ConfigError);
}

Profile random_profile(Rng& rng) {
  const auto amount = [&] { return static_cast<int64_t>(rng.next() >> (1 + rng.below(63))); };
  Profile profile;
  profile.model = "m\"\\\n\xc3\xa9";
  profile.batch_size = amount();
  profile.samples = static_cast<int>(rng.below(1000));
  profile.copy_bandwidth_bytes_per_s = amount();
  const int num_inputs = static_cast<int>(1 + rng.below(3));
  std::vector<graph::LayerNode> layers;
  const auto any_value = [&]() -> ValueRef {
    if (layers.empty() || rng.below(4) == 0)
      return ValueRef::model_input(static_cast<int>(rng.below(static_cast<uint64_t>(num_inputs))));
    const uint64_t source = rng.below(layers.size());
    return {LayerId{static_cast<int32_t>(source)},
            static_cast<int>(rng.below(static_cast<uint64_t>(layers[source].num_outputs)))};
  };
  for (uint64_t count = 1 + rng.below(12); layers.size() < count;) {
    graph::LayerNode layer{
        "l" + std::to_string(layers.size()), "kind", {}, static_cast<int>(1 + rng.below(3))};
    for (uint64_t reads = rng.below(4); reads > 0; --reads) layer.inputs.push_back(any_value());
    LayerCost cost{amount(), amount(), 0,  amount(), amount(),
                   amount(), amount(), {}, amount(), amount()};
    cost.backward_weight_ns =
        static_cast<int64_t>(rng.below(static_cast<uint64_t>(cost.backward_ns) + 1));
    for (int i = 0; i < layer.num_outputs; ++i) cost.output_bytes.push_back(amount());
    if (!layers.empty() && layers.front().ties.empty() && rng.below(3) == 0) {
      layer.ties.push_back(
          {static_cast<int>(rng.below(3)), {LayerId{0}, static_cast<int>(rng.below(3))}});
      cost.tied_bytes.push_back(
          static_cast<int64_t>(rng.below(static_cast<uint64_t>(cost.weight_bytes) + 1)));
    }
    layers.push_back(std::move(layer));
    profile.costs.push_back(std::move(cost));
  }
  std::vector<ValueRef> outputs = {any_value(), any_value()};
  profile.graph = ModelGraph::build(num_inputs, std::move(layers), std::move(outputs));
  return profile;
}

RC_GTEST_PROP(ProfileToJson, ParsesBackToTheSameProfile, (uint64_t seed)) {
  Rng rng(seed);
  const Profile profile = random_profile(rng);
  RC_ASSERT(parse_profile(to_json(profile), "p.json") == profile);
}

RC_GTEST_PROP(ParseProfile, DamagedTextIsReadOrRefused, (uint64_t seed)) {
  for (const std::string& text : tests::mutants(kDocument, seed, 20)) {
    try {
      validate(parse_profile(text, "p.json"));
    } catch (const ParseError&) {
    }
  }
}

}  // namespace
}  // namespace penstock::profile
