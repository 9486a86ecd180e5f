// Numbers and texts of a training as TensorBoard reads them: a file of TFRecords, each of which is
// an Event of TensorFlow's protocol buffers. Neither library is needed. Torch-free.
//
//   EventFile events("runs/1", /*first_step=*/0);      // runs/1/events.out.tfevents...
//   events.add(/*step=*/10, {{"train/loss", 0.7}});
//
// Source: tensorflow/core/lib/io/record_writer.h (framing), tensorflow/core/util/event.proto and
// framework/summary.proto (what an event has). Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::train {

/// CRC-32C (Castagnoli) of all bytes.
uint32_t crc32c_of(std::string_view bytes);

class EventFile {
 public:
  /// Makes the folder and a new file in it. A reader forgets what files before it say of steps from
  /// `first_step` on. Throws ConfigError where it cannot be written.
  EventFile(const std::filesystem::path& folder, int64_t first_step);

  /// One event of these numbers, by name; it is in the file when this returns. Throws RuntimeError.
  void add(int64_t step, const std::vector<std::pair<std::string, double>>& numbers);
  /// A text, which TensorBoard shows as Markdown. Throws RuntimeError.
  void add_text(int64_t step, const std::string& name, const std::string& text);

  const std::filesystem::path& path() const { return path_; }

 private:
  /// `content`: what the event has beside time and step.
  void write(int64_t step, const std::string& content);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace penstock::train
