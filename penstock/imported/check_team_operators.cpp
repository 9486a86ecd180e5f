#include "penstock/imported/check_team_operators.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <vector>

#include "penstock/imported/known_operators.h"

namespace penstock::imported {

using shard::Kind;
using shard::Type;

namespace {

/// One step with what is known of its values.
struct Checked {
  const StepEdit& step;
  const StepTypes& types;

  const Type& type(const std::string& name) const { return types.type(name); }
  size_t rank(const std::string& name) const { return types.sizes(name).rank(); }
  std::string out() const { return step.outputs().front(); }
  const Type& made() const { return type(out()); }
  /// Whether the value is a part along a dimension, counted from the right (1: the last).
  bool is_from_right(const std::string& name, size_t place) const {
    return type(name).is_part() && type(name).dimension + place == rank(name);
  }
  /// Whether the value is that part where it has the dimension, and shared where it has not.
  bool is_broadcast(const std::string& name, size_t place, const Type& part) const {
    const ValueSizes& sizes = types.sizes(name);
    if (type(name).is_part())
      return is_from_right(name, place) && types.same_part(type(name), part);
    const bool varies = sizes.rank() >= place && sizes.numbers.at(sizes.rank() - place) != 1;
    return !varies && types.is_shared(name);
  }
  /// Of an argument that may be absent: a part along dimension 0.
  bool is_part_of_rows(std::string_view argument, const Type& part) const {
    const auto name = step.tensor(argument);
    return !name || (type(*name).is_part() && type(*name).dimension == 0 &&
                     types.same_part(type(*name), part));
  }
  bool is_shared(std::string_view argument) const {
    const auto name = step.tensor(argument);
    return !name || (!type(*name).is_part() && types.is_shared(*name));
  }
  bool has(std::string_view argument) const { return step.tensor(argument).has_value(); }
};

bool number_by_number(const Checked& c) {
  for (const std::string& output : c.step.outputs()) {
    if (output.empty()) continue;
    const Type& made = c.type(output);
    if (!made.is_part()) return false;
    const size_t place = c.rank(output) - made.dimension;
    for (const std::string& read : c.step.reads()) {
      if (!c.is_broadcast(read, place, made)) return false;
    }
  }
  return true;
}

bool keeps_part(const Checked& c) {
  const std::string input = c.step.reads().front();
  return c.type(input).is_part() && c.made().is_part() &&
         c.type(input).dimension == c.made().dimension &&
         c.types.same_part(c.type(input), c.made());
}

/// Of another value it reads the type of its numbers.
bool like_another(const Checked& c) {
  const std::string input = c.step.reads().front();
  if (c.type(input).is_part()) return keeps_part(c);
  return c.type(input).kind == Kind::Equal && c.made().kind == Kind::Equal;
}

size_t dimension_of(int64_t given, size_t rank) {
  return static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(rank) : given);
}

bool along(const Checked& c) {
  const auto dim = c.step.number("dim");
  const std::vector<std::string> made = c.step.outputs();
  const bool all = std::all_of(made.begin(), made.end(), [&](const std::string& name) {
    return name.empty() || c.type(name) == c.made();
  });
  return c.step.reads().size() == 1 && keeps_part(c) && all && dim &&
         dimension_of(*dim, c.rank(c.step.reads().front())) != c.made().dimension;
}

bool reduced(const Checked& c) {
  const std::string input = c.step.reads().front();
  const Type& type = c.type(input);
  if (!type.is_part() || c.step.reads().size() != 1) return false;
  std::vector<bool> away(c.rank(input), c.step.numbers("dim").empty());
  for (const auto& dim : c.step.numbers("dim")) {
    if (!dim) return false;
    away.at(dimension_of(*dim, away.size())) = true;
  }
  if (away[type.dimension]) return c.step.name() == "sum" && c.made().kind == Kind::Partial;
  const bool keeps = c.rank(c.out()) == away.size();
  const auto gone =
      keeps ? 0
            : std::count(away.begin(), away.begin() + static_cast<std::ptrdiff_t>(type.dimension),
                         true);
  return c.made().is_part() && c.types.same_part(type, c.made()) &&
         c.made().dimension + static_cast<size_t>(gone) == type.dimension;
}

bool extreme(const Checked& c) {
  if (c.has("other")) return number_by_number(c);
  const std::vector<std::string> made = c.step.outputs();
  return reduced(c) && std::all_of(made.begin(), made.end(), [&](const std::string& name) {
           return name.empty() || c.type(name) == c.made();
         });
}

bool norm_of_last(const Checked& c) {
  const std::string input = c.step.need("input");
  return c.type(input).is_part() && keeps_part(c) &&
         c.made().dimension + c.step.numbers("normalized_shape").size() < c.rank(input) &&
         c.is_shared("weight") && c.is_shared("bias");
}

bool norm_of_channels(const Checked& c) {
  if (!keeps_part(c) || c.made().dimension != 1) return false;
  for (const std::string_view argument : {"weight", "bias", "running_mean", "running_var"}) {
    if (!c.is_part_of_rows(argument, c.made())) return false;
  }
  return true;
}

bool on_last(const Checked& c, size_t places) {
  return c.step.reads().size() == 1 && keeps_part(c) &&
         c.made().dimension + places < c.rank(c.step.reads().front());
}

bool linear(const Checked& c) {
  const std::string input = c.step.need("input");
  const std::string weight = c.step.need("weight");
  const Type& w = c.type(weight);
  if (w.is_part() && w.dimension == 1) {  // summed afterwards, and the bias added once
    return c.made().kind == Kind::Partial && c.is_from_right(input, 1) && !c.has("bias") &&
           c.types.same_part(c.type(input), w);
  }
  if (w.is_part()) {
    return w.dimension == 0 && c.is_from_right(c.out(), 1) && c.types.same_part(w, c.made()) &&
           c.is_shared("input") && c.is_part_of_rows("bias", w);
  }
  return c.type(input).is_part() && !c.is_from_right(input, 1) && keeps_part(c) &&
         c.is_shared("weight") && c.is_shared("bias");
}

bool product(const Checked& c, std::string_view left, std::string_view right, bool adds) {
  const std::string a = c.step.need(left);
  const std::string b = c.step.need(right);
  const size_t summed = c.rank(b) < 2 ? 1 : 2;
  const std::string added = adds ? c.step.need("self") : "";
  if (c.made().kind == Kind::Partial) {
    return !adds && c.is_from_right(a, 1) && c.is_from_right(b, summed) &&
           c.types.same_part(c.type(a), c.type(b));
  }
  if (!c.made().is_part() || c.is_from_right(a, 1) || c.is_from_right(b, summed)) return false;
  const size_t place = c.rank(c.out()) - c.made().dimension;
  if (place == 1 && c.rank(b) > 1) {
    return c.is_from_right(b, 1) && c.types.same_part(c.type(b), c.made()) && c.is_shared(left) &&
           (!adds || c.is_broadcast(added, 1, c.made()));
  }
  if (place == 2 && c.rank(b) > 1) {
    return c.is_from_right(a, 2) && c.types.same_part(c.type(a), c.made()) && c.is_shared(right) &&
           (!adds || c.is_broadcast(added, 2, c.made()));
  }
  return !adds && c.rank(a) > 2 && c.is_broadcast(a, place, c.made()) &&
         c.is_broadcast(b, place, c.made()) && (c.type(a).is_part() || c.type(b).is_part());
}

bool convolution(const Checked& c) {
  const std::string input = c.step.need("input");
  const Type& w = c.type(c.step.need("weight"));
  const Type& read = c.type(input);
  if (!w.is_part() || c.step.flag("transposed").value_or(false) ||
      c.rank(input) != c.rank(c.step.need("weight")))
    return false;
  if (w.dimension == 1) {
    return c.made().kind == Kind::Partial && read.is_part() && read.dimension == 1 &&
           c.types.same_part(read, w) && !c.has("bias") && c.step.number("groups") == 1;
  }
  if (w.dimension != 0 || !c.made().is_part() || c.made().dimension != 1 ||
      !c.types.same_part(w, c.made()) || !c.is_part_of_rows("bias", w))
    return false;
  if (!read.is_part()) return c.step.number("groups") == 1 && c.is_shared("input");
  // Whole groups of channels, as many of what is read as of what is made.
  const int64_t channels = c.types.sizes(input).numbers.at(1);
  const int64_t rows = c.types.sizes(c.step.need("weight")).numbers.at(0);
  return read.dimension == 1 && c.types.joined(read, w) &&
         std::equal(read.blocks.begin(), read.blocks.end(), w.blocks.begin(), w.blocks.end(),
                    [&](int64_t in, int64_t out) { return in * rows == out * channels; });
}

bool attention(const Checked& c) {
  const std::string query = c.step.need("query");
  const Type& made = c.made();
  if (!c.is_from_right(c.out(), 3) || !c.is_from_right(query, 3) ||
      !c.types.same_part(c.type(query), made))
    return false;
  for (const std::string_view argument : {"key", "value"}) {
    const std::string name = c.step.need(argument);
    if (!c.is_from_right(name, 3) || !c.types.joined(c.type(name), made) ||
        c.type(name).blocks.size() != 1)
      return false;
  }
  const auto mask = c.step.tensor("attn_mask");
  return !mask || c.is_broadcast(*mask, 3, made);
}

using Check = bool (*)(const Checked&);

Formula of(Check check) {
  return [check](const StepEdit& step, const StepTypes& types) { return check({step, types}); };
}

std::map<std::string, Formula, std::less<>> made_formulas() {
  std::map<std::string, Formula, std::less<>> table = {
      {"linear", of(linear)},
      {"addmm", of([](const Checked& c) { return product(c, "mat1", "mat2", true); })},
      {"mm", of([](const Checked& c) { return product(c, "self", "mat2", false); })},
      {"bmm", of([](const Checked& c) { return product(c, "self", "mat2", false); })},
      {"matmul", of([](const Checked& c) { return product(c, "self", "other", false); })},
      {"max", of(extreme)},
      {"min", of(extreme)},
      {"layer_norm", of(norm_of_last)},
      {"rms_norm", of(norm_of_last)},
      {"batch_norm", of(norm_of_channels)},
      {"group_norm", of(norm_of_channels)},
      {"dropout", of(keeps_part)},
      {"feature_dropout", of(keeps_part)},
      {"to", of(like_another)},
      {"type_as", of(like_another)},
      {std::string(kAttention), of(attention)}};
  std::istringstream numbers{std::string(kNumberByNumber)};
  for (std::string name; numbers >> name;) table[name] = of(number_by_number);
  for (const char* name : {"softmax", "_softmax", "log_softmax", "_log_softmax", "cumsum",
                           "cumprod", "glu", "topk", "sort", "argsort"})
    table[name] = of(along);
  for (const char* name : {"sum", "mean", "amax", "amin", "prod", "var", "std", "logsumexp", "any",
                           "all", "linalg_vector_norm", "argmax", "argmin"})
    table[name] = of(reduced);
  for (const char* name : {"conv1d", "conv2d", "conv3d", "convolution"})
    table[name] = of(convolution);
  for (const char* name : {"max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool",
                           "upsample_nearest", "upsample_bilinear"}) {
    for (size_t places = 1; places <= 3; ++places) {
      table[name + std::to_string(places) + "d"] = [places](const StepEdit& step,
                                                            const StepTypes& types) {
        return on_last({step, types}, places);
      };
    }
  }
  return table;
}

}  // namespace

const std::map<std::string, Formula, std::less<>>& formulas() {
  static const std::map<std::string, Formula, std::less<>> table = made_formulas();
  return table;
}

bool moves_numbers(std::string_view name) {
  static constexpr std::string_view kNames =
      " view reshape _unsafe_view flatten unflatten transpose swapaxes t numpy_T mT permute "
      "unsqueeze squeeze "
      "select unbind slice narrow split split_with_sizes chunk expand repeat repeat_interleave cat "
      "stack roll flip index_select pad constant_pad_nd tril triu pixel_shuffle ";
  return kNames.find(' ' + std::string(name) + ' ') != std::string_view::npos;
}

bool moves_any_lengths(std::string_view name) {
  static constexpr std::string_view kNames =
      " transpose swapaxes t numpy_T mT permute unsqueeze squeeze repeat cat stack roll flip "
      "index_select tril triu ";
  return kNames.find(' ' + std::string(name) + ' ') != std::string_view::npos;
}

}  // namespace penstock::imported
