#include "penstock/compiled/piece_choice.h"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "penstock/compiled/compiled_piece.h"
#include "penstock/compiled/piece_layer.h"
#include "penstock/compiled/piece_speed.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"

namespace penstock::compiled {

namespace {

const PieceLayer* piece_layer(const model::Model& model, int layer) {
  return dynamic_cast<const PieceLayer*>(&model.layer(LayerId{layer}));
}

/// In the order of their layers.
std::vector<const CompiledPiece*> pieces_of(const model::Model& model) {
  std::vector<const CompiledPiece*> all;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const PieceLayer* const layer = piece_layer(model, l);
    if (layer == nullptr || layer->piece().first() != LayerId{l}) continue;
    all.push_back(dynamic_cast<const CompiledPiece*>(&layer->piece()));
    PENSTOCK_CHECK(all.back() != nullptr, l);
  }
  return all;
}

std::filesystem::path speed_file(const CompiledPiece& piece) {
  return piece.program().place / "speed.json";
}

/// What an earlier run has measured.
std::optional<PassSeconds> known_speed(const CompiledPiece& piece) {
  try {
    const std::filesystem::path file = speed_file(piece);
    const Json text = parse_json(read_file(file), file.string());
    const JsonReader root(text, file.string());
    return PassSeconds{root.at("layers").number(), root.at("piece").number()};
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Nothing where the passes fail, as for want of memory: a run may go well without the piece.
std::optional<PassSeconds> speed_of(const model::Model& model, const CompiledPiece& piece,
                                    int threads) {
  if (const std::optional<PassSeconds> known = known_speed(piece)) return known;
  PassSeconds found;
  try {
    found = measure_passes(model, piece.first(), piece.last(), piece.program().interface.inputs,
                           threads);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  try {
    write_file_atomic(speed_file(piece),
                      to_text(Json{{"layers", found.layers}, {"piece", found.piece}}));
  } catch (const Error&) {
    // It is measured again the next time.
  }
  return found;
}

}  // namespace

std::string choose_pieces(const model::Model& model, int threads) {
  const std::vector<const CompiledPiece*> pieces = pieces_of(model);
  const char* const all = std::getenv("PENSTOCK_COMPILE_ALL");
  if (all != nullptr && std::string_view(all) == "1") return std::string(pieces.size(), '1');
  std::map<const PieceProgram*, char> known;
  std::string choice;
  for (const CompiledPiece* const piece : pieces) {
    const auto [found, is_new] = known.emplace(&piece->program(), '0');
    if (is_new) {
      const std::optional<PassSeconds> seconds = speed_of(model, *piece, threads);
      if (seconds && is_worth_it(*seconds)) found->second = '1';
    }
    choice.push_back(found->second);
  }
  return choice;
}

model::Model with_pieces(const model::Model& model, const std::string& choice) {
  const std::vector<const CompiledPiece*> pieces = pieces_of(model);
  PENSTOCK_CHECK(choice.size() == pieces.size(), choice.size(), pieces.size());
  std::map<const model::Piece*, bool> is_used;
  for (size_t i = 0; i < pieces.size(); ++i) is_used[pieces[i]] = choice[i] == '1';
  std::vector<std::shared_ptr<const model::Layer>> layers;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const PieceLayer* const layer = piece_layer(model, l);
    const bool is_whole = layer == nullptr || is_used.at(&layer->piece());
    layers.push_back(is_whole ? model.shared_layer(LayerId{l}) : layer->alone());
  }
  return with_layers(model, std::move(layers));
}

std::vector<std::string> notes_of_choice(const model::Model& model, const std::string& choice) {
  const std::vector<const CompiledPiece*> pieces = pieces_of(model);
  PENSTOCK_CHECK(choice.size() == pieces.size(), choice.size(), pieces.size());
  std::vector<std::string> notes;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (choice[i] == '1') continue;
    const auto name = [&](LayerId id) { return model.graph().layer(id).name; };
    const std::optional<PassSeconds> seconds = known_speed(*pieces[i]);
    const std::string why =
        seconds ? fmt::format(
                      "which is as fast as their compiled passes ({:.4g} ms, compiled "
                      "{:.4g} ms)",
                      1e3 * seconds->layers, 1e3 * seconds->piece)
                : std::string("as rank 0 has chosen, or no time of their passes is known");
    notes.push_back(fmt::format("layers '{}' to '{}' run one by one, {}", name(pieces[i]->first()),
                                name(pieces[i]->last()), why));
  }
  return notes;
}

}  // namespace penstock::compiled
