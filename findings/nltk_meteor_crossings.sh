#!/usr/bin/env bash
# NLTK's METEOR: of several equal words the last one is linked, not the one that crosses least.
#
# One would guess: align_words() takes, "in case there are multiple matches", that "which has the
# least number of crossing", as its documentation and METEOR's paper say (Banerjee and Lavie 2005,
# section 2.1). So a sentence that is the beginning of its reference has one chunk.
#
# What happens: both sentences are read from their ends, and each word is linked to the last equal
# word that is free. "the cat" beside "the cat saw the dog" has its "the" linked to the fourth word:
# two chunks of two words, which halves the score. The same words before another end score 0.399.
#
# Versions: nltk 3.10.4. Date: 2026-11-29.
# Source: nltk/translate/meteor_score.py, _match_enums().
#
# Output seen:
#   the cat | the cat saw the dog: 0.2128
#   the cat | the cat saw one dog: 0.3989
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nltk==3.10.4

cat >"$folder/program.py" <<'PYTHON'
from nltk.translate.meteor_score import meteor_score


class NoSynonyms:
    def synsets(self, word):
        return []


found = []
for reference in ("the cat saw the dog", "the cat saw one dog"):
    score = meteor_score([reference.split()], "the cat".split(), wordnet=NoSynonyms())
    found.append(round(score, 4))
    print(f"the cat | {reference}: {score:.4f}")
raise SystemExit(0 if found == [0.2128, 0.3989] else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
