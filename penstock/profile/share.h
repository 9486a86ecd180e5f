// Costs of some layers of a model in a row, and how many of them were timed. Shares of one model,
// measured one by one or by the ranks of a job, are joined to its profile.
//
//   Share front = load_share("front.json");
//   const Share whole = join({front, load_share("back.json")}, {"front.json", "back.json"});
//   const Profile& profile = whole.profile;
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/profile/profile.h"
#include "penstock/util/ids.h"

namespace penstock::profile {

/// Layers in a row; both ends belong to it.
struct LayerRange {
  LayerId first;
  LayerId last;

  int count() const { return last.value - first.value + 1; }
  bool operator==(const LayerRange&) const = default;
};

/// All layers of a graph, which has some.
LayerRange all_layers(const graph::ModelGraph& graph);

/// "FIRST..LAST" or a single layer, each a name or a number from 0; a name comes first where a
/// layer has that name. Throws ConfigError for another text, a layer that the graph has not, and
/// layers in the other order.
LayerRange parse_layers(const std::string& text, const graph::ModelGraph& graph);

struct Share {
  /// With the graph of the whole model. The layers outside `layers` cost nothing and have sizes of
  /// 0, so this is a profile only where all layers are in.
  Profile profile;
  LayerRange layers;
  /// Layers that were timed; the others have the costs of an equal one.
  int measured = 0;

  bool is_whole() const { return layers == all_layers(profile.graph); }
  bool operator==(const Share&) const = default;
};

/// A profile of the whole model, all of whose layers were timed.
Share whole_share(Profile profile);

/// Of a whole one an ordinary profile, with `measured`; otherwise a form that is read only here.
/// Throws as validate(Profile).
std::string to_json(const Share& share);
/// Either form. Throws ParseError naming place and key.
Share parse_share(std::string_view json, std::string_view place);
/// Throws ParseError, and as read_file().
Share load_share(const std::filesystem::path& path);

/// Whether the parts of a profile must have been measured on devices of one name.
enum class Devices : uint8_t { Same, Any };

/// The whole model from shares that have each layer once; the order does not matter. What is
/// measured of the device (sums, handing over) is a mean; a pass is the sum of the parts, known as
/// well as the worst of them. `places`, one per share, are named in errors. Throws ConfigError for
/// no share, other models, micro-batches, precisions, kinds of measurement or devices, a layer that
/// two of them have or none has.
Share join(std::vector<Share> shares, std::vector<std::string> places,
           Devices devices = Devices::Same);

}  // namespace penstock::profile
