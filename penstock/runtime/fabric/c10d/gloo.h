// Gloo as libtorch has it: TCP connections of its own, with a thread each.
//
//   mesh.carry_by(make_gloo_carrier({.rank = 0, .ranks = 4, .address = "10.0.0.1", ...}),
//   smallest);
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "penstock/net/carrier.h"

namespace penstock::runtime {

struct GlooSetup {
  int rank = 0;
  int ranks = 1;
  std::string address = {};  ///< of this rank: where Gloo listens, at ports that the system chooses
  /// Makes a text known to all ranks, under a name of which there is one in the job.
  std::function<void(const std::string& key, const std::string& value)> put = {};
  /// Blocks until the text is known; throws when it will not be.
  std::function<std::string(const std::string& key)> get = {};
};

/// Whether this build has it.
bool has_gloo();

/// All ranks call it together; blocks until all are connected, a minute at most. Throws
/// TransportError, and ConfigError where this build has no Gloo.
std::unique_ptr<net::Carrier> make_gloo_carrier(const GlooSetup& setup);

}  // namespace penstock::runtime
