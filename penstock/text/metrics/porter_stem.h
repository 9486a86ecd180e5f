// The stem of an English word: what "connects", "connected" and "connection" share.
//
//   porter_stem("relational") == "relat";
//
// Source: Porter, "An algorithm for suffix stripping", Program 14(3), 1980, steps 1a to 5b. Differs
// as NLTK's PorterStemmer does by default, so that METEOR's stems are the same:
//
// - words of one or two letters, and a few irregular ones, have their stem in a table
// - "ies" and "ied" of words of four letters become "ie"; "ied" of longer ones "i"
// - y becomes i behind a consonant that is not the first letter
// - "alli" is tried first, "bli" stands for "abli", and "fulli" and "logi" are rules, too
// - a vowel and a consonant alone count as the end of a short syllable
#pragma once

#include <string>
#include <string_view>

namespace penstock::text {

/// Of a word in lower case. Bytes that are no ASCII letters count as consonants. Pure; O(size).
std::string porter_stem(std::string_view word);

}  // namespace penstock::text
