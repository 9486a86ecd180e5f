#include "penstock/text/sources/libreoffice_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <unordered_map>

#include "penstock/text/plain_text.h"
#include "penstock/text/sources/debian_package.h"
#include "penstock/text/sources/files_in.h"
#include "penstock/text/sources/markup.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"

namespace penstock::text {

namespace {

constexpr int64_t kMaxPageBytes = int64_t{4} << 20;

bool is_paragraph(std::string_view tag) {
  return tag == "p" || (tag.size() == 2 && tag[0] == 'h' && tag[1] >= '1' && tag[1] <= '6');
}

std::string help_package(std::string_view language) {
  std::string name = "libreoffice-help-";
  for (const char c : language)
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::filesystem::path help_folder(const std::filesystem::path& root, const std::string& language) {
  std::filesystem::path folder = root / language / "text";
  std::error_code ignored;
  if (std::filesystem::is_directory(folder, ignored)) return folder;
  throw ConfigError(fmt::format("there is no help of LibreOffice in '{}': {} is missing; {}",
                                language, folder.string(), how_to_install(help_package(language))));
}

std::vector<HelpParagraph> read_page(const std::filesystem::path& file) {
  const std::string page = read_file(file, kMaxPageBytes);
  if (first_invalid_utf8(page)) throw ParseError(file.string(), 0, "expected UTF-8");
  return help_paragraphs(page);
}

/// Whether the paragraphs stand in the same order. Not so where a page lists functions by their
/// names, which differ by language.
bool has_equal_order(const std::vector<HelpParagraph>& source,
                     const std::vector<HelpParagraph>& target) {
  return std::equal(source.begin(), source.end(), target.begin(), target.end(),
                    [](const auto& a, const auto& b) { return a.id == b.id; });
}

void add_pairs(const std::vector<HelpParagraph>& source, const std::vector<HelpParagraph>& target,
               uint32_t document, std::vector<Sentence>& out) {
  std::unordered_map<std::string_view, const HelpParagraph*> by_id;
  const bool by_place = has_equal_order(source, target);
  if (!by_place) {
    for (const HelpParagraph& paragraph : target) by_id.try_emplace(paragraph.id, &paragraph);
  }
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i].is_code) continue;
    const HelpParagraph* partner = by_place ? &target[i] : nullptr;
    if (!by_place && !source[i].id.empty()) {
      if (const auto found = by_id.find(source[i].id); found != by_id.end())
        partner = found->second;
    }
    if (partner != nullptr) out.push_back({source[i].text, partner->text, document});
  }
}

}  // namespace

std::vector<HelpParagraph> help_paragraphs(std::string_view page) {
  std::vector<HelpParagraph> paragraphs;
  std::optional<HelpParagraph> open;
  const auto finish = [&] {
    if (!open) return;
    open->text = single_spaced(open->text);
    paragraphs.push_back(std::move(*open));
    open.reset();
  };
  bool is_inside = false;  // the page's own text
  MarkupScanner scanner(page);
  for (MarkupPiece piece; scanner.next(piece);) {
    const bool opens = piece.kind == MarkupKind::Open;
    if (opens && piece.name == "div") {
      const std::string_view id = attribute(piece.content, "id");
      if (id == "DisplayArea") is_inside = true;
      if (id == "SearchFrame") is_inside = false;
    }
    if (!is_inside) continue;
    if (opens && is_paragraph(piece.name)) {
      finish();
      open = HelpParagraph{
          .id = std::string(attribute(piece.content, "id")),
          .text = {},
          .is_code = attribute(piece.content, "class").find("code") != std::string_view::npos};
    } else if (piece.kind == MarkupKind::Close && is_paragraph(piece.name)) {
      finish();
    } else if (open && piece.kind == MarkupKind::Text) {
      append_unescaped(piece.content, open->text);
    } else if (open && piece.name == "br") {
      open->text += ' ';
    }
  }
  finish();
  return paragraphs;
}

Corpus read_libreoffice_help(const std::filesystem::path& root,
                             const std::vector<std::string>& languages) {
  std::vector<std::filesystem::path> folders;
  folders.reserve(languages.size());
  Corpus corpus;
  for (const std::string& language : languages) folders.push_back(help_folder(root, language));
  const std::vector<std::string> pages = files_below(folders.at(0), ".html");
  for (size_t i = 0; i < languages.size(); ++i) {
    const std::string package = help_package(languages[i]);
    corpus.origins.push_back(
        {package, package_version(package), "MPL-2.0", {(folders[i] / "**.html").string()}});
  }
  for (size_t p = 0; p < pages.size(); ++p) {
    const auto document = static_cast<uint32_t>(p);
    const std::vector<HelpParagraph> source = read_page(folders[0] / pages[p]);
    if (folders.size() == 1) {
      for (const HelpParagraph& paragraph : source) {
        if (!paragraph.is_code) corpus.at(Part::Train).push_back({paragraph.text, "", document});
      }
      continue;
    }
    std::error_code ignored;
    const std::filesystem::path partner = folders[1] / pages[p];
    if (std::filesystem::exists(partner, ignored))
      add_pairs(source, read_page(partner), document, corpus.at(Part::Train));
  }
  return corpus;
}

}  // namespace penstock::text
