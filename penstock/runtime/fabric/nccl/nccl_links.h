// NCCL between the GPUs of two ranks (https://docs.nvidia.com/deeplearning/nccl): a communicator of
// two for each link, so that the order of messages matters within a link only.
//
//   hub.link_by(make_nccl_links({.rank = 0, .put = ..., .get = ...}));
#pragma once

#include <functional>
#include <string>

#include "penstock/runtime/fabric/device_link.h"

namespace penstock::runtime {

struct NcclSetup {
  int rank = 0;
  /// Makes a text known to all ranks, under a name of which there is one in the job.
  std::function<void(const std::string& name, const std::string& text)> put = {};
  /// Blocks until the text is known; throws when it will not be.
  std::function<std::string(const std::string& name, Wait& wait)> get = {};
  /// Throws when a rank is lost.
  std::function<void()> check = {};
  /// Calls what the other rank's `listen` was given under that name.
  std::function<void(int peer, const std::string& name)> call = {};
  /// Empty: not any more.
  std::function<void(const std::string& name, std::function<void()> on_call)> listen = {};
};

/// Whether this build has it.
bool has_nccl();

/// Throws ConfigError where this build has no NCCL. The maker throws TransportError with NCCL's own
/// reason: two ranks on one GPU, which it refuses, or no path between the machines.
LinkMaker make_nccl_links(NcclSetup setup);

}  // namespace penstock::runtime
