#include "penstock/train/data/image_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "penstock/frames/natural_order.h"
#include "penstock/frames/opencv/image_decoder.h"
#include "penstock/train/data/part_names.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace fs = std::filesystem;

namespace {

/// No one sorts images so deep; a link that leads back to itself does.
constexpr int kDeepest = 32;

std::string quoted(const fs::path& path) { return fmt::format("'{}'", printable(path.string())); }

/// Calls visit(entry, name) for each entry of the folder.
template <class Visit>
void each_entry(const fs::path& folder, int depth, const Visit& visit) {
  if (depth > kDeepest) {
    throw ConfigError(fmt::format("folder {} lies deeper than {} folders: does a link lead back?",
                                  quoted(folder), kDeepest));
  }
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error))
    visit(*entry, entry->path().filename().string());
  if (error)
    throw ConfigError(fmt::format("cannot read folder {}: {}", quoted(folder), error.message()));
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_directory(ignored);
}

/// Why an entry is none that people sort; empty: it is one.
std::string clutter(const std::string& name) {
  if (name.starts_with('.')) return "hidden";
  return name == "__MACOSX" ? name : "";
}

/// What a file is that is no image.
std::string kind_of_file(const fs::directory_entry& entry, const std::string& name) {
  std::error_code ignored;
  if (!entry.is_regular_file(ignored)) return "no files (broken links, pipes)";
  const std::string ending = fs::path(name).extension().string();
  return ending.empty() ? "without an ending" : printable(ending);
}

/// The images below a folder, as (folder, name); what else is there.
using Found = std::vector<std::pair<std::string, std::string>>;
void find_images(const fs::path& folder, const std::string& below, int depth, Found& found,
                 LeftOut& left_out) {
  each_entry(folder, depth, [&](const fs::directory_entry& entry, const std::string& name) {
    std::error_code ignored;
    if (const std::string why = clutter(name); !why.empty())
      left_out.add(why);
    else if (is_folder(entry))
      find_images(entry.path(), below + "/" + name, depth + 1, found, left_out);
    else if (frames::is_image_name(name) && entry.is_regular_file(ignored))
      found.emplace_back(below, name);
    else
      left_out.add(kind_of_file(entry, name));
  });
}

/// Looks no further than the first one.
bool holds_images(const fs::path& folder, int depth) {
  bool found = false;
  std::vector<fs::path> below;
  each_entry(folder, depth, [&](const fs::directory_entry& entry, const std::string& name) {
    std::error_code ignored;
    if (found || !clutter(name).empty()) return;
    if (is_folder(entry))
      below.push_back(entry.path());
    else
      found = frames::is_image_name(name) && entry.is_regular_file(ignored);
  });
  return found || std::any_of(below.begin(), below.end(), [&](const fs::path& inner) {
           return holds_images(inner, depth + 1);
         });
}

/// The folders in a folder that may be classes, and what else is there.
std::vector<std::string> folders_in(const fs::path& folder, LeftOut& left_out) {
  std::vector<std::string> names;
  each_entry(folder, 0, [&](const fs::directory_entry& entry, const std::string& name) {
    if (const std::string why = clutter(name); !why.empty())
      left_out.add(why);
    else if (is_folder(entry))
      names.push_back(name);
    else
      left_out.add(frames::is_image_name(name) ? "images beside the folders of classes"
                                               : kind_of_file(entry, name));
  });
  std::sort(names.begin(), names.end());
  return names;
}

/// Adds the images of a class, as torchvision orders them; how many there were.
size_t add_class(const fs::path& folder, const std::string& name, size_t label, ImageTree& tree) {
  Found found;
  find_images(folder / name, name, 1, found, tree.left_out);
  std::sort(found.begin(), found.end());
  for (const auto& [below, image] : found)
    tree.images.push_back({static_cast<int32_t>(label), below + "/" + image});
  return found.size();
}

/// The folders with images in a folder, as parts and others; see FolderParts.
class PartsOf {
 public:
  explicit PartsOf(const fs::path& folder) : folder_(folder) {
    for (const std::string& name : folders_in(folder, left_out_)) {
      const std::optional<Part> part = part_named(name);
      if (!holds_images(folder / name, 1))
        left_out_.add("folders without images");
      else if (part)
        parts_.emplace_back(*part, name);
      else
        others_.push_back(name);
    }
    std::sort(parts_.begin(), parts_.end());
  }

  FolderParts found() const {
    const auto trains = std::count_if(parts_.begin(), parts_.end(),
                                      [](const auto& part) { return part.first == Part::Train; });
    const bool are_mixed = trains > 0 && trains < std::ssize(parts_);
    if (parts_.empty() || (!others_.empty() && !are_mixed))
      return {.train = folder_, .test = {}, .left_out = {}};  // classes
    if (trains != 1 || !others_.empty()) refuse();
    FolderParts result{.train = folder_ / parts_.front().second, .test = {}, .left_out = left_out_};
    for (const auto& [part, name] : parts_) {
      LeftOut ignored;
      if (part == Part::Train) continue;
      if (folders_in(folder_ / name, ignored).empty())
        result.left_out.add(printable(name) + "/ (it has no folders of classes)");
      else if (result.test.empty())
        result.test = folder_ / name;
      else
        result.left_out.add(printable(name) + "/ (another part is the test set)");
    }
    return result;
  }

 private:
  [[noreturn]] void refuse() const {
    std::vector<std::string> names = others_;
    for (const auto& [part, name] : parts_) names.push_back(name);
    throw ConfigError(
        fmt::format("folder {} has the folders {}, which may be classes or parts of the data: "
                    "expected one called train with test or val, or folders of classes only; name "
                    "the training and the test folder each by itself",
                    quoted(folder_), printable(fmt::format("{}", fmt::join(names, ", ")))));
  }

  const fs::path& folder_;
  std::vector<std::pair<Part, std::string>> parts_;
  std::vector<std::string> others_;
  LeftOut left_out_;
};

}  // namespace

FolderParts folder_parts(const fs::path& folder) { return PartsOf(folder).found(); }

std::vector<std::string> images_below(const fs::path& folder, LeftOut& left_out) {
  Found found;
  find_images(folder, "", 0, found, left_out);
  std::vector<std::string> paths;
  for (const auto& [below, name] : found)
    paths.push_back(below.empty() ? name : below.substr(1) + "/" + name);
  std::sort(paths.begin(), paths.end());
  return paths;
}

ImageTree read_image_tree(const fs::path& folder, ClassOrder order) {
  ImageTree tree;
  tree.classes = folders_in(folder, tree.left_out);
  if (tree.classes.empty()) {
    throw ConfigError(
        fmt::format("folder {} has no folders in it: expected one per class, which holds its "
                    "images; or name a table of images and labels (FILE.csv) instead",
                    quoted(folder)));
  }
  if (order == ClassOrder::Numbers)
    std::sort(tree.classes.begin(), tree.classes.end(), frames::is_naturally_before);
  std::vector<std::string> empty;
  for (size_t label = 0; label < tree.classes.size(); ++label) {
    const std::string& name = tree.classes[label];
    if (add_class(folder, name, label, tree) == 0) empty.push_back(printable(name));
  }
  if (empty.empty()) return tree;
  throw ConfigError(fmt::format(
      "the folders in {} are the classes, and of these '{}' {} no images{}; expected files that "
      "end with {}. Move what is no class elsewhere",
      quoted(folder), fmt::join(empty, "', '"), empty.size() == 1 ? "holds" : "hold",
      tree.left_out.text().empty() ? "" : " (found " + tree.left_out.text() + ")",
      frames::image_endings()));
}

ImageTree read_image_tree(const fs::path& folder, const std::vector<std::string>& classes) {
  ImageTree tree;
  tree.classes = classes;
  for (const std::string& name : folders_in(folder, tree.left_out)) {
    const auto known = std::find(classes.begin(), classes.end(), name);
    const auto label = static_cast<size_t>(known - classes.begin());
    if (add_class(folder, name, label, tree) > 0 && known == classes.end()) {
      throw ConfigError(fmt::format("folder {} has a class '{}' that the training images have not",
                                    quoted(folder), printable(name)));
    }
  }
  if (!tree.images.empty()) return tree;
  throw ConfigError(fmt::format("the folders in {} hold no images: expected files that end with {}",
                                quoted(folder), frames::image_endings()));
}

}  // namespace penstock::train
