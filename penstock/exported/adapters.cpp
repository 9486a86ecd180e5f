#include "penstock/exported/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/near_names.h"
#include "penstock/util/text/printable.h"

namespace penstock::exported {

namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kLinear = "torch.ops.aten.linear.default";
constexpr std::string_view kAddmm = "torch.ops.aten.addmm.default";

/// Whether the text is the pattern, in which * stands for any characters.
bool fits(std::string_view text, std::string_view pattern) {
  size_t t = 0;
  size_t p = 0;
  size_t star = std::string_view::npos;
  size_t after = 0;  // where the text behind the last star begins
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

/// Whether the target means the module: its path, or the end of it.
bool means(const std::string& target, const std::string& path) {
  return fits(path, target) || fits(path, "*." + target);
}

/// sympy's text.
std::string text_of(const SymbolicInt& size) {
  return size.is_number() ? fmt::format("Integer({})", size.value) : size.expression;
}

SymbolicInt times(const SymbolicInt& a, const SymbolicInt& b) {
  SymbolicInt product{.value = saturating_mul(a.value, b.value)};
  if (!a.is_number() || !b.is_number())
    product.expression = fmt::format("Mul({}, {})", text_of(a), text_of(b));
  return product;
}

/// Of a tensor without gaps.
TensorMeta contiguous(ScalarType type, std::vector<SymbolicInt> sizes) {
  TensorMeta meta{.type = type,
                  .sizes = std::move(sizes),
                  .strides = {},
                  .storage_offset = {},
                  .device = {.type = "cpu"}};
  meta.strides.assign(meta.sizes.size(), {.value = 1});
  for (size_t d = meta.sizes.size(); d-- > 1;)
    meta.strides[d - 1] = times(meta.strides[d], meta.sizes[d]);
  return meta;
}

/// A module whose weight is multiplied with.
struct Product {
  std::string path;
  std::string weight;    ///< in the graph
  bool is_tied = false;  ///< other modules read the weight, too
  bool transposed = false;
  int64_t in = 0;
  int64_t out = 0;
};

/// What a product with a matrix reads and makes, by their names in the graph.
struct Operands {
  std::string input;
  std::string weight;
  std::string result;
};

/// Nothing: it is none.
std::optional<Operands> operands_of(const Node& node, const Graph& graph) {
  const bool is_linear = node.target == kLinear && node.inputs.size() >= 2;
  const bool is_addmm = node.target == kAddmm && node.inputs.size() == 3;
  if ((!is_linear && !is_addmm) || node.outputs.size() != 1) return std::nullopt;
  const size_t first = is_linear ? 0 : 1;
  const auto* input = std::get_if<TensorArgument>(&node.inputs[first].value);
  const auto* weight = std::get_if<TensorArgument>(&node.inputs[first + 1].value);
  const auto* result = std::get_if<TensorArgument>(&node.outputs.front());
  if (input == nullptr || weight == nullptr || result == nullptr) return std::nullopt;
  const auto is_known = [&](const std::string& name) {
    const auto meta = graph.tensors.find(name);
    return meta != graph.tensors.end() && !meta->second.sizes.empty();
  };
  if (!is_known(input->name) || !is_known(result->name)) return std::nullopt;
  const auto matrix = graph.tensors.find(weight->name);
  const bool is_matrix = matrix != graph.tensors.end() && matrix->second.sizes.size() == 2 &&
                         matrix->second.sizes[0].is_number() && matrix->second.sizes[1].is_number();
  if (!is_matrix) return std::nullopt;
  return Operands{input->name, weight->name, result->name};
}

class AdapterMaker {
 public:
  AdapterMaker(Program& program, const AdapterSpec& spec) : program_(program), spec_(spec) {
    for (const InputRole& role : program_.inputs) {
      const auto* tensor = std::get_if<TensorArgument>(&role.argument);
      if (role.kind == InputRole::Kind::Parameter && tensor != nullptr)
        parameters_[tensor->name] = role.name;
    }
  }

  Adapted run() {
    for (const auto& [name, key] : parameters_) {
      if (key.find(".lora_A.") != std::string::npos)
        fail(fmt::format("it has adapters already ('{}')", printable(key)));
    }
    if (spec_.rank < 1) fail(fmt::format("the rank must be at least 1, found {}", spec_.rank));
    if (!std::isfinite(spec_.alpha)) fail("alpha must be a number");
    find_products();
    Adapted adapted;
    for (const std::string& path : chosen()) {
      const Product& product = products_.at(path);
      check(product);
      adapted.modules.push_back(path);
      adapted.has_transposed = adapted.has_transposed || product.transposed;
      adapted_[product.weight] = &product;
    }
    freeze();
    rewrite();
    return adapted;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(
        fmt::format("'{}' cannot be given adapters: {}", printable(program_.path), why));
  }

  void find_products() {
    std::map<std::string, std::string> others;  // by weight: of another operator
    for (const Node& node : program_.graph.nodes) {
      const auto operands = operands_of(node, program_.graph);
      for (const NamedArgument& input : node.inputs) {
        for (const std::string& name : tensor_names(input.value)) {
          const auto found = parameters_.find(name);
          if (found == parameters_.end()) continue;
          if (operands && name == operands->weight && name != operands->input)
            add_product(node, name, found->second);
          else
            others.emplace(name, node.target);
        }
      }
    }
    for (auto& [path, product] : products_)
      product.is_tied = product.is_tied || others.contains(product.weight);
    for (const auto& [name, target] : others) {
      const std::string& key = parameters_.at(name);
      if (key.ends_with(kWeight)) others_[key.substr(0, key.size() - kWeight.size())] = target;
    }
  }

  void add_product(const Node& node, const std::string& weight, const std::string& key) {
    if (!key.ends_with(kWeight)) return;
    const std::vector<SymbolicInt>& sizes = program_.graph.tensors.at(weight).sizes;
    Product product{.path = key.substr(0, key.size() - kWeight.size()),
                    .weight = weight,
                    .transposed = node.target == kAddmm,
                    .in = sizes[1].value,
                    .out = sizes[0].value};
    if (product.transposed) std::swap(product.in, product.out);
    const std::string module = node.modules.empty() ? product.path : node.modules.back().path;
    if (products_.emplace(product.path, product).second) order_.push_back(product.path);
    if (module == product.path) return;
    products_.at(product.path).is_tied = true;
    borrowers_[module] = product.path;
  }

  /// The paths that the targets mean, in the order of the program.
  std::vector<std::string> chosen() const {
    if (spec_.targets.empty()) fail("expected targets, found none");
    std::set<std::string> wanted;
    for (const std::string& target : spec_.targets) {
      bool found = false;
      for (const std::string& path : order_) {
        const bool is_meant = target == kAllLinear
                                  ? path != order_.back() && !products_.at(path).is_tied
                                  : means(target, path);
        if (!is_meant) continue;
        wanted.insert(path);
        found = true;
      }
      if (!found) refuse(target);
      if (target != kAllLinear && target.find('*') == std::string::npos) check_others(target);
    }
    std::vector<std::string> paths;
    std::copy_if(order_.begin(), order_.end(), std::back_inserter(paths),
                 [&](const std::string& path) { return wanted.contains(path); });
    return paths;
  }

  /// A target that means no product.
  [[noreturn]] void refuse(const std::string& target) const {
    if (target == kAllLinear) fail("it has no linear modules beside the last one");
    check_others(target);
    for (const auto& [module, owner] : borrowers_) {
      if (means(target, module)) {
        fail(fmt::format("'{}' has the weight of '{}' (they are tied)", printable(module),
                         printable(owner)));
      }
    }
    std::set<std::string> names;
    for (const std::string& path : order_) names.insert(path.substr(path.rfind('.') + 1));
    fail(fmt::format("the target '{}' means none of its {} linear modules; there are {}",
                     printable(target), order_.size(),
                     fmt::join(near_names(target, {names.begin(), names.end()}), ", ")));
  }

  /// PEFT would give those adapters, too.
  void check_others(const std::string& target) const {
    for (const auto& [path, reader] : others_) {
      if (!means(target, path) || products_.contains(path)) continue;
      fail(
          fmt::format("the target '{}' means '{}', whose weight {} reads: expected linear modules "
                      "alone",
                      printable(target), printable(path), printable(reader)));
    }
  }

  void check(const Product& product) const {
    if (product.is_tied) {
      fail(fmt::format("the weight of '{}' is read elsewhere, too (it is tied): leave it out",
                       printable(product.path)));
    }
    const int64_t most = std::min(product.in, product.out);
    if (spec_.rank > most) {
      fail(
          fmt::format("the rank {} is more than that of the weight of '{}', {} x {}: expected 1 "
                      "to {}",
                      spec_.rank, printable(product.path), product.out, product.in, most));
    }
    const ScalarType type = program_.graph.tensors.at(product.weight).type;
    if (type != ScalarType::Float && !is_short_float(type)) {
      fail(fmt::format("the weight of '{}' is {}: expected float32 or 16 bits",
                       printable(product.path), to_string(type)));
    }
  }

  void freeze() {
    for (const auto& [name, key] : parameters_) {
      if (const auto stored = program_.tensors.find(key); stored != program_.tensors.end())
        stored->second.meta.requires_grad = false;
    }
  }

  /// A name that the graph has not.
  std::string unused(std::string name) const {
    while (program_.graph.tensors.contains(name)) name += '_';
    return name;
  }

  /// Returns its name in the graph.
  std::string add_parameter(const std::string& path, char letter, int64_t rows, int64_t columns,
                            double bound) {
    std::string name = fmt::format("p_{}_lora_{}", path, letter);
    std::replace(name.begin(), name.end(), '.', '_');
    name = unused(name);
    TensorMeta meta = contiguous(ScalarType::Float, {{.value = rows}, {.value = columns}});
    meta.requires_grad = true;
    program_.graph.tensors.emplace(name, meta);
    const std::string key = fmt::format("{}{}.lora_{}.weight", kPrefix, path, letter);
    program_.graph.inputs.emplace_back(TensorArgument{name});
    program_.inputs.push_back(
        {.kind = InputRole::Kind::Parameter, .argument = TensorArgument{name}, .name = key});
    program_.tensors.emplace(key, StoredTensor{.meta = std::move(meta),
                                               .is_parameter = true,
                                               .name = key,
                                               .in_state_dict = true,
                                               .begins_within = bound});
    return name;
  }

  void rewrite() {
    std::vector<Node> nodes;
    for (Node& node : program_.graph.nodes) {
      const auto operands = operands_of(node, program_.graph);
      const auto found = operands ? adapted_.find(operands->weight) : adapted_.end();
      if (found == adapted_.end())
        nodes.push_back(std::move(node));
      else
        adapt(std::move(node), *operands, *found->second, nodes);
    }
    program_.graph.nodes = std::move(nodes);
  }

  /// A node after `like`, in a module below its own. Returns what it makes.
  std::string add_node(const Node& like, const std::string& child, const std::string& target,
                       std::vector<NamedArgument> inputs, TensorMeta made,
                       std::vector<Node>& nodes) {
    const std::string suffix = child.empty() ? target.substr(15, target.find('.', 15) - 15) : child;
    Node node{.target = target,
              .inputs = std::move(inputs),
              .outputs = {TensorArgument{unused(fmt::format("{}_{}", like.name, suffix))}},
              .stack_trace = like.stack_trace,
              .modules = like.modules};
    node.name = std::get<TensorArgument>(node.outputs.front()).name;
    if (!child.empty()) {
      const std::string path = like.modules.empty() ? "" : like.modules.back().path + ".";
      node.modules.push_back({path + child, "torch.nn.modules.linear.Linear"});
    }
    program_.graph.tensors.emplace(node.name, std::move(made));
    nodes.push_back(std::move(node));
    return nodes.back().name;
  }

  std::string cast(const Node& like, const std::string& value, ScalarType type,
                   std::vector<Node>& nodes) {
    TensorMeta meta = program_.graph.tensors.at(value);
    if (meta.type == type) return value;
    meta.type = type;
    return add_node(like, "", "torch.ops.aten.to.dtype",
                    {{"self", TensorArgument{value}}, {"dtype", type}}, std::move(meta), nodes);
  }

  /// As peft.tuners.lora.Linear.forward: product + B(A(x)) * scale, which takes the place of the
  /// product.
  void adapt(Node node, const Operands& operands, const Product& product,
             std::vector<Node>& nodes) {
    const auto [known, is_new] = weights_.try_emplace(product.path);
    if (is_new) {
      const double bound = 1 / std::sqrt(static_cast<double>(product.in));
      known->second = {add_parameter(product.path, 'A', spec_.rank, product.in, bound),
                       add_parameter(product.path, 'B', product.out, spec_.rank, 0)};
    }
    const auto [a, b] = known->second;
    const std::string& result = operands.result;
    const TensorMeta whole = program_.graph.tensors.at(result);
    const Node like = node;
    const std::string base = unused(result + "_base");
    program_.graph.tensors.emplace(base, whole);
    node.outputs.front() = TensorArgument{base};
    nodes.push_back(std::move(node));

    const std::string x = cast(like, operands.input, ScalarType::Float, nodes);
    std::vector<SymbolicInt> sizes = program_.graph.tensors.at(x).sizes;
    const auto times_weight = [&](const std::string& child, const std::string& value,
                                  const std::string& weight, int64_t columns) {
      sizes.back() = {.value = columns};
      return add_node(like, child, std::string(kLinear),
                      {{"input", TensorArgument{value}}, {"weight", TensorArgument{weight}}},
                      contiguous(ScalarType::Float, sizes), nodes);
    };
    std::string made = times_weight("lora_A", x, a, spec_.rank);
    made = times_weight("lora_B", made, b, product.out);
    const double scale = spec_.alpha / static_cast<double>(spec_.rank);
    const TensorMeta wide = contiguous(ScalarType::Float, sizes);
    if (scale != 1) {
      made = add_node(like, "", "torch.ops.aten.mul.Tensor",
                      {{"self", TensorArgument{made}}, {"other", scale}}, wide, nodes);
    }
    made = add_node(like, "", "torch.ops.aten.add.Tensor",
                    {{"self", TensorArgument{base}}, {"other", TensorArgument{made}}}, wide, nodes);
    cast(like, made, whole.type, nodes);
    nodes.back().outputs.front() = TensorArgument{result};
  }

  Program& program_;
  const AdapterSpec& spec_;
  std::map<std::string, std::string> parameters_;  ///< names in the graph -> in the module
  std::map<std::string, Product> products_;        ///< by path
  std::vector<std::string> order_;                 ///< paths of products, as the program has them
  std::map<std::string, std::string> others_;      ///< paths of weights that others read, and who
  std::map<std::string, std::string> borrowers_;   ///< modules that have the weight of another
  std::map<std::string, const Product*> adapted_;  ///< by weight
  std::map<std::string, std::pair<std::string, std::string>> weights_;  ///< A and B, by path
};

}  // namespace

std::vector<std::string> parse_adapter_targets(const std::string& text) {
  std::vector<std::string> targets;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    targets.push_back(text.substr(at, end - at));
    if (targets.back().empty()) {
      throw ConfigError(fmt::format(
          "expected names of modules with commas between them, such as q_proj,v_proj, found '{}'",
          printable(text)));
    }
    at = end + 1;
  }
  return targets;
}

Adapted add_adapters(Program& program, const AdapterSpec& spec) {
  return AdapterMaker(program, spec).run();
}

}  // namespace penstock::exported
