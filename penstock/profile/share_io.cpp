#include <climits>

#include "penstock/profile/profile_document.h"
#include "penstock/profile/share.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"

namespace penstock::profile {

namespace {

constexpr int64_t kShareVersion = 1;

}  // namespace

std::string to_json(const Share& share) {
  const graph::ModelGraph& graph = share.profile.graph;
  const bool is_whole = share.is_whole();
  if (is_whole && share.measured == graph.num_layers()) return to_json(share.profile);
  Json document = {{"format", is_whole ? "penstock-profile" : "penstock-profile-share"},
                   {"version", kShareVersion}};
  document.update(detail::document_of(share.profile));
  document["measured_layers"] = share.measured;
  if (!is_whole) {
    document["first_layer"] = graph.layer(share.layers.first).name;
    document["last_layer"] = graph.layer(share.layers.last).name;
  }
  return to_text(document);
}

Share parse_share(std::string_view json, std::string_view place) {
  const Json document = parse_json(json, place);
  const JsonReader root(document, std::string(place));
  const bool is_share = root.find("first_layer").has_value();
  check_format(root, is_share ? "profile-share" : "profile", kShareVersion);
  Share share = whole_share(detail::profile_in(root, place));
  try {
    if (is_share) {
      share.layers = {share.profile.graph.find(root.at("first_layer").text()),
                      share.profile.graph.find(root.at("last_layer").text())};
    }
  } catch (const ConfigError& error) {
    throw ParseError(place, 0, error.what());
  }
  if (share.layers.last < share.layers.first)
    root.at("last_layer").fail("it comes before the first layer");
  const int count = share.layers.count();
  share.measured = static_cast<int>(root.integer_or("measured_layers", count, 1, count));
  return share;
}

Share load_share(const std::filesystem::path& path) {
  return parse_share(read_file(path), path.string());
}

}  // namespace penstock::profile
