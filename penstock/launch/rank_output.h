// Where the output of one rank goes.
//
//   RankOutput output(2, "", false, standard_output, standard_error);
//   ...start the rank with output.child_output() and child_error()...
//   output.started();
//   for (Relay& relay : output.relays()) if (readable(relay.fd())) relay.pass_on_some();
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "penstock/launch/file_descriptor.h"
#include "penstock/launch/line_prefixer.h"
#include "penstock/launch/output_queue.h"

namespace penstock::launch {

/// Passes on what comes out of a pipe. Not thread-safe.
class Relay {
 public:
  /// To `to`, with the prefix if there is one, and to the file `copy` (-1 for none); both outlive
  /// this.
  Relay(FileDescriptor from, OutputQueue& to, std::optional<LinePrefixer> prefixer, int copy);

  /// The pipe to read from, or -1 after its end.
  int fd() const { return from_.get(); }
  /// Whether there is a pipe, and room for what comes out of it.
  bool ready() const { return from_.is_open() && !to_->full(); }
  /// Reads once and passes that on; does not block. Whether there may be more at once.
  bool pass_on_some();
  /// Passes on what is in the pipe and closes it.
  void finish();

 private:
  void pass_on(std::string_view bytes);

  FileDescriptor from_;
  OutputQueue* to_;
  std::optional<LinePrefixer> prefixer_;
  int copy_;
};

/// Rank 0 writes to this process's own standard output and standard error, other ranks' lines go to
/// standard error with the prefix "[rank K] ". With a log folder every rank writes to rank_K.log in
/// it, and only rank 0's output is shown as well.
class RankOutput {
 public:
  /// `append` keeps what is in the log. Throws ConfigError if the log cannot be written,
  /// RuntimeError without a file descriptor.
  RankOutput(int rank, const std::filesystem::path& log_dir, bool append, OutputQueue& output,
             OutputQueue& error);

  int child_output() const { return child_output_; }
  int child_error() const { return child_error_; }
  /// The rank has its ends: closes them here.
  void started();
  std::vector<Relay>& relays() { return relays_; }
  /// After the rank's end.
  void finish();

 private:
  int add_relay(OutputQueue& to, std::optional<LinePrefixer> prefixer);

  FileDescriptor log_;
  std::vector<FileDescriptor> child_ends_;
  std::vector<Relay> relays_;
  int child_output_ = STDOUT_FILENO;
  int child_error_ = STDERR_FILENO;
};

}  // namespace penstock::launch
