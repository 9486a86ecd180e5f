#include "penstock/train/data/array_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "penstock/train/data/part_names.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {
namespace {

constexpr std::array<std::string_view, 5> kTargetNames = {"targets", "target", "labels", "label",
                                                          "y"};

struct PartOfName {
  Part part;
  std::string word;
  std::string rest;
};

/// "x_train" and "train_x": the part train, and x.
std::optional<PartOfName> split(const std::string& name) {
  const size_t first = name.find('_');
  if (first == std::string::npos) return std::nullopt;
  const size_t last = name.rfind('_');
  if (const auto part = part_named(name.substr(last + 1)))
    return PartOfName{*part, name.substr(last + 1), name.substr(0, last)};
  if (const auto part = part_named(name.substr(0, first)))
    return PartOfName{*part, name.substr(0, first), name.substr(first + 1)};
  return std::nullopt;
}

}  // namespace

ArrayParts array_parts(const Npz& file) {
  std::map<Part, NamedArrays> parts;
  std::map<Part, std::string> words;
  ArrayParts found;
  for (const auto& [name, header] : file.arrays()) {
    if (const auto named = split(name)) {
      parts[named->part][named->rest] = name;
      words[named->part] = named->word;
    }
  }
  if (!parts.contains(Part::Train)) {
    for (const auto& [name, header] : file.arrays()) found.train[name] = name;
    return found;
  }
  found.train = parts[Part::Train];
  for (const auto& [part, arrays] : parts) {
    if (part == Part::Train) continue;
    if (found.test.empty()) {
      found.test = arrays;
      found.test_from = words[part];
    } else {
      found.left_out.add(fmt::format("arrays of the part {}", printable(words[part])),
                         std::ssize(arrays));
    }
  }
  const auto without_part = std::count_if(file.arrays().begin(), file.arrays().end(),
                                          [](const auto& array) { return !split(array.first); });
  if (without_part > 0) found.left_out.add("arrays of no part", without_part);
  return found;
}

ArrayChoice::ArrayChoice(const DataSpec& spec, Npz& file, NamedArrays arrays)
    : spec_(spec), file_(file), all_(arrays), left_(std::move(arrays)) {
  for (const model::InputSpec& input : spec.sample.inputs) inputs_.push_back(taken(input.name));
  targets_ = the_targets();
  if (inputs_.size() == 1 && inputs_.front().empty()) {
    inputs_.front() = the_input_left();
    std::erase_if(left_, [&](const auto& array) { return array.second == inputs_.front(); });
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const model::InputSpec& input = spec.sample.inputs[i];
    if (inputs_[i].empty()) refuse(fmt::format("'{}'", printable(input.name)));
    check(printable(input.name), inputs_[i], input.type, input.shape);
  }
  if (!spec.sample.targets.needed) return;
  if (targets_.empty()) refuse("of targets ('targets', 'labels' or 'y')");
  check("targets", targets_, spec.sample.targets.type, spec.sample.targets.shape);
}

std::string ArrayChoice::taken(std::string_view name) {
  const auto found = left_.find(std::string(name));
  if (found == left_.end()) return {};
  std::string array = std::move(found->second);
  left_.erase(found);
  return array;
}

std::string ArrayChoice::the_input_left() const {
  if (left_.size() == 1) return left_.begin()->second;
  const model::InputSpec& input = spec_.sample.inputs.front();
  std::vector<std::string> fitting;
  for (const auto& [name, array] : left_) {
    const ArrayHeader& header = file_.arrays().at(array);
    if (header.trouble.empty() &&
        array_misfit(name, header.type.becomes, header.sizes, input.type, input.shape).empty())
      fitting.push_back(array);
  }
  return fitting.size() == 1 ? fitting.front() : "";
}

std::string ArrayChoice::the_targets() {
  std::string targets;
  std::string_view named;
  for (const std::string_view name : kTargetNames) {
    std::string found = taken(name);
    if (found.empty()) continue;
    if (!targets.empty() && spec_.sample.targets.needed) {
      throw ConfigError(
          fmt::format("expected one array of targets, found '{}' and '{}', which both might be; "
                      "the file has {}",
                      named, name, file_has()));
    }
    targets = std::move(found);
    named = name;
  }
  return spec_.sample.targets.needed ? targets : "";
}

void ArrayChoice::check(const std::string& name, const std::string& array, at::ScalarType type,
                        const model::Shape& shape) const {
  const ArrayHeader& header = file_.arrays().at(array);
  if (!header.trouble.empty()) throw ConfigError(header.trouble);
  const std::string why = array_misfit(name, header.type.becomes, header.sizes, type, shape);
  if (!why.empty()) throw ConfigError(why);
  const ArrayHeader& first = file_.arrays().at(inputs_.front());
  if (header.sizes.front() == first.sizes.front()) return;
  throw ConfigError(fmt::format("the array '{}' has {} samples, '{}' has {}", name,
                                header.sizes.front(), printable(spec_.sample.inputs.front().name),
                                first.sizes.front()));
}

void ArrayChoice::refuse(const std::string& what) const {
  throw ConfigError(
      fmt::format("there is no array {}; the model and its loss take {}; the file "
                  "has {}",
                  what, describe(spec_.sample), file_has()));
}

std::string ArrayChoice::file_has() const {
  std::string text;
  for (const auto& [name, array] : all_) {
    const ArrayHeader& header = file_.arrays().at(array);
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", printable(name),
                        header.trouble.empty() ? describe(header.type.becomes, header.sizes)
                                               : "no array of numbers");
  }
  return text.empty() ? "none" : text;
}

int64_t ArrayChoice::memory() const {
  int64_t bytes = targets_.empty() ? 0 : file_.memory_for(targets_);
  for (const std::string& input : inputs_) bytes = saturating_add(bytes, file_.memory_for(input));
  return bytes;
}

std::shared_ptr<const TensorDataset> ArrayChoice::read(const std::string& name) {
  std::vector<StoredArray> inputs;
  for (const std::string& input : inputs_) inputs.push_back(file_.read(input));
  return std::make_shared<TensorDataset>(name, spec_.sample, std::move(inputs),
                                         targets_.empty() ? StoredArray() : file_.read(targets_),
                                         spec_.ignore_index);
}

LeftOut ArrayChoice::left_out() const {
  LeftOut left;
  for (const auto& [name, array] : left_) left.add(fmt::format("array '{}'", printable(array)));
  return left;
}

}  // namespace penstock::train
