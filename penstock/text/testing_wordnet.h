// For tests: a small WordNet in a folder.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "penstock/text/testing_folder.h"

namespace penstock::text {

/// `nouns`: "car 1 12" is a noun in one set of synonyms, 12; in any order.
inline void write_wordnet(const TestFolder& folder, std::vector<std::string> nouns,
                          const std::vector<std::string>& exceptions = {}) {
  std::sort(nouns.begin(), nouns.end());
  std::string index = "  1 a line of the licence, which begins with spaces\n";
  for (const std::string& noun : nouns) {
    std::istringstream fields(noun);
    std::string word, count, rest;
    fields >> word >> count;
    std::getline(fields, rest);
    index += word + " n " + count + " 2 @ ~ " + count + " 0" + rest + "  \n";
  }
  folder.write("index.noun", index);
  std::string irregular;
  for (const std::string& line : exceptions) irregular += line + "\n";
  folder.write("noun.exc", irregular);
  for (const char* pos : {"verb", "adj", "adv"}) {
    folder.write(std::string("index.") + pos, "");
    folder.write(std::string(pos) + ".exc", "");
  }
}

}  // namespace penstock::text
