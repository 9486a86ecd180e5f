#include "penstock/text/sources/sword.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/text/sources/testing_binaries.h"
#include "penstock/text/testing_folder.h"
#include "penstock/util/error.h"

namespace penstock::text {
namespace {

using testing::HasSubstr;

using Work = std::vector<std::vector<std::string>>;

void install(const TestFolder& root, const std::string& name, const std::string& more,
             const Work& old_testament, const Work& new_testament) {
  root.write("mods.d/" + name + ".conf",
             "# A comment\n[" + name + "]\nDataPath=./modules/" + name +
                 "/\nModDrv=zText\nCompressType=ZIP\nBlockType=BOOK\nEncoding=UTF-8\n"
                 "Versification=KJV\nVersion=1.5\nDistributionLicense=Public Domain\n" +
                 more);
  for (const auto& [testament, work] : {std::pair{"ot", &old_testament}, {"nt", &new_testament}}) {
    const VerseBytes files = verse_bytes(*work);
    const std::string path = "modules/" + name + "/" + testament;
    root.write(path + ".bzs", files.blocks);
    root.write(path + ".bzv", files.verses);
    root.write(path + ".bzz", files.packed);
  }
}

const Work kOld = {
    {"<chapter osisID=\"Gen.1\" sID=\"Gen.1\"/>", "In the <w>beginning</w>.",
     "And <transChange>the</transChange> earth<note>that is</note>.<chapter eID=\"Gen.1\"/>",
     "<chapter osisID=\"Gen.2\" sID=\"Gen.2\"/><title>Two</title>", "Thus."}};
const Work kNew = {{"The book of"}};

TEST(Sword, VersesHaveNoMarkupNotesAndTitles) {
  EXPECT_EQ(
      plain_verse("<title>A <b>x</b></title>And <w lemma=\"1\">God</w> <note>n <note>m</note> "
                  "</note>said,<lb/>Let&amp;be.<milestone/>"),
      "And God said, Let&be.");
  EXPECT_EQ(plain_verse("</note>a"), "a");
}

TEST(Sword, WorksAreAlignedVerseByVerse) {
  const TestFolder root;
  install(root, "engA", "Abbreviation=KJV\n", kOld, kNew);
  install(root, "spaB", "Abbreviation=RV\n",
          {{"", "EN el principio.", "Y la tierra.", "", "Y fueron."}}, {{"LIBRO de"}});
  const Corpus corpus = read_sword(root.path(), {"kjv", "SPA"});
  std::vector<Sentence> verses;
  for (const Sentence& sentence : corpus.at(Part::Train)) {
    if (!sentence.source.empty()) verses.push_back(sentence);
  }
  EXPECT_EQ(verses, (std::vector<Sentence>{{"In the beginning.", "EN el principio.", 1},
                                           {"And the earth.", "Y la tierra.", 1},
                                           {"Thus.", "Y fueron.", 2},
                                           {"The book of", "LIBRO de", 3}}));
  ASSERT_EQ(corpus.origins.size(), 2u);
  EXPECT_EQ(corpus.origins[1].name, "SWORD spaB");
  EXPECT_EQ(corpus.origins[1].version, "1.5");
  EXPECT_EQ(corpus.origins[1].licence, "Public Domain");
  EXPECT_EQ(read_sword(root.path(), {"engA"}).at(Part::Train).size(), 6u);
}

TEST(Sword, SaysWhatItCannotRead) {
  const TestFolder root;
  const auto refusal = [&](const std::vector<std::string>& names) -> std::string {
    try {
      read_sword(root.path(), names);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({"KJV"}), HasSubstr("apt-get install sword-text-kjv"));
  install(root, "engA", "", kOld, kNew);
  EXPECT_THAT(refusal({"spa"}), HasSubstr("there is no work 'spa', found engA"));
  install(root, "engB", "", kOld, {});
  EXPECT_THAT(refusal({"eng"}), HasSubstr("several works begin with 'eng'"));
  EXPECT_THAT(refusal({"engA", "engB"}), HasSubstr("engA has 6 entries and engB has 5"));
  for (const auto& [more, words] :
       {std::pair{"ModDrv=RawText\n", "expected ModDrv = zText, found RawText"},
        {"Versification=Luther\n", "expected Versification = KJV, found Luther"},
        {"Encoding=Latin-1\n", "expected Encoding = UTF-8"},
        {"CipherKey=\n", "locked"},
        {"DataPath=./nowhere/\n", "expected its verses in"}}) {
    install(root, "engB", more, kOld, kNew);
    EXPECT_THAT(refusal({"engA", "engB"}), HasSubstr(words));
  }
  root.write("mods.d/engB.conf", "no name = x\n");
  EXPECT_THAT(refusal({"engA"}), HasSubstr("engB.conf:1: expected the name of a work in brackets"));
}

}  // namespace
}  // namespace penstock::text
