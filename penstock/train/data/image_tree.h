// Which images a folder has and of which classes they are, before one is decoded. Counts as
// torchvision's ImageFolder does: every folder is a class, with the images at any depth below it.
//
//   const FolderParts parts = folder_parts("photos");    // photos/train, photos/val
//   const ImageTree tree = read_image_tree(parts.train, ClassOrder::Text);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "penstock/train/data/class_order.h"
#include "penstock/train/data/left_out.h"

namespace penstock::train {

struct ImageTree {
  struct Image {
    int32_t label = 0;
    std::string path;  ///< below the folder
  };
  std::vector<std::string> classes;  ///< 0, 1, ...
  std::vector<Image> images;         ///< class by class, each in the order of their paths as text
  LeftOut left_out;
};

/// Where the parts of a data set lie: folders named train and test, val or the like (part_names.h),
/// where no other folder with images is beside them. Otherwise all folders are classes.
struct FolderParts {
  std::filesystem::path train;  ///< the folder itself where it has no parts
  std::filesystem::path test;   ///< empty: none
  LeftOut left_out;             ///< other parts
};

/// Throws ConfigError: the folder cannot be read, or its folders may be parts or classes.
FolderParts folder_parts(const std::filesystem::path& folder);

/// The paths below a folder of all images in it, in the order of text. Throws ConfigError.
std::vector<std::string> images_below(const std::filesystem::path& folder, LeftOut& left_out);

/// Hidden entries and __MACOSX are left out. Throws ConfigError: it cannot be read, has no folders,
/// one of them without an image, or one that leads back to itself.
ImageTree read_image_tree(const std::filesystem::path& folder, ClassOrder order);
/// The same of test images: of these classes, some of which may lack. Throws ConfigError for
/// another class, too.
ImageTree read_image_tree(const std::filesystem::path& folder,
                          const std::vector<std::string>& classes);

}  // namespace penstock::train
