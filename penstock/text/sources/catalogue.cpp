#include "penstock/text/sources/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "penstock/text/plain_text.h"
#include "penstock/text/sources/files_in.h"
#include "penstock/text/sources/little_endian.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"

namespace penstock::text {

namespace {

constexpr uint32_t kMagic = 0x950412DE;
constexpr int64_t kMaxCatalogueBytes = int64_t{64} << 20;
constexpr size_t kHeaderBytes = 20;
constexpr size_t kEntryBytes = 8;

/// The numbers and strings of one file, each checked.
class CatalogueBytes {
 public:
  CatalogueBytes(std::string_view bytes, std::string_view place) : bytes_(bytes), place_(place) {
    if (bytes.size() < kHeaderBytes)
      fail(fmt::format("expected at least {} bytes, found {}", kHeaderBytes, bytes.size()));
    if (little_endian(bytes, 0) == kMagic) return;
    is_swapped_ = true;
    if (number(0) != kMagic) fail("expected a catalogue of gettext (.mo), found something else");
  }

  uint32_t number(size_t at) const {
    const uint32_t value = little_endian(bytes_, at);
    return is_swapped_ ? __builtin_bswap32(value) : value;
  }

  /// The i-th string of the table that begins at `table`.
  std::string_view string(size_t table, size_t i) {
    const size_t entry = table + i * kEntryBytes;
    const size_t size = number(entry);
    const size_t begin = number(entry + 4);
    if (begin > bytes_.size() || size > bytes_.size() - begin)
      fail(fmt::format("string {} ends behind the file: {} bytes from byte {} of {}", i, size,
                       begin, bytes_.size()));
    // Otherwise a small file could stand for gigabytes of text.
    total_ += size;
    if (total_ > bytes_.size()) fail("its strings overlap");
    return bytes_.substr(begin, size);
  }

  void check_table(size_t table, size_t count) const {
    if (table > bytes_.size() || count > (bytes_.size() - table) / kEntryBytes)
      fail(fmt::format("a table of {} strings at byte {} ends behind the file of {} bytes", count,
                       table, bytes_.size()));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ParseError(place_, 0, what); }

  std::string_view bytes_;
  std::string_view place_;
  bool is_swapped_ = false;
  size_t total_ = 0;
};

std::string_view first_form(std::string_view text) { return text.substr(0, text.find('\0')); }

/// The rest of the header's line that begins so, up to a space, a semicolon or the line's end.
std::string_view header_value(std::string_view header, std::string_view key,
                              std::string_view ends) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + key.size());
  return rest.substr(0, std::min(rest.find_first_of(ends), rest.size()));
}

bool is_utf8_charset(std::string_view charset) {
  std::string upper;
  for (const char c : charset)
    upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper == "UTF-8" || upper == "UTF8" || upper == "US-ASCII" || upper == "ASCII";
}

}  // namespace

Catalogue parse_catalogue(std::string_view bytes, std::string_view place) {
  CatalogueBytes file(bytes, place);
  const size_t count = file.number(8);
  const size_t messages = file.number(12);
  const size_t translations = file.number(16);
  file.check_table(messages, count);
  file.check_table(translations, count);
  Catalogue catalogue;
  for (size_t i = 0; i < count; ++i) {
    std::string_view message = file.string(messages, i);
    const std::string_view translation = file.string(translations, i);
    if (message.empty()) {
      catalogue.charset = header_value(translation, "charset=", " ;\r\n");
      catalogue.project = single_spaced(header_value(translation, "Project-Id-Version:", "\r\n"));
      continue;
    }
    message = first_form(message);
    const size_t context = message.find('\4');
    if (context != std::string_view::npos) message.remove_prefix(context + 1);
    catalogue.messages.emplace_back(message, first_form(translation));
  }
  return catalogue;
}

Corpus read_catalogues(const std::filesystem::path& folder) {
  const std::vector<std::string> names = files_in(folder, ".mo");
  if (names.empty())
    throw ConfigError(
        fmt::format("{}: expected gettext's catalogues (.mo files), found none; they "
                    "come with the programs that are installed, unless the machine "
                    "leaves translations out",
                    folder.string()));
  Corpus corpus;
  std::vector<std::string> others;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::filesystem::path path = folder / names[i];
    const std::string bytes = read_file(path, kMaxCatalogueBytes);
    const Catalogue catalogue = parse_catalogue(bytes, path.string());
    const auto is_text = [](const auto& message) {
      return !first_invalid_utf8(message.first) && !first_invalid_utf8(message.second);
    };
    if (!is_utf8_charset(catalogue.charset) ||
        !std::all_of(catalogue.messages.begin(), catalogue.messages.end(), is_text)) {
      others.push_back(names[i]);
      continue;
    }
    for (const auto& [message, translation] : catalogue.messages) {
      corpus.at(Part::Train)
          .push_back(
              {single_spaced(message), single_spaced(translation), static_cast<uint32_t>(i)});
    }
    corpus.origins.push_back(
        {catalogue.project.empty() ? names[i] : single_spaced(catalogue.project),
         "",
         "that of the program: see /usr/share/doc/PACKAGE/copyright",
         {path.string()}});
  }
  if (!others.empty())
    corpus.notes.push_back(
        fmt::format("{} of {} catalogues are not in UTF-8 and were left out, as {}", others.size(),
                    names.size(), others.front()));
  return corpus;
}

std::filesystem::path catalogue_folder(const std::filesystem::path& folder,
                                       const std::string& language) {
  std::filesystem::path below = folder / language / "LC_MESSAGES";
  std::error_code ignored;
  if (std::filesystem::is_directory(below, ignored)) return below;
  if (std::filesystem::is_directory(folder, ignored) && folder != kLocaleFolder) return folder;
  throw ConfigError(
      fmt::format("there are no catalogues in '{}': {} is missing", language, below.string()));
}

}  // namespace penstock::text
