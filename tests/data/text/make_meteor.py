"""Made-up words and sentences, and what NLTK says of them: porter_stems.txt,
meteor_hypotheses.txt, meteor_references.txt, meteor_other_references.txt and meteor_scores.txt,
which penstock/text/metrics/{porter_stem,meteor}_test.cpp read.

    pip install nltk==3.10.4
    python make_meteor.py

In a sentence no stem is there twice, so that there is one alignment alone. Scores: of a line with
the first reference, with both; then the same with synonyms, of words that are their own stems. The
synonyms are those of `SYNONYMS`; meteor_test.cpp has them as files of WordNet's form.
"""

import random

from nltk.stem.porter import PorterStemmer
from nltk.translate.meteor_score import meteor_score

ROOTS = """connect relat condit rational valenc hesit digit conform radic differ vil analog
vietnam oper feud decis hope call formal sensit triplic form electr good reviv allow infer airlin
gyroscop adjust defens irrit replac depend adopt homolog commun activ angular effect bowdler probat
rat ceas control roll sk hopp fil fail siz troubl plaster spy fl enjoy di ti geo archaeo y syzyg
toy be fu ee add buzz hiss box tax snow play caf\u00e9 \u4e1c""".split()
ENDINGS = """s es ies ss sses ed ied eed ing y ly ational tional enci anci izer bli abli alli entli
eli ousli ization ation ator alism iveness fulness ousness aliti iviti biliti fulli logi logy icate
ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent ion sion tion ou ism
ate iti ous ive ize e ll lled lling at bl iz""".split()
IRREGULAR = """sky skies dying lying tying news innings inning outings outing cannings canning howe
proceed exceed succeed a to is it's 3.14 dies died lies spied spies radically hopefully geology
theology enjoyment yyyyes controlling falling""".split()
WORDS = """the a red blue heart cat dog tree river house moves turns runs grows circle left right
while behind before quickly slowly small large picture connected connecting connection relation
relative happy happiness car begin big , . 3.14 \u00c4pfel caf\u00e9""".split()
# Words that are their own stems: else NLTK would not know their synonyms.
SYNONYMS = [{"car", "auto"}, {"begin", "start"}, {"big", "grand"}, {"cat", "tom"}, {"dog", "hound"}]


class WordNet:
    """Of NLTK's reader what METEOR asks."""

    class Lemma:
        def __init__(self, name):
            self._name = name

        def name(self):
            return self._name

    class Synset:
        def __init__(self, names):
            self._names = names

        def lemmas(self):
            return [WordNet.Lemma(name) for name in sorted(self._names)]

    def __init__(self, synonyms):
        self._synonyms = synonyms

    def synsets(self, word):
        return [WordNet.Synset(names) for names in self._synonyms if word in names]


STEMMER = PorterStemmer()


def sentence(rng, words):
    """Without two words of one stem."""
    rng.shuffle(words)
    stems, chosen = set(), []
    for word in words[: rng.choice((1, 2, 4, 7, 10, 13))]:
        stem = STEMMER.stem(word.lower())
        if stem not in stems:
            chosen.append(word)
        stems.add(stem)
    return chosen


def changed(rng, words):
    """Some left out, moved or replaced, by another form or another word."""
    spare = [word for word in WORDS if STEMMER.stem(word.lower()) not in map(STEMMER.stem, words)]
    forms = {"connected": "connecting", "happy": "happiness", "relation": "relative"}
    forms |= {"car": "auto", "begin": "start", "big": "grand", "cat": "tom", "dog": "hound"}
    result = []
    for word in words:
        act = rng.random()
        if act < 0.12:
            continue
        if act < 0.3:
            word = forms.get(word, word)
        elif act < 0.6:
            word = rng.choice(spare)
        if rng.random() < 0.1:
            result.insert(0, word)
        else:
            result.append(word)
    stems = [STEMMER.stem(word.lower()) for word in result]
    return [word for i, word in enumerate(result) if stems[i] not in stems[:i]] or ["nothing"]


def main():
    rng = random.Random(48)
    words = IRREGULAR + [root + ending for root in ROOTS for ending in rng.sample(ENDINGS, 24)]
    with open("porter_stems.txt", "w", encoding="utf-8") as file:
        for word in dict.fromkeys(words):
            if word.isascii() or len(word) > 5:
                file.write(f"{word} {STEMMER.stem(word)}\n")
    lines = {"references": [], "other_references": [], "hypotheses": []}
    scores = []
    for _ in range(200):
        reference = sentence(rng, list(WORDS))
        other = changed(rng, reference)
        hypothesis = changed(rng, reference)
        lines["references"].append(reference)
        lines["other_references"].append(other)
        lines["hypotheses"].append(hypothesis)
        row = []
        for synonyms in ([], SYNONYMS):
            for references in ([reference], [reference, other]):
                row.append(meteor_score(references, hypothesis, wordnet=WordNet(synonyms)))
        scores.append(row)
    for name, sentences in lines.items():
        with open(f"meteor_{name}.txt", "w", encoding="utf-8") as file:
            file.writelines(" ".join(words) + "\n" for words in sentences)
    with open("meteor_scores.txt", "w", encoding="utf-8") as file:
        file.writelines(" ".join(f"{score:.8f}" for score in row) + "\n" for row in scores)


main()
