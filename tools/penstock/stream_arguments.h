// The command line of `penstock stream`, without libtorch: the tool parses it, the training part
// runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "penstock/frames/open_source.h"
#include "penstock/model/optimizer_spec.h"
#include "tools/penstock/command.h"
#include "tools/penstock/model_options.h"

namespace penstock::tool {

struct StreamArguments : CommonOptions {
  std::string source = "generated";
  std::string size;   ///< "640x480"; empty: the source's own
  std::string pixel;  ///< raw frames: "rgb24"...
  bool grey = false;
  double source_fps = 0;  ///< 0: as fast as frames are taken, or as they come
  bool repeat = false;
  std::optional<int64_t> classes;
  std::optional<int64_t> label_every;
  int64_t queue = 2;
  bool keep_all = false;

  std::string task;  ///< empty: pixels where the source has labels, otherwise reconstruct
  ModelOptions model;
  model::OptimizerSpec optimizer = {.momentum = 0};
  double learning_rate = 0.002;

  std::string strategy = "online";
  std::string weights;
  std::string plan_path;
  std::string profile_path;
  int64_t workers = 0;  ///< 0: a core each
  int64_t threads = 1;
  std::string device = "cpu";
  bool cuda_graphs = false;
  double fps = 0;  ///< wanted; 0: the best there is
  double replan_margin = 0.25;

  int64_t max_frames = 0;
  double seconds = 0;
  double deadline_ms = 0;  ///< 0: (stages + queue) / frame rate, where that is known
  double stall_s = 10;
  std::string checkpoint;
  bool resume = false;
  double save_every_s = 0;

  std::optional<int> serve;  ///< the live page's port, 0: any free one; nothing: no page
};

/// Adds the command.
CLI::App* add_stream(CLI::App& parent, StreamArguments& arguments);
/// What can be said before a source is opened or a model is made. Throws ConfigError.
void check(const StreamArguments& arguments);
/// The source's options. Throws ConfigError naming the option.
frames::SourceOptions source_options(const StreamArguments& arguments);

}  // namespace penstock::tool
