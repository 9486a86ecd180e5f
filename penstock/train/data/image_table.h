// Images whose classes stand in a table: a text with a line per image, its columns named in the
// first one.
//
//   filename,label          labels.csv, beside or above the images
//   0001.jpg,cat
#pragma once

#include <filesystem>
#include <string>

#include "penstock/train/data/image_tree.h"

namespace penstock::train {

struct ImageTable {
  ImageTree train;
  ImageTree test;         ///< no images: the table has no column of parts, or no test images
  std::string test_from;  ///< the part's name
};

/// Columns end with a comma, a semicolon or a tab, and may be in quotes. The image's column is
/// called file_name, filename, file, path, image, image_id, id or name; its class's label, class,
/// category or target; a part's (part_names.h) split, part, set or subset. Of two columns without
/// these names the first is the image's. Images lie anywhere below the table's folder, and their
/// endings may lack. Labels that are all whole numbers are the classes themselves; others are
/// ordered. `classes`: those of the training images, where the table is of test images. Throws
/// ConfigError, ParseError (table:line).
ImageTable read_image_table(const std::filesystem::path& table, ClassOrder order,
                            const std::vector<std::string>& classes = {});

}  // namespace penstock::train
