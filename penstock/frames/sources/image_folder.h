// A folder of images as a stream: one image per frame, in the order in which people count.
//
//   ImageFolder source({.folder = "frames"});  // frame2.png before frame10.png
//   ImageFolder pets({.folder = "pets"});      // pets/cat/*.png and pets/dog/*.png, labelled
//
// Loads OpenCV (opencv/opencv_loader.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "penstock/frames/frame_source.h"
#include "penstock/frames/opencv/image_decoder.h"

namespace penstock::frames {

struct ImageFolderOptions {
  std::filesystem::path folder;
  int width = 0;  ///< all images are resized to this size; 0: to that of the first one
  int height = 0;
  int channels = kRgb;
  bool repeats = false;      ///< begins again at the end
  bool skips_broken = true;  ///< false: an image that cannot be decoded is an error
  /// As many in a row that cannot be decoded are an error in any case.
  int max_broken_in_row = 10;
  std::filesystem::path opencv_module = {};  ///< empty: beside the program
};

/// Takes the regular files of the folder whose names end like those of images (.png, .jpg, ...) and
/// do not begin with a dot. Where there are none, each folder in it is a class: its images are
/// labelled frames. One of each class comes in turn, since a stream is not shuffled. Sizes change
/// without regard to the aspect.
class ImageFolder : public FrameSource {
 public:
  /// Reads the first image. Throws ConfigError when the folder cannot be read, holds no image, or
  /// OpenCV is missing; ParseError as next().
  explicit ImageFolder(ImageFolderOptions options);

  FrameSize size() const override { return size_; }
  double frames_per_second() const override { return 0; }
  int num_classes() const override { return static_cast<int>(classes_.size()); }
  std::vector<std::string> class_names() const override { return classes_; }
  bool labels_frames() const override { return !classes_.empty(); }
  std::string describe() const override;
  /// Decoding one image may take longer than the deadline. A broken image is logged with its name
  /// and left out of later rounds. Throws ParseError when it is fatal.
  Next next(Frame& frame, Deadline deadline) override;
  int64_t skip(int64_t count) override;
  SourceCounts counts() const override;
  std::string remarks() const override;

 private:
  void find_images();
  void find_classes();
  /// Decodes the next image that can be; false if there is none. Stops early at the deadline, with
  /// is_decoded_ still false.
  bool find_next(Deadline deadline);
  void leave_out(const std::string& why);

  ImageFolderOptions options_;
  ImageDecoder decoder_;
  FrameSize size_;
  struct Image {
    std::string name;  ///< in the folder
    int label = -1;    ///< -1: there are no classes
  };
  std::vector<std::string> classes_;
  std::vector<Image> names_;
  size_t found_ = 0;  ///< images at the beginning
  size_t next_name_ = 0;
  bool is_decoded_ = false;  ///< the decoder's picture is the next frame
  int broken_in_row_ = 0;
  int64_t broken_ = 0;
  std::string first_broken_;
  int64_t frames_ = 0;
};

}  // namespace penstock::frames
