// The command line of `penstock stream`, without libtorch: the tool parses it, the training part
// runs it.
#pragma once

#include <CLI/CLI.hpp>

#include "penstock/frames/open_source.h"
#include "penstock/options/stream_request.h"

namespace penstock::tool {

/// Adds the command.
CLI::App* add_stream(CLI::App& parent, options::StreamRequest& request);
/// What can be said before a source is opened or a model is made. Throws ConfigError.
void check_stream(const options::StreamRequest& request);
/// The source's options. Throws ConfigError naming the option.
frames::SourceOptions source_options(const options::StreamRequest& request);

}  // namespace penstock::tool
