// A source whose frames get their labels from a file.
//
//   auto labelled = std::make_unique<LabelledSource>(std::move(video), "labels.csv");
//
// The file is CSV with one of two headers:
//
//   seconds,label    from this time of the stream on until the next row; without a label: none
//   frame,label      of this frame alone, counted from 0 as the source does
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "penstock/frames/frame_source.h"

namespace penstock::frames {

class LabelledSource : public FrameSource {
 public:
  /// Classes are the labels of the file, in the order in which people count. Throws ParseError,
  /// which names the line, for a file that is none of these, is not ascending or has fewer than two
  /// classes.
  LabelledSource(std::unique_ptr<FrameSource> source, const std::filesystem::path& file);

  FrameSize size() const override { return source_->size(); }
  double frames_per_second() const override { return source_->frames_per_second(); }
  int num_classes() const override { return static_cast<int>(classes_.size()); }
  std::vector<std::string> class_names() const override { return classes_; }
  bool labels_frames() const override { return true; }
  bool is_live() const override { return source_->is_live(); }
  std::string describe() const override;
  /// The times of files and folders are those of their rate, where they have one; of all else those
  /// at which frames come.
  Next next(Frame& frame, Deadline deadline) override;
  int64_t skip(int64_t count) override { return source_->skip(count); }
  SourceCounts counts() const override { return source_->counts(); }
  std::string half_frame() const override { return source_->half_frame(); }
  std::string remarks() const override { return source_->remarks(); }

 private:
  /// From `at` on, seconds or a frame.
  struct Mark {
    double at = 0;
    int label = -1;  ///< -1: none
  };
  void read(const std::filesystem::path& file);
  double seconds_of(const Frame& frame);

  std::unique_ptr<FrameSource> source_;
  std::string name_;
  bool is_by_time_ = false;
  std::vector<Mark> marks_;  ///< ascending
  std::vector<std::string> classes_;
  int64_t first_ns_ = -1;  ///< when the first frame came
};

}  // namespace penstock::frames
