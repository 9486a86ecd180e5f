#include "penstock/text/sources/text_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/text/corpus.h"
#include "penstock/text/plain_text.h"
#include "penstock/util/error.h"
#include "penstock/util/files/file_bytes.h"

namespace penstock::text {

std::vector<std::string> lines_of(std::string_view text, std::string_view place) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (const auto bad = first_invalid_utf8(line)) {
      throw ParseError(
          place, static_cast<int64_t>(lines.size()) + 1,
          fmt::format("expected UTF-8, found the byte 0x{:02X} as byte {} of the line; convert the "
                      "file, as by iconv -f LATIN1 -t UTF-8",
                      static_cast<unsigned char>(line[*bad]), *bad + 1));
    }
    lines.push_back(single_spaced(line));
    at = end + 1;
  }
  return lines;
}

std::vector<std::string> read_lines(const std::filesystem::path& file) {
  const FileBytes bytes(file, kMaxPlainTextBytes);
  // Each line has a place of its own, here and as a sentence.
  constexpr int64_t kPerLine = 2 * sizeof(std::string) + sizeof(Sentence);
  const std::string_view view = bytes.view();
  const int64_t lines = std::count(view.begin(), view.end(), '\n') + 1;
  require_memory(2 * static_cast<int64_t>(view.size()) + lines * kPerLine,
                 fmt::format("the text of {}", file.string()));
  return lines_of(view, file.string());
}

}  // namespace penstock::text
