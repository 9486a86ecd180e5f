#include "penstock/text/clean.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "penstock/text/plain_text.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/mixing_hash.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/text/plural.h"

namespace penstock::text {

namespace {

/// Sentences are compared by 64 bits: of ten million, two differing ones are taken for the same
/// with a chance of three in a million.
using Keys = std::unordered_set<uint64_t, MixingHash>;

uint64_t source_key(const Sentence& sentence) { return hash_name(folded(sentence.source)); }

/// The counter of the reason why the sentence is of no use; null: it is.
int64_t* reason(const Sentence& sentence, const CleanRules& rules, Removed& removed) {
  const bool is_pair = rules.task == Task::Translation;
  if (sentence.source.empty() || (is_pair && sentence.target.empty())) return &removed.empty;
  if (is_pair && sentence.source == sentence.target) return &removed.equal;
  const int64_t words = count_words(sentence.source);
  const int64_t others = is_pair ? count_words(sentence.target) : words;
  if (std::min(words, others) < rules.min_words) return &removed.too_short;
  if (rules.max_words && std::max(words, others) > *rules.max_words) return &removed.too_long;
  return nullptr;
}

template <class Keep>
void keep_only(std::vector<Sentence>& sentences, Keep keep) {
  size_t kept = 0;
  for (size_t i = 0; i < sentences.size(); ++i) {
    if (!keep(i)) continue;
    if (kept != i) sentences[kept] = std::move(sentences[i]);
    ++kept;
  }
  sentences.resize(kept);
}

template <class KeyOf>
double share_in_train(const Corpus& corpus, KeyOf key_of) {
  Keys train;
  for (const Sentence& sentence : corpus.at(Part::Train)) train.insert(key_of(sentence));
  const std::vector<Sentence>& test = corpus.at(Part::Test);
  const auto count = std::count_if(test.begin(), test.end(), [&](const Sentence& sentence) {
    return train.count(key_of(sentence)) > 0;
  });
  return test.empty() ? 0 : static_cast<double>(count) / static_cast<double>(test.size());
}

void check_share(double share, std::string_view part) {
  if (!(share >= 0 && share <= 0.5))
    throw ConfigError(fmt::format("the share of {} must be from 0 to 0.5, found {}", part, share));
}

/// The part that each document goes to. `sentences` counts those of each document.
std::vector<Part> parts_of_documents(const std::vector<int64_t>& sentences, const Corpus& corpus,
                                     const SplitShares& shares) {
  std::vector<size_t> order;
  int64_t total = 0;
  for (size_t d = 0; d < sentences.size(); ++d) {
    if (sentences[d] > 0) order.push_back(d);
    total += sentences[d];
  }
  Rng rng(shares.seed);
  rng.shuffle<size_t>(order);
  std::vector<Part> parts(sentences.size(), Part::Train);
  size_t next = 0;
  for (const auto& [part, share] :
       {std::pair{Part::Test, shares.test}, {Part::Valid, shares.valid}}) {
    if (corpus.is_given[index_of(part)]) continue;
    const double wanted = share * static_cast<double>(total);
    for (double taken = 0; taken < wanted && next < order.size(); ++next) {
      parts[order[next]] = part;
      taken += static_cast<double>(sentences[order[next]]);
    }
  }
  if (next >= order.size())
    throw ConfigError(fmt::format("nothing is left to train on: {} in {}",
                                  plural(total, "sentence"),
                                  plural(std::ssize(order), "document")));
  return parts;
}

/// Of all sentences, which is the first with its source, and with none of the given parts'.
std::vector<bool> first_ones(const Corpus& corpus, Removed& removed) {
  const std::vector<Sentence>& train = corpus.at(Part::Train);
  Keys given;
  for (const Part part : {Part::Valid, Part::Test}) {
    for (const Sentence& sentence : corpus.at(part)) given.insert(source_key(sentence));
  }
  Keys seen;
  std::vector<bool> first(train.size());
  for (size_t i = 0; i < train.size(); ++i) {
    const uint64_t key = source_key(train[i]);
    const bool recurs = given.count(key) > 0;
    first[i] = !recurs && seen.insert(key).second;
    if (!first[i]) ++(recurs ? removed.recurring : removed.repeated);
  }
  return first;
}

/// Moves sentences of train to the parts that their documents go to.
void distribute(Corpus& corpus, const std::vector<Part>& parts) {
  std::vector<Sentence>& train = corpus.at(Part::Train);
  for (Sentence& sentence : train) {
    const Part part = parts[sentence.document];
    if (part != Part::Train) corpus.at(part).push_back(std::move(sentence));
  }
  // What was moved kept its document.
  keep_only(train, [&](size_t i) { return parts[train[i].document] == Part::Train; });
}

/// The share of the test that would be in train, too, if nothing was left out but the unusable.
double recurrence_before(const Corpus& corpus, const std::vector<Part>& parts) {
  Corpus divided;
  divided.is_given = corpus.is_given;
  if (corpus.is_given[index_of(Part::Test)]) divided.at(Part::Test) = corpus.at(Part::Test);
  for (const Sentence& sentence : corpus.at(Part::Train))
    divided.at(parts[sentence.document]).push_back({sentence.source, "", 0});
  return share_in_train(divided, source_key);
}

void measure(const Corpus& corpus, Recurrence& recurrence) {
  recurrence.after = share_in_train(corpus, source_key);
  recurrence.letters = share_in_train(
      corpus, [](const Sentence& sentence) { return hash_name(letters_of(sentence.source)); });
}

}  // namespace

Divided clean_and_split(Corpus& corpus, const CleanRules& rules, const SplitShares& shares) {
  check_share(shares.valid, "valid");
  check_share(shares.test, "test");
  Divided divided;
  std::vector<Sentence>& train = corpus.at(Part::Train);
  if (corpus.is_fixed) {
    if (train.empty()) throw ConfigError("nothing is there to train on: the text is empty");
    measure(corpus, divided.recurrence);
    divided.recurrence.before = divided.recurrence.after;
    return divided;
  }
  keep_only(train, [&](size_t i) {
    int64_t* const counter = reason(train[i], rules, divided.removed);
    if (counter != nullptr) ++*counter;
    return counter == nullptr;
  });
  const std::vector<bool> is_first = first_ones(corpus, divided.removed);
  uint32_t documents = 0;
  for (const Sentence& sentence : train) documents = std::max(documents, sentence.document + 1);
  std::vector<int64_t> sentences(documents);
  for (size_t i = 0; i < train.size(); ++i) sentences[train[i].document] += is_first[i] ? 1 : 0;
  const std::vector<Part> parts = parts_of_documents(sentences, corpus, shares);
  divided.recurrence.before = recurrence_before(corpus, parts);
  keep_only(train, [&](size_t i) { return is_first[i]; });
  distribute(corpus, parts);
  measure(corpus, divided.recurrence);
  return divided;
}

}  // namespace penstock::text
