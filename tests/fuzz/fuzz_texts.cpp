// The first byte says what the others are: a catalogue of gettext, a page of help, the
// configuration of a work, or the three files of its verses, whose sizes the next bytes say.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "penstock/text/sources/catalogue.h"
#include "penstock/text/sources/libreoffice_help.h"
#include "penstock/text/sources/sword.h"
#include "penstock/text/sources/verse_file.h"
#include "penstock/util/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock::text;
  if (size < 3) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 3, size - 3);
  try {
    if (data[0] == 'c') {
      parse_catalogue(rest, "fuzz");
    } else if (data[0] == 'h') {
      help_paragraphs(rest);
    } else if (data[0] == 'w') {
      parse_sword_module(rest, "fuzz");
    } else {
      const std::string_view later = rest.substr(std::min<size_t>(data[1], rest.size()));
      const std::string_view last = later.substr(std::min<size_t>(data[2], later.size()));
      const VerseFiles files{
          .blocks = rest.substr(0, data[1]), .verses = later.substr(0, data[2]), .packed = last};
      for (const VerseEntry& verse : parse_verses(files, "fuzz")) plain_verse(verse.text);
    }
  } catch (const penstock::ParseError&) {
  }
  return 0;
}
