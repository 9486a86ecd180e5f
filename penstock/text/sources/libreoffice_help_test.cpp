#include "penstock/text/sources/libreoffice_help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/text/testing_folder.h"
#include "penstock/util/error.h"

namespace penstock::text {
namespace {

using testing::HasSubstr;

/// A page as the packages have them: headings around the page's own text.
std::string page(const std::string& own) {
  return "<!DOCTYPE html><html><body><header><p>LibreOffice 7.4 Help</p></header>"
         "<div id=\"DisplayArea\" itemprop=\"x\">" +
         own + "</div><div id=\"SearchFrame\"></div><footer><p>debug</p></footer></body></html>";
}

TEST(LibreOfficeHelp, ParagraphsOfThePageAloneAreTaken) {
  const auto found = help_paragraphs(
      page("<h1 id=\"hd_1\" dir=\"auto\">Web&nbsp;Layout</h1>\n<p id=\"par_1\" class=\"paragraph\">"
           "<a name=\"x\"></a><span class=\"avis\">Shows a\n page.</span> Or<br>two &lt;b&gt;</p>"
           "<p id=\"par_2\" class=\"code\">MsgBox 1</p><p>no id</p><p id=\"par_3\"> </p>"));
  EXPECT_EQ(found, (std::vector<HelpParagraph>{{"hd_1", "Web Layout"},
                                               {"par_1", "Shows a page. Or two <b>"},
                                               {"par_2", "MsgBox 1", true},
                                               {"", "no id"},
                                               {"par_3", ""}}));
}

TEST(LibreOfficeHelp, PagesOfEqualPathsArePairedByPlaceOrById) {
  const TestFolder root;
  root.write("en-US/text/a/1.html", page("<p>first</p><p id=\"x\">second</p>"));
  root.write("de/text/a/1.html", page("<p>erstens</p><p id=\"x\">zweitens</p>"));
  root.write("en-US/text/a/2.html",
             page("<p>gone</p><p id=\"y\">third</p><p class=\"code\" id=\"c\">x = 1</p>"));
  root.write("de/text/a/2.html", page("<p id=\"y\">drittens</p><p id=\"c\">x = 1</p>"));
  root.write("en-US/text/b.html", page("<p>without a partner</p>"));
  const Corpus corpus = read_libreoffice_help(root.path(), {"en-US", "de"});
  EXPECT_EQ(corpus.at(Part::Train),
            (std::vector<Sentence>{
                {"first", "erstens", 0}, {"second", "zweitens", 0}, {"third", "drittens", 1}}));
  ASSERT_EQ(corpus.origins.size(), 2u);
  EXPECT_EQ(corpus.origins[1].name, "libreoffice-help-de");
  EXPECT_EQ(corpus.origins[0].licence, "MPL-2.0");
  const Corpus english = read_libreoffice_help(root.path(), {"en-US"});
  EXPECT_EQ(english.at(Part::Train).size(), 5u);
}

TEST(LibreOfficeHelp, FunctionsInTheOrderOfEachLanguageAreMatchedById) {
  const TestFolder root;
  root.write(
      "en-US/text/f.html",
      page("<p>Functions</p><p id=\"n\">NOW</p><p id=\"s\">Syntax</p><p id=\"n2\">The time.</p>"
           "<p id=\"t\">TODAY</p><p id=\"s\">Syntax</p><p id=\"t2\">The day.</p>"));
  root.write("de/text/f.html",
             page("<p>Funktionen</p><p id=\"t\">HEUTE</p><p id=\"s\">Schreibweise</p>"
                  "<p id=\"t2\">Der Tag.</p><p id=\"n\">JETZT</p><p id=\"s\">Schreibweise</p>"
                  "<p id=\"n2\">Die Zeit.</p>"));
  EXPECT_EQ(read_libreoffice_help(root.path(), {"en-US", "de"}).at(Part::Train),
            (std::vector<Sentence>{{"NOW", "JETZT", 0},
                                   {"Syntax", "Schreibweise", 0},
                                   {"The time.", "Die Zeit.", 0},
                                   {"TODAY", "HEUTE", 0},
                                   {"Syntax", "Schreibweise", 0},
                                   {"The day.", "Der Tag.", 0}}));
}

TEST(LibreOfficeHelp, NamesThePackageThatIsMissing) {
  const TestFolder root;
  root.write("en-US/text/1.html", page(""));
  try {
    read_libreoffice_help(root.path(), {"en-US", "pt-BR"});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("apt-get install libreoffice-help-pt-br"));
  }
  root.write("en-US/text/1.html", "\xFF");
  EXPECT_THROW(read_libreoffice_help(root.path(), {"en-US"}), ParseError);
}

}  // namespace
}  // namespace penstock::text
