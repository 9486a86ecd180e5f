#include "penstock/train/data/image_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "penstock/frames/natural_order.h"
#include "penstock/train/data/part_names.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/table_line.h"

namespace penstock::train {

namespace fs = std::filesystem;

namespace {

using Cells = std::vector<std::string>;

constexpr std::array<std::string_view, 9> kImageColumns = {
    "file_name", "filename", "file", "path", "image", "image_id", "image_path", "id", "name"};
constexpr std::array<std::string_view, 6> kLabelColumns = {"label",    "labels", "class",
                                                           "category", "target", "class_name"};
constexpr std::array<std::string_view, 4> kPartColumns = {"split", "part", "set", "subset"};

std::optional<size_t> column(const Cells& header, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    for (size_t c = 0; c < header.size(); ++c) {
      std::string found = header[c];
      std::transform(found.begin(), found.end(), found.begin(),
                     [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
      if (found == name) return c;
    }
  }
  return std::nullopt;
}

struct Row {
  std::string image;
  std::string label;
  std::string part;
};

std::vector<Row> rows_of_table(const fs::path& table) {
  const std::string content = read_file(table);
  const std::string place = printable(table.string());
  std::string_view text = content;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::string_view first = text.substr(0, text.find('\n'));
  const char separator =
      first.find('\t') != std::string_view::npos ? '\t'
      : first.find(',') == std::string_view::npos && first.find(';') != std::string_view::npos
          ? ';'
          : ',';
  const Cells header = take_table_line(text, separator);
  auto image = column(header, kImageColumns);
  auto label = column(header, kLabelColumns);
  const auto part = column(header, kPartColumns);
  if (header.size() == 2 && (!image || !label)) {
    image = 0;
    label = 1;
  }
  if (!image || !label) {
    throw ParseError(place, 1,
                     fmt::format("expected columns of images and labels, such as filename and "
                                 "label, found {}",
                                 printable(fmt::format("{}", fmt::join(header, ", ")))));
  }
  std::vector<Row> rows;
  for (int64_t line = 2; !text.empty(); ++line) {
    Cells cells = take_table_line(text, separator);
    if (cells.size() == 1 && cells.front().empty()) continue;
    if (cells.size() != header.size()) {
      throw ParseError(place, static_cast<int>(line),
                       fmt::format("expected {} columns, found {}", header.size(), cells.size()));
    }
    rows.push_back({std::move(cells[*image]), std::move(cells[*label]), part ? cells[*part] : ""});
  }
  if (rows.empty()) throw ParseError(place, 1, "the table has no images");
  return rows;
}

/// -1: it is no class.
int32_t class_number(const std::string& label) {
  constexpr int32_t kMostClasses = 1'000'000;
  int32_t number = -1;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), number);
  const bool is_whole = error == std::errc() && end == label.data() + label.size();
  return is_whole && number >= 0 && number < kMostClasses ? number : -1;
}

std::vector<std::string> classes_of_rows(const std::vector<Row>& rows, ClassOrder order) {
  std::set<std::string> labels;
  int32_t most = 0;
  bool are_numbers = true;
  for (const Row& row : rows) {
    if (!labels.insert(row.label).second) continue;
    const int32_t number = class_number(row.label);
    are_numbers = are_numbers && number >= 0 && fmt::to_string(number) == row.label;
    most = std::max(most, number);
  }
  std::vector<std::string> classes(labels.begin(), labels.end());
  if (are_numbers) {
    classes.clear();
    for (int32_t c = 0; c <= most; ++c) classes.push_back(fmt::to_string(c));
  } else if (order == ClassOrder::Numbers) {
    std::sort(classes.begin(), classes.end(), frames::is_naturally_before);
  }
  return classes;
}

/// Images by their path below a folder, by their name, and by this without its ending.
class ImageNames {
 public:
  explicit ImageNames(const std::vector<std::string>& paths) : paths_(paths.begin(), paths.end()) {
    for (const std::string& path : paths) {
      const fs::path name = fs::path(path).filename();
      add(name.string(), path);
      add(name.stem().string(), path);
    }
  }
  /// Empty: there is none, or several.
  std::string find(const std::string& name) const {
    std::string path = fs::path(name).lexically_normal().string();
    if (paths_.contains(path)) return path;
    const auto found = names_.find(path);
    return found == names_.end() ? "" : found->second;
  }

 private:
  void add(const std::string& name, const std::string& path) {
    const auto [there, is_new] = names_.emplace(name, path);
    if (!is_new && there->second != path) there->second.clear();
  }

  std::unordered_set<std::string> paths_;
  std::unordered_map<std::string, std::string> names_;
};

/// The first names of what lacks.
class Missing {
 public:
  void add(const std::string& name) {
    if (++count_ <= kMost) names_ += (names_.empty() ? "'" : ", '") + printable(name) + "'";
  }
  bool is_any() const { return count_ > 0; }
  std::string text() const { return names_ + (count_ > kMost ? ", ..." : ""); }
  int64_t count() const { return count_; }

 private:
  static constexpr int64_t kMost = 5;
  int64_t count_ = 0;
  std::string names_;
};

/// Reads the rows of one table into its parts.
class TableReader {
 public:
  TableReader(const fs::path& table, ClassOrder order, const std::vector<std::string>& classes)
      : table_(table), rows_(rows_of_table(table)) {
    result_.train.classes = classes.empty() ? classes_of_rows(rows_, order) : classes;
    for (const std::string& name : result_.train.classes)
      numbers_.emplace(name, static_cast<int32_t>(numbers_.size()));
  }

  ImageTable read() {
    LeftOut& left_out = result_.train.left_out;
    const fs::path folder = table_.has_parent_path() ? table_.parent_path() : ".";
    const std::vector<std::string> paths = images_below(folder, left_out);
    left_out.add(printable(table_.extension().string()), -1);  // the table itself
    const ImageNames names(paths);
    for (const Row& row : rows_) sort_in(row, names.find(row.image));
    refuse_if_any(images_, fmt::format("of {} rows name no image, or several, below its folder:",
                                       rows_.size()));
    refuse_if_any(labels_, "rows have a class that the training images have not:");
    const auto unnamed = std::ssize(paths) - std::ssize(rows_);
    if (unnamed > 0) left_out.add("images without a row", unnamed);
    for (auto& [part, found] : parts_) use(part, found);
    if (result_.train.images.empty())
      throw ConfigError(fmt::format("{}: no row is a training image", printable(table_.string())));
    result_.test.classes = result_.train.classes;
    return std::move(result_);
  }

 private:
  struct PartOfTable {
    std::string name;
    std::vector<ImageTree::Image> images;
  };

  void sort_in(const Row& row, const std::string& path) {
    const auto number = numbers_.find(row.label);
    const auto part = row.part.empty() ? std::optional(Part::Train) : part_named(row.part);
    if (path.empty()) images_.add(row.image);
    if (number == numbers_.end()) labels_.add(row.label);
    if (!part) result_.train.left_out.add(fmt::format("of '{}'", printable(row.part)));
    if (path.empty() || number == numbers_.end() || !part) return;
    parts_[*part].name = row.part;
    parts_[*part].images.push_back({number->second, path});
  }
  void use(Part part, PartOfTable& found) {
    if (part == Part::Train) {
      result_.train.images = std::move(found.images);
    } else if (result_.test.images.empty()) {
      result_.test.images = std::move(found.images);
      result_.test_from = found.name;
    } else {
      result_.train.left_out.add(fmt::format("of the part {}", printable(found.name)),
                                 std::ssize(found.images));
    }
  }
  void refuse_if_any(const Missing& missing, const std::string& what) const {
    if (!missing.is_any()) return;
    throw ConfigError(fmt::format("{}: {} {} {}", printable(table_.string()), missing.count(), what,
                                  missing.text()));
  }

  const fs::path& table_;
  std::vector<Row> rows_;
  std::map<std::string, int32_t> numbers_;
  std::map<Part, PartOfTable> parts_;
  Missing images_;
  Missing labels_;
  ImageTable result_;
};

}  // namespace

ImageTable read_image_table(const fs::path& table, ClassOrder order,
                            const std::vector<std::string>& classes) {
  return TableReader(table, order, classes).read();
}

}  // namespace penstock::train
