#include "penstock/profile/share.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"

namespace penstock::profile {

namespace {

/// Throws ConfigError where there is no such layer.
LayerId find_layer(const std::string& text, const graph::ModelGraph& graph) {
  const auto& layers = graph.layers();
  const auto named = std::find_if(layers.begin(), layers.end(), [&](const graph::LayerNode& layer) {
    return layer.name == text;
  });
  if (named != layers.end()) return LayerId{static_cast<int32_t>(named - layers.begin())};
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && number >= 0 && number < graph.num_layers()) return LayerId{number};
  throw ConfigError(
      fmt::format("there is no layer '{}': expected a name from the profile's table, or a number "
                  "from 0 to {}",
                  printable(text), graph.num_layers() - 1));
}

std::string text_of(const LayerRange& layers, const graph::ModelGraph& graph) {
  const std::string& first = graph.layer(layers.first).name;
  if (layers.count() == 1) return fmt::format("layer '{}'", first);
  return fmt::format("layers '{}' to '{}'", first, graph.layer(layers.last).name);
}

void require_alike(const Share& one, const Share& other, const std::string& one_place,
                   const std::string& other_place, Devices devices) {
  const auto refuse = [&](std::string_view what, const std::string& of_one,
                          const std::string& of_other) {
    throw ConfigError(fmt::format("{} and {} cannot be joined: their {} differ, {} and {}",
                                  one_place, other_place, what, of_one, of_other));
  };
  const Profile& a = one.profile;
  const Profile& b = other.profile;
  if (a.model != b.model) refuse("models", printable(a.model), printable(b.model));
  if (!(a.graph == b.graph)) {
    refuse("layers or connections", fmt::format("{} layers", a.graph.num_layers()),
           fmt::format("{} layers", b.graph.num_layers()));
  }
  if (a.batch_size != b.batch_size)
    refuse("micro-batches", fmt::format("{} samples", a.batch_size), fmt::to_string(b.batch_size));
  if (!(a.lengths == b.lengths))
    refuse("lengths", lengths_text(a.lengths), lengths_text(b.lengths));
  if (a.precision != b.precision)
    refuse("precisions", std::string(to_string(a.precision)), std::string(to_string(b.precision)));
  if (a.source != b.source) refuse("sources", printable(a.source), printable(b.source));
  if (a.device_graphs != b.device_graphs)
    refuse("passes", a.device_graphs ? "CUDA graphs" : "no CUDA graphs",
           b.device_graphs ? "CUDA graphs" : "none");
  if (devices == Devices::Same && a.device != b.device)
    refuse("devices", fmt::format("'{}'", printable(a.device)),
           fmt::format("'{}'", printable(b.device)));
}

/// Ascending by layers, without a gap or an overlap.
void require_each_layer_once(const std::vector<Share>& shares,
                             const std::vector<std::string>& places,
                             const std::vector<size_t>& order) {
  const graph::ModelGraph& graph = shares.front().profile.graph;
  LayerId next{0};
  const auto refuse_gap = [&](LayerId end) {
    if (next >= end) return;
    throw ConfigError(fmt::format(
        "{}: {} in none of the profiles ({})", text_of({next, LayerId{end.value - 1}}, graph),
        end.value - next.value == 1 ? "is" : "are", fmt::join(places, ", ")));
  };
  for (size_t i = 0; i < order.size(); ++i) {
    const LayerRange& own = shares[order[i]].layers;
    refuse_gap(own.first);
    if (own.first < next) {
      const LayerId last = std::min(own.last, LayerId{next.value - 1});
      throw ConfigError(fmt::format("{}: both {} and {} have it", text_of({own.first, last}, graph),
                                    places[order[i - 1]], places[order[i]]));
    }
    next = LayerId{own.last.value + 1};
  }
  refuse_gap(LayerId{graph.num_layers()});
}

void add_pass(PassTimes& sum, const PassTimes& part) {
  sum.mean_ns = saturating_add(sum.mean_ns, part.mean_ns);
  sum.spread = std::max(sum.spread, part.spread);
  sum.error = std::max(sum.error, part.error);
  sum.stretches = std::min(sum.stretches, part.stretches);
}

int64_t mean(const std::vector<Share>& shares, int64_t Profile::*member) {
  __int128 sum = 0;
  for (const Share& share : shares) sum += share.profile.*member;
  return static_cast<int64_t>(sum / static_cast<int64_t>(shares.size()));
}

std::string joined_devices(const std::vector<Share>& shares) {
  std::vector<std::string> names;
  for (const Share& share : shares) {
    if (std::find(names.begin(), names.end(), share.profile.device) == names.end())
      names.push_back(share.profile.device);
  }
  return fmt::format("{}", fmt::join(names, " and "));
}

}  // namespace

LayerRange all_layers(const graph::ModelGraph& graph) {
  return {LayerId{0}, LayerId{graph.num_layers() - 1}};
}

LayerRange parse_layers(const std::string& text, const graph::ModelGraph& graph) {
  const size_t dots = text.find("..");
  const LayerId first = find_layer(text.substr(0, dots), graph);
  const LayerId last = dots == std::string::npos ? first : find_layer(text.substr(dots + 2), graph);
  if (last < first) {
    throw ConfigError(fmt::format("layer '{}' comes after '{}': expected the first one first",
                                  graph.layer(first).name, graph.layer(last).name));
  }
  return {first, last};
}

Share whole_share(Profile profile) {
  const LayerRange layers = all_layers(profile.graph);
  return {.profile = std::move(profile), .layers = layers, .measured = layers.count()};
}

Share join(std::vector<Share> shares, std::vector<std::string> places, Devices devices) {
  PENSTOCK_CHECK(shares.size() == places.size(), shares.size(), places.size());
  if (shares.empty()) throw ConfigError("expected at least one profile to join, found none");
  for (size_t i = 1; i < shares.size(); ++i)
    require_alike(shares.front(), shares[i], places.front(), places[i], devices);
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return shares[a].layers.first < shares[b].layers.first;
  });
  require_each_layer_once(shares, places, order);

  Share result = shares.front();
  result.layers = all_layers(result.profile.graph);
  Profile& profile = result.profile;
  profile.device = joined_devices(shares);
  profile.copy_bandwidth_bytes_per_s = mean(shares, &Profile::copy_bandwidth_bytes_per_s);
  profile.hand_over_ns = mean(shares, &Profile::hand_over_ns);
  bool is_known = profile.pass.mean_ns > 0;
  for (size_t i = 1; i < shares.size(); ++i) {
    const Share& share = shares[i];
    for (LayerId l = share.layers.first; l <= share.layers.last; ++l.value)
      profile.costs[l.index()] = share.profile.costs[l.index()];
    is_known = is_known && share.profile.pass.mean_ns > 0;
    add_pass(profile.pass, share.profile.pass);
    profile.samples = std::min(profile.samples, share.profile.samples);
    result.measured += share.measured;
  }
  if (!is_known) profile.pass = {};
  return result;
}

}  // namespace penstock::profile
