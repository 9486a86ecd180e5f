#include "tools/penstock/command/run_file_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "penstock/options/run_file.h"
#include "penstock/util/error.h"
#include "tools/penstock/command/command.h"

namespace penstock::tool {

namespace {

using options::FileOption;
using options::RowOf;

/// What a command line has, as far as a run file needs to know.
struct Given {
  std::vector<std::string_view> rows;
  std::optional<std::string> config;

  bool has(std::string_view name) const {
    return std::find(rows.begin(), rows.end(), name) != rows.end();
  }
};

/// The row that a word names, with a value behind '=' or a letter or not; null: none.
template <class Request>
const RowOf<Request>* row_named(std::string_view word) {
  for (const RowOf<Request>& row : options::rows_of<Request>()) {
    if (word.substr(0, word.find('=')) == row.name) return &row;
    if (!row.letter.empty() && word.starts_with(row.letter)) return &row;
  }
  return nullptr;
}

template <class Request>
Given given_in(const std::vector<std::string>& words) {
  Given given;
  constexpr size_t kBehindCommand = 2;
  for (size_t i = kBehindCommand; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const RowOf<Request>* row = row_named<Request>(word);
    if (row == nullptr) continue;
    given.rows.push_back(row->name);
    const size_t equals = word.find('=');
    const bool has_value = word.starts_with("--") ? equals != std::string_view::npos
                                                  : word.size() > row->letter.size();
    const bool is_config = row->name == "--config";
    if (is_config && has_value) given.config = word.substr(equals + 1);
    if (has_value || options::is_flag(*row) || i + 1 == words.size()) continue;
    // A value that need not be there is none if it is an option.
    if (row_named<Request>(words[i + 1]) != nullptr && !is_config) continue;
    ++i;
    if (is_config) given.config = words[i];
  }
  return given;
}

/// Throws ConfigError where the option does not go with another one, or lacks one.
template <class Request>
void check_together(const FileOption& option, const std::vector<FileOption>& file,
                    const Given& given, const std::string& path) {
  const auto where = [&](std::string_view name) -> std::optional<std::string> {
    if (given.has(name)) return fmt::format("{} of the command line", name);
    for (const FileOption& other : file)
      if (other.name == name) return fmt::format("'{}' in line {}", name.substr(2), other.line);
    return std::nullopt;
  };
  const auto refuse = [&](std::string_view what) {
    throw ParseError(path, option.line, fmt::format("{} {}", option.name.substr(2), what));
  };
  for (const RowOf<Request>& row : options::rows_of<Request>()) {
    const auto excludes = [](const RowOf<Request>& one, std::string_view name) {
      return std::find(one.excludes.begin(), one.excludes.end(), name) != one.excludes.end();
    };
    if (row.name == option.name && !row.needs.empty() && !where(row.needs))
      refuse(fmt::format("needs {}", row.needs.substr(2)));
    const bool apart = excludes(row, option.name);
    if (const auto place = where(row.name); apart && place)
      refuse("cannot be combined with " + *place);
    if (row.name != option.name) continue;
    for (const std::string_view other : row.excludes)
      if (const auto place = where(other)) refuse("cannot be combined with " + *place);
  }
}

template <class Request>
std::vector<std::string> expanded(const std::vector<std::string>& words) {
  const Given given = given_in<Request>(words);
  if (!given.config || given.config->empty()) return words;
  std::vector<FileOption> file = options::read_run_file<Request>(*given.config);
  // The command line wins.
  std::erase_if(file, [&](const FileOption& option) { return given.has(option.name); });
  std::vector<std::string> all(words.begin(), words.begin() + 2);
  for (const FileOption& option : file) {
    check_together<Request>(option, file, given, *given.config);
    all.push_back(option.value.empty() ? std::string(option.name)
                                       : fmt::format("{}={}", option.name, option.value));
  }
  all.insert(all.end(), words.begin() + 2, words.end());
  return all;
}

struct Reader {
  std::string_view command;
  std::vector<std::string> (*expand)(const std::vector<std::string>& words);
};
constexpr std::array<Reader, 3> kReaders = {{{"train", expanded<options::TrainRequest>},
                                             {"stream", expanded<options::StreamRequest>},
                                             {"profile", expanded<options::ProfileRequest>}}};

}  // namespace

std::vector<std::string> with_run_file(const std::vector<std::string>& words) {
  if (words.size() < 2) return words;
  for (const Reader& reader : kReaders)
    if (words[1] == reader.command) return reader.expand(words);
  return words;
}

template <class Request>
void print_run_file(const Request& request, const CLI::App& app) {
  if (is_later_rank()) return;
  write_output("", options::run_file_text(request, given_rows<Request>(app)));
}

template void print_run_file(const options::TrainRequest& request, const CLI::App& app);
template void print_run_file(const options::StreamRequest& request, const CLI::App& app);
template void print_run_file(const options::ProfileRequest& request, const CLI::App& app);

}  // namespace penstock::tool
