// Layers of programs on parts of their weights against whole ones: float64, threads as members.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "penstock/imported/import_model.h"
#include "penstock/imported/program_layer.h"
#include "penstock/imported/step_edit.h"
#include "penstock/imported/team_layer.h"
#include "penstock/imported/testing_team_rules.h"
#include "penstock/shard/check_types.h"
#include "penstock/shard/testing_sharded.h"

namespace penstock::imported {
namespace {

using model::Tensors;

const shard::ShardOptions kAll{.only_worthwhile = false};
const shard::ShardOptions kInPlaces{.only_worthwhile = false, .sequence = {true}};

shard::ShardedModel in_team_of(const std::shared_ptr<const model::Model>& whole, int members,
                               const shard::ShardOptions& options) {
  const std::vector<StageId> stages(static_cast<size_t>(whole->graph().num_layers()), StageId{0});
  return shard::shard(whole, stages, {members}, options);
}

std::shared_ptr<const model::Model> program(const std::string& name) {
  return std::make_shared<const model::Model>(
      import_model(std::string(PENSTOCK_TEST_DATA) + "/" + name + ".pt2"));
}

Tensors random_inputs(const model::Model& model, int64_t batch) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  Tensors inputs;
  for (const model::InputSpec& input : model.inputs()) {
    std::vector<int64_t> sizes{batch};
    sizes.insert(sizes.end(), input.shape.begin(), input.shape.end());
    const at::Tensor values = at::empty(sizes, input.type == at::kLong ? at::kLong : at::kDouble);
    if (input.type == at::kLong)
      inputs.push_back(values.random_(0, input.values > 0 ? input.values : 2, generator));
    else
      inputs.push_back(values.normal_(0, 1, generator));
  }
  return inputs;
}

/// The share of the trained numbers that is in parts; `why`: of what is not.
double spread_share(const std::shared_ptr<const model::Model>& model, int members,
                    std::string& why) {
  const shard::ShardedModel sharded = in_team_of(model, members, kAll);
  EXPECT_EQ(shard::check_types(sharded), std::vector<std::string>());
  why.clear();
  for (const std::string& layer : sharded.shares[0].whole_layers) why += layer + '\n';
  return static_cast<double>(sharded.shares[0].spread_numbers) /
         static_cast<double>(sharded.shares[0].numbers);
}

struct Spread {
  std::string program;
  double of_two = 0;    ///< at least this share, by 2 members
  double of_three = 0;  ///< by 3, and by 4
  struct Places {
    int steps = 0;          ///< of 2 members, at least, that make parts of sequences
    int64_t positions = 0;  ///< numbers of embedded positions
    int whole_sums = 0;     ///< of values of three dimensions that no sample has
  };
  std::optional<Places> sequences = {};
};

class ProgramInTeam : public testing::TestWithParam<Spread> {};

// All but norms and biases of what is summed; two heads have no parts for three members.
INSTANTIATE_TEST_SUITE_P(Models, ProgramInTeam,
                         testing::Values(Spread{"grouped", 0.97, 0.97, {{54, 0, 2}}},
                                         Spread{"tokens", 0.96, 0.5, {{38, 8 * 16}}},
                                         Spread{"letters", 0.97, 0.7, {{38, 16 * 16}}},
                                         Spread{"ownloss", 0.96, 0.5, {{38, 8 * 16}}},
                                         Spread{"transformer", 0.46, 0.06, {{20, 5000}}},
                                         Spread{"counted", 1, 1, {{4, 0}}},
                                         Spread{"cnn", 0.99, 0.99},
                                         Spread{"shared", 0.95, 0.95, {{44, 0, 2}}}),
                         [](const auto& info) { return info.param.program; });

TEST_P(ProgramInTeam, ComputesWhatTheWholeDoes) {
  const auto whole = program(GetParam().program);
  for (const int members : {2, 3, 4}) {
    SCOPED_TRACE(members);
    std::string why;
    EXPECT_GE(spread_share(whole, members, why),
              members == 2 ? GetParam().of_two : GetParam().of_three)
        << why;
    shard::testing::expect_same(whole, random_inputs(*whole, 3), members, kAll);
  }
}

struct Sequences {
  int steps = 0;       ///< that make a part of the places of a sequence
  int whole_sums = 0;  ///< of numbers with places, that every member has whole
  int64_t summed = 0;  ///< numbers of weights of member 0 whose gradients are summed
};

Sequences sequences_of(const shard::ShardedModel& sharded) {
  Sequences found;
  for (int32_t l = 0; l < sharded.model.graph().num_layers(); ++l) {
    const auto* own = dynamic_cast<const ProgramLayer*>(&sharded.model.layer(LayerId{l}));
    if (own == nullptr) continue;
    const std::vector<model::ParameterSpec> specs = own->parameters();
    for (size_t w = 0; w < specs.size(); ++w) {
      if (sharded.model.part(LayerId{l})->member == 0 &&
          sharded.types[static_cast<size_t>(l)].weights[w].kind == shard::Kind::Pending)
        found.summed += c10::multiply_integers(specs[w].shape);
    }
    for (const Step& step : own->program().steps) {
      const std::vector<std::string> made = StepEdit(step, own->program()).outputs();
      const auto& types = own->parts().value_types;
      found.steps += std::any_of(made.begin(), made.end(), [&](const std::string& name) {
        const auto type = types.find(name);
        return type != types.end() && sharded.regions.is_sequence(type->second);
      });
      found.whole_sums += step.team && step.team->kind == TeamStep::Kind::SumForward &&
                          own->program().tensors.at(made.front()).sizes.size() == 3;
    }
  }
  return found;
}

/// Reduce-scatter and gather have the bytes of the sums in their place. Gradients of weights that
/// members use for their places are summed besides, and those of position embeddings are gathered.
TEST_P(ProgramInTeam, SharesThePlacesOfSequences) {
  const auto whole = program(GetParam().program);
  const Tensors inputs = random_inputs(*whole, 3);
  for (const int members : {2, 3, 4}) {
    SCOPED_TRACE(members);
    const shard::ShardedModel sharded = in_team_of(whole, members, kInPlaces);
    EXPECT_EQ(shard::check_types(sharded), std::vector<std::string>());
    const Sequences found = sequences_of(sharded);
    const int64_t with = shard::testing::expect_same(whole, inputs, members, kInPlaces);
    const auto expected = GetParam().sequences;
    if (!expected) EXPECT_EQ(found.steps, 0);
    if (!expected || members != 2) continue;
    EXPECT_GE(found.steps, expected->steps);
    EXPECT_EQ(found.whole_sums, expected->whole_sums);
    const int64_t without = shard::testing::expect_same(whole, inputs, members, kAll);
    EXPECT_LE(with, without + 8 * found.summed + 4 * expected->positions);
  }
}

/// Constants are float32.
TEST(ProgramsInTeams, FrozenWeightsStayWhole) {
  const auto whole = program("branches");
  shard::testing::expect_same(whole, random_inputs(*whole, 3), 2, kAll, 1e-5, at::kFloat);
}

/// Keys and values of two heads for four members: each has the head that its queries need, and
/// counts where no member before it has the same.
TEST(ProgramsInTeams, FewHeadsAreCopied) {
  const auto whole = program("shared");
  const std::vector<std::pair<int, const shard::ShardOptions*>> cases = {
      {3, &kAll}, {4, &kAll}, {5, &kAll}, {8, &kAll}, {3, &kInPlaces}, {4, &kInPlaces}};
  for (const auto& [members, options] : cases) {
    SCOPED_TRACE(members);
    SCOPED_TRACE(options == &kInPlaces);
    const shard::ShardedModel sharded = in_team_of(whole, members, *options);
    EXPECT_EQ(shard::check_types(sharded), std::vector<std::string>());
    EXPECT_EQ(sequences_of(sharded).steps > 0, options == &kInPlaces);
    std::map<std::string, int64_t> counted;
    std::map<std::string, int64_t> rows;
    for (int32_t l = 0; l < sharded.model.graph().num_layers(); ++l) {
      const model::LayerPart& part = *sharded.model.part(LayerId{l});
      for (size_t p = 0; p < part.parameters.size(); ++p) {
        const std::string key =
            whole->layer(*part.whole).parameters()[part.parameters[p].number].key;
        if (key.find("k_proj.weight") == std::string::npos) continue;
        ++counted[key];
        if (part.counts(p)) rows[key] += part.parameters[p].sizes()[0];
        const int64_t of_a_head = part.parameters[p].whole[0] / 2;
        EXPECT_EQ(part.parameters[p].sizes()[0], of_a_head)
            << key << '\n'
            << fmt::format("{}", fmt::join(sharded.shares[0].whole_layers, "\n"));
      }
    }
    EXPECT_EQ(counted, (std::map<std::string, int64_t>{{"one.k_proj.weight", members},
                                                       {"other.k_proj.weight", members}}));
    EXPECT_EQ(rows, (std::map<std::string, int64_t>{{"one.k_proj.weight", 8},
                                                    {"other.k_proj.weight", 8}}));
    shard::testing::expect_same(whole, random_inputs(*whole, 3), members, *options);
  }
}

/// Two layers in both directions, with dropout in between, and one whose last hidden states are
/// read. Their first states are float32.
TEST(ProgramsInTeams, LstmsAreDividedByHiddenUnits) {
  const auto whole = program("recurrent");
  for (const int members : {2, 3, 4}) {
    SCOPED_TRACE(members);
    std::string why;
    EXPECT_GE(spread_share(whole, members, why), 0.95) << why;
    shard::testing::expect_same(whole, random_inputs(*whole, 3), members, kAll, 1e-5, at::kFloat);
  }
}

/// Rules rely on the sizes that a file gives: where they do not fit, a layer stays whole, and so do
/// those before it whose parts it would read.
TEST(ProgramsInTeams, SizesThatDoNotFitKeepLayersWhole) {
  using Sizes = std::vector<exported::SymbolicInt>;
  const std::vector<std::function<void(Sizes&)>> changes = {
      [](Sizes& sizes) { sizes.clear(); },
      [](Sizes& sizes) {
        if (!sizes.empty()) sizes.pop_back();
      },
      [](Sizes& sizes) { sizes.push_back({.value = 2}); },
      [](Sizes& sizes) {
        for (exported::SymbolicInt& size : sizes) size = {.value = 7};
      }};
  const auto infer = [](const ProgramLayer& layer, const FlatProgram& program) {
    shard::Regions regions;
    const auto specs = layer.parameters();
    testing_rules::SpreadAll walk(regions, 2, specs, layer);
    try {
      in_team(layer.parts(), program,
              std::vector<shard::Type>(layer.parts().inputs.size(), shard::Type::equal()), walk,
              nullptr);
      return 0;
    } catch (const shard::Refused&) {
      return 1;
    } catch (const shard::InBlocks&) {
      return 1;
    }
  };
  int refused = 0;
  for (const std::string name : {"grouped", "cnn"}) {
    const auto whole = program(name);
    for (int32_t l = 0; l < whole->graph().num_layers(); ++l) {
      const auto* layer = dynamic_cast<const ProgramLayer*>(&whole->layer(LayerId{l}));
      if (layer == nullptr) continue;
      for (const auto& [value, meta] : layer->program().tensors) {
        SCOPED_TRACE(name + ' ' + value);
        FlatProgram unknown = layer->program();
        unknown.tensors.erase(value);
        refused += infer(*layer, unknown);
        for (const auto& change : changes) {
          FlatProgram changed = layer->program();
          change(changed.tensors.at(value).sizes);
          refused += infer(*layer, changed);
        }
      }
    }
  }
  EXPECT_GT(refused, 50);
}

/// Further models, too large for the repository: PENSTOCK_MODELS names a folder of them. With
/// PENSTOCK_MODELS_FLOAT64, for those that do not compute in float32 of their own, in float64.
TEST(ProgramsInTeams, FurtherModels) {
  const char* folder = std::getenv("PENSTOCK_MODELS");
  if (folder == nullptr) GTEST_SKIP() << "no folder in PENSTOCK_MODELS";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".pt2") continue;
    SCOPED_TRACE(entry.path().string());
    const auto whole = std::make_shared<const model::Model>(import_model(entry.path().string()));
    for (const int members : {2, 3, 4}) {
      SCOPED_TRACE(members);
      std::string why;
      EXPECT_GT(spread_share(whole, members, why), 0.5) << why;
      const bool is_double = std::getenv("PENSTOCK_MODELS_FLOAT64") != nullptr;
      for (const shard::ShardOptions& options : {kAll, kInPlaces}) {
        shard::testing::expect_same(whole, random_inputs(*whole, 3), members, options,
                                    is_double ? 1e-10 : 1e-5, is_double ? at::kDouble : at::kFloat);
      }
      EXPECT_EQ(shard::check_types(in_team_of(whole, members, kInPlaces)),
                std::vector<std::string>());
    }
  }
}

}  // namespace
}  // namespace penstock::imported
