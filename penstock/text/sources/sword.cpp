#include "penstock/text/sources/sword.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "penstock/text/plain_text.h"
#include "penstock/text/sources/files_in.h"
#include "penstock/text/sources/markup.h"
#include "penstock/text/sources/verse_file.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"

namespace penstock::text {

namespace {

constexpr int64_t kMaxVerseFileBytes = int64_t{256} << 20;
constexpr std::array<std::string_view, 2> kTestaments = {"ot", "nt"};

bool begins_with(const std::string& text, const std::string& begin) {
  return folded(text).starts_with(folded(begin));
}

std::string module_names(const std::vector<SwordModule>& modules) {
  std::vector<std::string> names;
  for (const SwordModule& module : modules) {
    const std::string abbreviation = module.value("Abbreviation");
    names.push_back(abbreviation.empty() ? module.name
                                         : fmt::format("{} ({})", module.name, abbreviation));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<SwordModule> installed_modules(const std::filesystem::path& root) {
  constexpr std::string_view kHint =
      "install works: apt-get install sword-text-kjv sword-text-sparv (apt-cache search sword-text "
      "lists more)";
  const std::filesystem::path folder = root / "mods.d";
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    throw ConfigError(fmt::format("{} is missing; {}", folder.string(), kHint));
  std::vector<SwordModule> modules;
  for (const std::string& name : files_in(folder, ".conf"))
    modules.push_back(parse_sword_module(read_file(folder / name), (folder / name).string()));
  if (modules.empty())
    throw ConfigError(fmt::format("{} has no work (.conf); {}", folder.string(), kHint));
  return modules;
}

const SwordModule& find_module(const std::vector<SwordModule>& modules, const std::string& name) {
  std::vector<const SwordModule*> like;
  for (const SwordModule& module : modules) {
    const std::string abbreviation = module.value("Abbreviation");
    if (folded(module.name) == folded(name) || folded(abbreviation) == folded(name)) return module;
    if (begins_with(module.name, name) || begins_with(abbreviation, name)) like.push_back(&module);
  }
  if (like.size() == 1) return *like.front();
  throw ConfigError(fmt::format(
      "{} '{}', found {}; Debian's packages are named as sword-text-kjv, and apt-cache "
      "search sword-text lists them",
      like.empty() ? "there is no work" : "several works begin with", name, module_names(modules)));
}

void check_module(const SwordModule& module, const std::string& versification) {
  const auto expect = [&](const std::string& key, const std::string& expected,
                          const std::string& usual) {
    std::string found = module.value(key);
    if (found.empty()) found = usual;
    if (folded(found) != folded(expected))
      throw ConfigError(
          fmt::format("{}: expected {} = {}, found {}", module.name, key, expected, found));
  };
  expect("ModDrv", "zText", "");
  expect("CompressType", "ZIP", "LZSS");
  expect("Encoding", "UTF-8", "Latin-1");
  expect("Versification", versification, "KJV");
  if (module.values.count("CipherKey") > 0)
    throw ConfigError(fmt::format("{}: this work is locked by a key", module.name));
}

struct Verses {
  std::vector<VerseEntry> entries;  ///< of both testaments
  size_t first_testament = 0;       ///< entries of it
  std::vector<std::string> files;
};

Verses read_verses(const std::filesystem::path& root, const SwordModule& module) {
  const std::filesystem::path folder = root / module.value("DataPath");
  const std::string block = module.value("BlockType");
  const char letter =
      block.empty() ? 'c' : static_cast<char>(std::tolower(static_cast<unsigned char>(block[0])));
  Verses verses;
  for (const std::string_view testament : kTestaments) {
    const auto file = [&](char kind) {
      return folder / fmt::format("{}.{}z{}", testament, letter, kind);
    };
    std::error_code ignored;
    if (!std::filesystem::exists(file('v'), ignored)) continue;  // a work of one testament
    const std::string blocks = read_file(file('s'), kMaxVerseFileBytes);
    const std::string index = read_file(file('v'), kMaxVerseFileBytes);
    const std::string packed = read_file(file('z'), kMaxVerseFileBytes);
    std::vector<VerseEntry> found =
        parse_verses({.blocks = blocks, .verses = index, .packed = packed}, file('v').string());
    if (verses.files.empty() && testament == kTestaments[0]) verses.first_testament = found.size();
    std::move(found.begin(), found.end(), std::back_inserter(verses.entries));
    verses.files.push_back(file('z').string());
  }
  if (verses.entries.empty())
    throw ConfigError(
        fmt::format("{}: expected its verses in {}, found none", module.name, folder.string()));
  return verses;
}

Origin origin_of(const SwordModule& module, std::vector<std::string> files) {
  std::string licence = module.value("DistributionLicense");
  if (licence.empty()) licence = module.value("Copyright");
  return {fmt::format("SWORD {}", module.name), module.value("Version"), licence, std::move(files)};
}

bool opens_chapter(std::string_view marked) {
  MarkupScanner scanner(marked);
  for (MarkupPiece piece; scanner.next(piece);) {
    if (piece.name == "chapter" && attribute(piece.content, "eID").empty()) return true;
  }
  return false;
}

/// A chapter begins where its tag stands, or else with a book's block.
void add_verses(const Verses& source, const Verses* target, std::vector<Sentence>& out) {
  uint32_t document = 0;
  for (size_t i = 0; i < source.entries.size(); ++i) {
    const VerseEntry& entry = source.entries[i];
    const bool new_block = i > 0 && entry.block != source.entries[i - 1].block;
    if (new_block || i == source.first_testament || opens_chapter(entry.text)) ++document;
    Sentence sentence{plain_verse(entry.text), "", document};
    if (target != nullptr) sentence.target = plain_verse(target->entries[i].text);
    out.push_back(std::move(sentence));
  }
}

}  // namespace

std::string SwordModule::value(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? std::string() : found->second;
}

SwordModule parse_sword_module(std::string_view text, std::string_view place) {
  SwordModule module;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = single_spaced(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '[' && line.back() == ']') {
      if (module.name.empty()) module.name = line.substr(1, line.size() - 2);
      continue;
    }
    if (module.name.empty())
      throw ParseError(place, number, "expected the name of a work in brackets first");
    const size_t equals = line.find('=');
    if (equals != std::string::npos)
      module.values[single_spaced(line.substr(0, equals))] = single_spaced(line.substr(equals + 1));
  }
  if (module.name.empty())
    throw ParseError(place, 0, "expected the name of a work in brackets, found none");
  return module;
}

std::string plain_verse(std::string_view marked) {
  std::string text;
  int left_out = 0;  // open notes and titles
  MarkupScanner scanner(marked);
  for (MarkupPiece piece; scanner.next(piece);) {
    if (piece.kind == MarkupKind::Text) {
      if (left_out == 0) append_unescaped(piece.content, text);
      continue;
    }
    if (piece.name == "note" || piece.name == "title") {
      if (piece.kind == MarkupKind::Open) ++left_out;
      if (piece.kind == MarkupKind::Close) left_out = std::max(0, left_out - 1);
    } else if (piece.name == "l" || piece.name == "lb" || piece.name == "br") {
      text += ' ';
    }
  }
  return single_spaced(text);
}

Corpus read_sword(const std::filesystem::path& root, const std::vector<std::string>& names) {
  const std::vector<SwordModule> modules = installed_modules(root);
  std::vector<Verses> works;
  Corpus corpus;
  std::string versification;
  for (const std::string& name : names) {
    const SwordModule& module = find_module(modules, name);
    if (works.empty()) versification = module.value("Versification");
    if (versification.empty()) versification = "KJV";
    check_module(module, versification);
    works.push_back(read_verses(root, module));
    corpus.origins.push_back(origin_of(module, works.back().files));
  }
  const Verses* target = works.size() > 1 ? &works[1] : nullptr;
  if (target != nullptr && (target->entries.size() != works[0].entries.size() ||
                            target->first_testament != works[0].first_testament)) {
    throw ConfigError(fmt::format("{} has {} entries and {} has {}: expected works of equal extent",
                                  names[0], works[0].entries.size(), names[1],
                                  target->entries.size()));
  }
  add_verses(works.at(0), target, corpus.at(Part::Train));
  return corpus;
}

}  // namespace penstock::text
