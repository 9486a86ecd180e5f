#include "penstock/text/sources/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "penstock/text/sources/testing_binaries.h"
#include "penstock/text/testing_folder.h"
#include "penstock/util/error.h"

namespace penstock::text {
namespace {

using testing::HasSubstr;
using std::string_view_literals::operator""sv;

const std::pair<std::string, std::string> kHeader = {
    "", "Project-Id-Version: tool 1.2\nContent-Type: text/plain; charset=UTF-8\n"};

std::string catalogue_refusal(const std::string& bytes) {
  try {
    parse_catalogue(bytes, "x.mo");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(Catalogue, HasMessagesWithoutContextsAndOfPluralsTheFirstForm) {
  using std::string_literals::operator""s;
  for (const bool swapped : {false, true}) {
    const std::string bytes = catalogue_bytes({kHeader,
                                               {"menu\4Open file", "Datei öffnen"},
                                               {"%d file\0%d files"s, "%d Datei\0%d Dateien"s}},
                                              swapped);
    const Catalogue catalogue = parse_catalogue(bytes, "x.mo");
    EXPECT_EQ(catalogue.project, "tool 1.2");
    EXPECT_EQ(catalogue.charset, "UTF-8");
    ASSERT_EQ(catalogue.messages.size(), 2u);
    EXPECT_EQ(catalogue.messages[0], std::pair("Open file"sv, "Datei öffnen"sv));
    EXPECT_EQ(catalogue.messages[1], std::pair("%d file"sv, "%d Datei"sv));
  }
}

TEST(Catalogue, DamageIsFoundAndSaid) {
  const std::string good = catalogue_bytes({kHeader, {"a", "b"}});
  EXPECT_EQ(catalogue_refusal(good), "");
  EXPECT_THAT(catalogue_refusal(""), HasSubstr("at least 20 bytes, found 0"));
  EXPECT_THAT(catalogue_refusal(std::string(100, 'x')), HasSubstr("expected a catalogue"));
  EXPECT_THAT(catalogue_refusal(good.substr(0, good.size() - 3)),
              HasSubstr("ends behind the file"));
  const auto with = [&](size_t at, uint32_t value) {
    std::string bytes = good;
    return bytes.replace(at, 4, number_bytes(value));
  };
  EXPECT_THAT(catalogue_refusal(with(8, 0xFFFFFFFF)), HasSubstr("table of 4294967295 strings"));
  EXPECT_THAT(catalogue_refusal(with(12, 0xFFFFFFF0)), HasSubstr("ends behind the file"));
  EXPECT_THAT(catalogue_refusal(with(28, 0xFFFFFFFF)), HasSubstr("string 0 ends behind"));
  // Every string is the whole file: a thousand of these would be a thousand files.
  std::string greedy =
      catalogue_bytes(std::vector<std::pair<std::string, std::string>>(50, {"a", "b"}));
  for (size_t i = 0; i < 100; ++i)
    greedy.replace(28 + 8 * i, 8,
                   number_bytes(static_cast<uint32_t>(greedy.size())) + number_bytes(0));
  EXPECT_THAT(catalogue_refusal(greedy), HasSubstr("strings overlap"));
}

TEST(Catalogue, NeitherCutsNorChangedBytesCrash) {
  const std::string good = catalogue_bytes({kHeader, {"one message", "eine Meldung"}, {"a", "b"}});
  for (size_t size = 0; size < good.size(); ++size) catalogue_refusal(good.substr(0, size));
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int value : {0, 1, 127, 255}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      catalogue_refusal(bytes);
    }
  }
}

TEST(Catalogue, AFolderGivesADocumentForEachFile) {
  const TestFolder root;
  root.write("de/LC_MESSAGES/a.mo",
             catalogue_bytes({kHeader, {"The  file\nis open", "Sie ist offen"}}));
  root.write("de/LC_MESSAGES/b.mo", catalogue_bytes({kHeader, {"yes", "ja"}}));
  root.write(
      "de/LC_MESSAGES/c.mo",
      catalogue_bytes({{"", "Content-Type: text/plain; charset=ISO-8859-1\n"}, {"a", "\xE4"}}));
  const auto folder = catalogue_folder(root.path(), "de");
  EXPECT_EQ(folder, root.path() / "de/LC_MESSAGES");
  EXPECT_EQ(catalogue_folder(folder, "de"), folder);
  const Corpus corpus = read_catalogues(folder);
  EXPECT_EQ(corpus.at(Part::Train),
            (std::vector<Sentence>{{"The file is open", "Sie ist offen", 0}, {"yes", "ja", 1}}));
  ASSERT_EQ(corpus.notes.size(), 1u);
  EXPECT_THAT(corpus.notes[0], HasSubstr("1 of 3 catalogues are not in UTF-8"));
  EXPECT_EQ(corpus.origins.size(), 2u);
  EXPECT_EQ(corpus.origins[0].name, "tool 1.2");
  EXPECT_THROW(read_catalogues(root.path()), ConfigError);
  EXPECT_THROW(catalogue_folder(root.path() / "missing", "de"), ConfigError);
}

}  // namespace
}  // namespace penstock::text
