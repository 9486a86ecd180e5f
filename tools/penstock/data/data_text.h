// What `penstock data` prints.
#pragma once

#include <string>

#include "penstock/text/metrics/bleu.h"
#include "penstock/text/metrics/meteor.h"
#include "penstock/text/prepare.h"
#include "penstock/util/files/json.h"

namespace penstock::tool {

/// A table of the parts, what was left out, what recurs, the sources, and what to type next.
std::string data_text(const text::PreparedData& data, const text::DataRequest& request);
/// The manifest, with the folder and the notes.
Json data_json(const text::PreparedData& data, const text::DataRequest& request);

std::string bleu_text(const text::BleuScore& score);
Json bleu_json(const text::BleuScore& score);

std::string meteor_text(const text::MeteorScore& score, bool has_synonyms);
Json meteor_json(const text::MeteorScore& score, bool has_synonyms);

}  // namespace penstock::tool
