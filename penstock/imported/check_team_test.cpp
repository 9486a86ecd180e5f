// Changed members' layers are refused before they run.
#include "penstock/imported/check_team.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "penstock/imported/check_team_arguments.h"
#include "penstock/imported/import_model.h"
#include "penstock/imported/program_layer.h"
#include "penstock/imported/step_edit.h"
#include "penstock/imported/team_layer.h"
#include "penstock/imported/testing_team_rules.h"
#include "penstock/shard/shard.h"

namespace penstock::imported {
namespace {

using exported::TensorArgument;
using shard::Kind;
using shard::Type;

/// A layer of the whole model with a member's steps.
struct Piece {
  std::string name;
  const ProgramLayer* whole = nullptr;
  TeamLayer made;
  shard::Member member;

  std::vector<std::string> errors() const {
    return check_team({whole->parts(), whole->program(), made, member});
  }
};

struct Pieces {
  explicit Pieces(const std::string& program, int members, bool sequence = false)
      : whole(std::make_shared<const model::Model>(
            import_model(std::string(PENSTOCK_TEST_DATA) + "/" + program + ".pt2"))),
        sharded(shard::shard(
            whole,
            std::vector<StageId>(static_cast<size_t>(whole->graph().num_layers()), StageId{0}),
            {members}, {.only_worthwhile = false, .sequence = {sequence}})) {
    for (int32_t l = 0; l < sharded.model.graph().num_layers(); ++l) {
      const model::LayerPart& part = *sharded.model.part(LayerId{l});
      const auto* own = dynamic_cast<const ProgramLayer*>(&sharded.model.layer(LayerId{l}));
      if (own == nullptr || own->parts().value_types.empty()) continue;
      all.push_back({.name = program + '/' + sharded.model.graph().layer(LayerId{l}).name,
                     .whole = &dynamic_cast<const ProgramLayer&>(whole->layer(*part.whole)),
                     .made = {own->program(), sharded.types[static_cast<size_t>(l)],
                              own->parts().value_types},
                     .member = {sharded.regions, part.team, part.member}});
    }
  }

  std::shared_ptr<const model::Model> whole;
  shard::ShardedModel sharded;
  std::vector<Piece> all;
};

using Random = std::mt19937;

size_t pick(Random& random, size_t count) { return random() % count; }

/// One of the steps that fit.
std::optional<size_t> step_of(const TeamLayer& made, Random& random,
                              const std::function<bool(const StepEdit&)>& fits) {
  std::vector<size_t> places;
  for (size_t s = 0; s < made.program.steps.size(); ++s) {
    if (fits(StepEdit(made.program.steps[s], made.program))) places.push_back(s);
  }
  if (places.empty()) return std::nullopt;
  return places[pick(random, places.size())];
}

bool is_team(const StepEdit& step, TeamStep::Kind kind) {
  return step.step().team && step.step().team->kind == kind;
}

/// Whoever read what the step makes reads what it read.
void leave_out(TeamLayer& made, size_t place) {
  const StepEdit gone(made.program.steps[place], made.program);
  made.program.steps.erase(made.program.steps.begin() + static_cast<std::ptrdiff_t>(place));
  for (Step& step : made.program.steps) {
    StepEdit edit(step, made.program);
    edit.rename(gone.outputs().front(), gone.reads().front());
    step = edit.step();
  }
}

bool leave_out_one(TeamLayer& made, Random& random, TeamStep::Kind kind) {
  const auto place = step_of(made, random, [&](const StepEdit& s) { return is_team(s, kind); });
  if (place) leave_out(made, *place);
  return place.has_value();
}

bool type_of_one(TeamLayer& made, Random& random, Kind kind,
                 const std::function<void(Type&)>& change) {
  std::vector<Type*> types;
  for (auto& [name, type] : made.values) {
    if (type.kind == kind) types.push_back(&type);
  }
  if (types.empty()) return false;
  change(*types[pick(random, types.size())]);
  return true;
}

/// One step of that kind becomes one of another, and what it makes has that type.
bool other_kind(TeamLayer& made, Random& random, TeamStep::Kind from, TeamStep::Kind to,
                const Type& type) {
  const auto place = step_of(made, random, [&](const StepEdit& s) { return is_team(s, from); });
  if (!place) return false;
  Step& step = made.program.steps[*place];
  step.team->kind = to;
  step.node.target = target_of(to);
  made.values[StepEdit(step, made.program).outputs().front()] = type;
  return true;
}

bool is_product(const StepEdit& step) {
  return step.name() == "linear" || step.name() == "mm" || step.name().starts_with("conv");
}

/// Each returns whether there was something to change.
using Change = std::function<bool(const Piece&, TeamLayer&, Random&)>;

std::map<std::string, Change> changes() {
  std::map<std::string, Change> all;
  for (const auto& [name, kind] : {std::pair{"a sum left out", TeamStep::Kind::SumForward},
                                   {"a gradient not summed", TeamStep::Kind::SumBackward},
                                   {"gradients of copies not summed", TeamStep::Kind::SumCopies},
                                   {"a copy for the own units", TeamStep::Kind::OwnUnits},
                                   {"a whole value for a part", TeamStep::Kind::OwnPart},
                                   {"a part for all places", TeamStep::Kind::Gather},
                                   {"a part for all places, summed", TeamStep::Kind::GatherSum},
                                   {"a sum in parts left out", TeamStep::Kind::SumPart}}) {
    all[name] = [kind = kind](const Piece&, TeamLayer& made, Random& random) {
      return leave_out_one(made, random, kind);
    };
  }
  all["places gathered, their gradient not summed"] = [](const Piece&, TeamLayer& made,
                                                         Random& random) {
    return other_kind(made, random, TeamStep::Kind::GatherSum, TeamStep::Kind::Gather,
                      Type::equal());
  };
  all["places gathered, their gradient summed"] = [](const Piece&, TeamLayer& made,
                                                     Random& random) {
    return other_kind(made, random, TeamStep::Kind::Gather, TeamStep::Kind::GatherSum,
                      Type::pending());
  };
  all["all places of a sum for a part"] = [](const Piece&, TeamLayer& made, Random& random) {
    return other_kind(made, random, TeamStep::Kind::SumPart, TeamStep::Kind::SumForward,
                      Type::equal());
  };
  all["a bias added by all"] = [](const Piece& piece, TeamLayer& made, Random& random) {
    const auto place = step_of(made, random, [&](const StepEdit& s) {
      return is_product(s) && made.values.contains(s.outputs().front()) &&
             made.values.at(s.outputs().front()).kind == Kind::Partial && s.name() != "mm";
    });
    if (!place) return false;
    StepEdit edit(made.program.steps[*place], made.program);
    const std::string& weight = edit.need("weight");
    for (const std::string& name : piece.whole->parts().parameters) {
      if (name == weight) continue;
      edit.set_tensor("bias", name);
      made.program.steps[*place] = edit.step();
      return true;
    }
    return false;
  };
  all["a step twice"] = [](const Piece&, TeamLayer& made, Random& random) {
    const size_t place = pick(random, made.program.steps.size());
    const Step step = made.program.steps[place];
    made.program.steps.insert(made.program.steps.begin() + static_cast<std::ptrdiff_t>(place),
                              step);
    // A value that is made twice in another form is the same.
    return !(step.team && is_form(step.team->kind));
  };
  all["a step left out"] = [](const Piece&, TeamLayer& made, Random& random) {
    made.program.steps.erase(made.program.steps.begin() +
                             static_cast<std::ptrdiff_t>(pick(random, made.program.steps.size())));
    return true;
  };
  all["another slice"] = [](const Piece&, TeamLayer& made, Random& random) {
    const auto place = step_of(made, random, [](const StepEdit& s) {
      return s.step().team && !s.step().team->runs.empty();
    });
    if (!place) return false;
    TeamStep& team = *made.program.steps[*place].team;
    team.runs[pick(random, team.runs.size())].begin += random() % 2 == 0 ? 1 : -1;
    return true;
  };
  all["other members' hidden units"] = [](const Piece&, TeamLayer& made, Random& random) {
    const auto place =
        step_of(made, random, [](const StepEdit& s) { return is_team(s, TeamStep::Kind::Lstm); });
    if (!place) return false;
    std::vector<int64_t>& lengths = made.program.steps[*place].team->lengths;
    lengths[0] -= 4;
    lengths[1] += 4;
    return true;
  };
  all["another size"] = [](const Piece&, TeamLayer& made, Random& random) {
    const std::vector<std::string> lists = {"size", "shape", "sizes", "split_sizes"};
    const auto place = step_of(made, random, [&](const StepEdit& s) {
      return std::any_of(lists.begin(), lists.end(), [&](const std::string& list) {
        const auto numbers = s.numbers(list);
        return std::any_of(numbers.begin(), numbers.end(),
                           [](const auto& number) { return number && *number > 1; });
      });
    });
    if (!place) return false;
    StepEdit edit(made.program.steps[*place], made.program);
    for (const std::string& list : lists) {
      const auto numbers = edit.numbers(list);
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] && *numbers[i] > 1) edit.set_entry(list, i, *numbers[i] * 2);
      }
    }
    made.program.steps[*place] = edit.step();
    return true;
  };
  all["the mask of a part"] = [](const Piece&, TeamLayer& made, Random& random) {
    const auto place = step_of(
        made, random, [](const StepEdit& s) { return is_team(s, TeamStep::Kind::WholeMask); });
    if (place) made.program.steps[*place].team.reset();
    return place.has_value();
  };
  all["other random numbers"] = [](const Piece&, TeamLayer& made, Random& random) {
    const auto place = step_of(
        made, random, [](const StepEdit& s) { return is_team(s, TeamStep::Kind::WholeMask); });
    if (place) *made.program.steps[*place].ordinal += 1;
    return place.has_value();
  };
  all["a part along another dimension"] = [](const Piece&, TeamLayer& made, Random& random) {
    return type_of_one(made, random, Kind::Part,
                       [&](Type& type) { type.dimension += type.dimension == 0 ? 1 : -1; });
  };
  all["other blocks"] = [](const Piece&, TeamLayer& made, Random& random) {
    return type_of_one(made, random, Kind::Part,
                       [&](Type& type) { type.blocks.push_back(type.blocks.front()); });
  };
  all["equal instead of a part"] = [](const Piece&, TeamLayer& made, Random& random) {
    return type_of_one(made, random, Kind::Part, [](Type& type) { type = Type::equal(); });
  };
  all["equal instead of partial"] = [](const Piece&, TeamLayer& made, Random& random) {
    return type_of_one(made, random, Kind::Partial, [](Type& type) { type = Type::equal(); });
  };
  all["equal instead of pending"] = [](const Piece&, TeamLayer& made, Random& random) {
    return type_of_one(made, random, Kind::Pending, [](Type& type) { type = Type::equal(); });
  };
  all["another value"] = [](const Piece&, TeamLayer& made, Random& random) {
    const size_t place = pick(random, made.program.steps.size());
    StepEdit edit(made.program.steps[place], made.program);
    const std::vector<std::string> reads = edit.reads();
    if (reads.empty()) return false;
    std::vector<std::string> others;
    for (size_t s = 0; s < place; ++s) {
      for (const std::string& name : StepEdit(made.program.steps[s], made.program).outputs()) {
        if (std::find(reads.begin(), reads.end(), name) == reads.end()) others.push_back(name);
      }
    }
    if (others.empty()) return false;
    edit.rename(reads[pick(random, reads.size())], others[pick(random, others.size())]);
    made.program.steps[place] = edit.step();
    return true;
  };
  all["another constant"] = [](const Piece&, TeamLayer& made, Random& random) {
    const auto place = step_of(made, random, [](const StepEdit& s) {
      // A slice of all places is the same along all dimensions.
      return !s.step().team && s.name() != "slice" && s.number("dim") && s.has("dim");
    });
    if (!place) return false;
    StepEdit edit(made.program.steps[*place], made.program);
    const int64_t dim = *edit.number("dim");
    edit.set_number("dim", dim == 0 ? 1 : dim - 1);
    made.program.steps[*place] = edit.step();
    return true;
  };
  all["another operator"] = [](const Piece&, TeamLayer& made, Random& random) {
    const std::string aten = "torch.ops.aten.";
    const std::map<std::string, std::string> others = {
        {"relu.default", "exp.default"},       {"silu.default", "relu.default"},
        {"softmax.int", "log_softmax.int"},    {"rsqrt.default", "sqrt.default"},
        {"mean.dim", "sum.dim_IntList"},       {"neg.default", "exp.default"},
        {"add.Tensor", "sub.Tensor"},          {"mul.Tensor", "maximum.default"},
        {"max_pool2d.default", "min.default"}, {"flatten.using_ints", "relu.default"}};
    const auto other_of = [&](const StepEdit& s) {
      const std::string& target = s.step().node.target;
      return others.find(target.starts_with(aten) ? target.substr(aten.size()) : target);
    };
    const auto place =
        step_of(made, random, [&](const StepEdit& s) { return other_of(s) != others.end(); });
    if (!place) return false;
    Step& step = made.program.steps[*place];
    step.node.target = aten + other_of(StepEdit(step, made.program))->second;
    return true;
  };
  all["a gradient not handed on"] = [](const Piece&, TeamLayer& made, Random& random) {
    Step& step = made.program.steps[pick(random, made.program.steps.size())];
    step.gradient = !step.gradient;
    return true;
  };
  all["an operand multiplied"] = [](const Piece&, TeamLayer& made, Random& random) {
    const auto place = step_of(made, random, [](const StepEdit& s) {
      return s.step().node.target == "torch.ops.aten.add.Tensor" && !s.has("alpha");
    });
    if (!place) return false;
    made.program.steps[*place].node.inputs.push_back(
        {.name = "alpha", .value = int64_t{2}, .keyword = true});
    return true;
  };
  all["exchanged operands"] = [](const Piece&, TeamLayer& made, Random& random) {
    const auto place = step_of(made, random, [](const StepEdit& s) {
      return !s.step().team && s.tensor("self") && s.tensor("other");
    });
    if (!place) return false;
    auto& inputs = made.program.steps[*place].node.inputs;
    std::swap(inputs[0].name, inputs[1].name);
    return true;
  };
  all["a weight of another type"] = [](const Piece&, TeamLayer& made, Random& random) {
    if (made.types.weights.empty()) return false;
    Type& type = made.types.weights[pick(random, made.types.weights.size())];
    if (!type.is_part()) return false;
    type.dimension = 1 - std::min<size_t>(type.dimension, 1);
    return true;
  };
  return all;
}

/// The first step that is another one.
std::string describe(const TeamLayer& one, const TeamLayer& other) {
  for (size_t s = 0; s < std::min(one.program.steps.size(), other.program.steps.size()); ++s) {
    const exported::Node& node = other.program.steps[s].node;
    const auto& inputs = one.program.steps[s].node.inputs;
    const bool is_same = std::equal(
        inputs.begin(), inputs.end(), node.inputs.begin(), node.inputs.end(),
        [](const auto& a, const auto& b) { return a.name == b.name && a.value == b.value; });
    if (!is_same || one.program.steps[s].node.target != node.target)
      return node.name + " (" + node.target + "), ";
  }
  return {};
}

/// The first layer from `place` on that has something to change, and the changed one.
std::optional<std::pair<const Piece*, Piece>> changed_piece(const Pieces& pieces, size_t place,
                                                            const Change& change, Random& random) {
  for (size_t i = 0; i < pieces.all.size(); ++i) {
    const Piece& piece = pieces.all[(place + i) % pieces.all.size()];
    Piece changed = piece;
    if (change(piece, changed.made, random)) return std::pair(&piece, std::move(changed));
  }
  return std::nullopt;
}

TEST(CheckTeam, ChangedStepsAreRefused) {
  std::map<std::string, int> refused;
  for (const auto& [program, sequence] : {std::pair<std::string, bool>{"grouped", false},
                                          {"ownloss", false},
                                          {"cnn", false},
                                          {"recurrent", false},
                                          {"shared", false},
                                          {"grouped", true},
                                          {"ownloss", true},
                                          {"transformer", true},
                                          {"shared", true}}) {
    SCOPED_TRACE(sequence);
    for (const int members : {2, 3}) {
      const Pieces pieces(program, members, sequence);
      for (const Piece& piece : pieces.all)
        EXPECT_EQ(piece.errors(), std::vector<std::string>()) << piece.name;
      Random random(static_cast<unsigned>(members));
      for (const auto& [name, change] : changes()) {
        for (int turn = 0; turn < (program == "shared" ? 200 : 60); ++turn) {
          const size_t place = pick(random, pieces.all.size());
          const auto changed = changed_piece(pieces, place, change, random);
          if (!changed) continue;
          const Piece& piece = *changed->first;
          EXPECT_NE(changed->second.errors(), std::vector<std::string>())
              << describe(piece.made, changed->second.made) << name << ": " << piece.name
              << ", turn " << turn;
          ++refused[name];
        }
      }
    }
  }
  int all = 0;
  for (const auto& [name, change] : changes()) {
    EXPECT_GT(refused[name], 4) << name;
    all += refused[name];
  }
  EXPECT_GT(all, 4000);
}

/// Members know how often their own rows are read, and no others.
TEST(CheckTeam, TablesScaledByFrequencyAreRefused) {
  const Pieces pieces("grouped", 2);
  int found = 0;
  for (const Piece& piece : pieces.all) {
    FlatProgram whole = piece.whole->program();
    for (Step& step : whole.steps) {
      StepEdit edit(step, whole);
      if (edit.name() != "embedding") continue;
      step.node.inputs.push_back({.name = "scale_grad_by_freq", .value = true, .keyword = true});
    }
    const bool has_table = std::any_of(
        piece.made.program.steps.begin(), piece.made.program.steps.end(),
        [](const Step& step) { return step.team && step.team->kind == TeamStep::Kind::Embedding; });
    if (!has_table) continue;
    ++found;
    EXPECT_NE(check_team({piece.whole->parts(), whole, piece.made, piece.member}),
              std::vector<std::string>());
  }
  EXPECT_EQ(found, 4);  // of tokens and of places, for each member
}

/// Where two dimensions have one length, a bias may be added along the wrong one.
TEST(CheckTeam, BiasesAreAddedAlongTheirOperatorsDimension) {
  const FlatProgram program;
  const auto step = [&](const std::string& target, std::vector<exported::NamedArgument> inputs) {
    return StepEdit({.node = {.target = "torch.ops.aten." + target,
                              .inputs = std::move(inputs),
                              .outputs = {TensorArgument{"y"}}}},
                    program);
  };
  const exported::NamedArgument self{.name = "self", .value = TensorArgument{"x"}};
  const exported::NamedArgument other{.name = "other", .value = TensorArgument{"bias"}};
  const auto shaped = [&](std::vector<int64_t> shape) {
    return step("reshape.default", {self, {.name = "shape", .value = std::move(shape)}});
  };
  const StepEdit add = step("add.Tensor", {self, other});
  const StepEdit twice =
      step("add.Tensor", {self, other, {.name = "alpha", .value = int64_t{2}, .keyword = true}});
  const StepEdit channels = shaped({-1, 1, 1});
  const StepEdit columns = shaped({-1, 1});
  const StepEdit convolution = step("conv2d.default", {});
  EXPECT_TRUE(adds_bias(convolution, &channels, add, 4));
  EXPECT_FALSE(adds_bias(convolution, &columns, add, 4));
  EXPECT_FALSE(adds_bias(convolution, nullptr, add, 4));
  EXPECT_FALSE(adds_bias(convolution, &channels, twice, 4));
  EXPECT_FALSE(adds_bias(convolution, &channels, step("sub.Tensor", {self, other}), 4));
  const StepEdit linear = step("linear.default", {});
  EXPECT_TRUE(adds_bias(linear, nullptr, add, 3));
  EXPECT_FALSE(adds_bias(linear, &columns, add, 3));
  EXPECT_FALSE(adds_bias(linear, nullptr, twice, 3));
}

/// Sums, tables and losses of torch.no_grad() hand no gradients on, as the whole steps do not.
TEST(CheckTeam, StepsWithoutGradientsStayWithoutThem) {
  const Pieces pieces("grouped", 2);
  std::map<TeamStep::Kind, int> found;
  for (const Piece& piece : pieces.all) {
    FlatProgram whole = piece.whole->program();
    for (Step& step : whole.steps) step.gradient = false;
    shard::Regions regions;
    const auto specs = piece.whole->parameters();
    testing_rules::SpreadAll walk(regions, 2, specs, *piece.whole);
    const std::vector<Type> inputs(piece.whole->parts().inputs.size(), Type::equal());
    const shard::Member member{regions, 2, 1};
    const TeamLayer made = in_team(piece.whole->parts(), whole, inputs, walk, &member);
    EXPECT_EQ(check_team({piece.whole->parts(), whole, made, member}), std::vector<std::string>());
    for (const Step& step : made.program.steps) {
      if (!step.team || step.team->kind == TeamStep::Kind::OwnPart) continue;
      ++found[step.team->kind];
      EXPECT_FALSE(step.gradient) << step.node.name;
    }
  }
  EXPECT_GT(found[TeamStep::Kind::SumForward], 0);
  EXPECT_GT(found[TeamStep::Kind::Embedding], 0);
  EXPECT_EQ(found[TeamStep::Kind::SumBackward], 0);
}

TEST(CheckTeam, SaysOperatorPlaceAndTypes) {
  const Pieces pieces("grouped", 2);
  for (const Piece& piece : pieces.all) {
    Piece changed = piece;
    Random random(1);
    if (!leave_out_one(changed.made, random, TeamStep::Kind::SumForward)) continue;
    const std::vector<std::string> errors = changed.errors();
    ASSERT_FALSE(errors.empty());
    EXPECT_NE(errors.front().find("partial numbers that are not summed"), std::string::npos)
        << errors.front();
    return;
  }
  FAIL() << "no layer sums";
}

}  // namespace
}  // namespace penstock::imported
