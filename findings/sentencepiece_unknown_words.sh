#!/usr/bin/env bash
# SentencePiece: in a vocabulary of words, unknown words that follow each other are one token.
#
# One would guess: with model_type=word each word between spaces is one token, and each word that is
# not in the vocabulary is one unknown token. So a line has as many tokens as words, and perplexity
# by tokens is that by words.
#
# What happens: a run of unknown words becomes a single unknown token. A line of four words of which
# three are unknown has two tokens. On Penn Treebank, whose text has "<unk> <unk>" itself, counts of
# tokens are too small, and the model never sees two unknown words in a row.
# The pieces of characters (BPE) merge runs of unknown characters in the same way.
#
# Versions: sentencepiece 0.2.3. Date: 2026-11-29. Debian's 0.1.97 does the same.
# Source: src/sentencepiece_processor.cc, PopulateSentencePieceText.
#
# Output seen:
#   'q r y a' has 4 words and the tokens [0, 3]
#   'q a r y' has 4 words and the tokens [0, 3, 0]
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sentencepiece==0.2.3

cat >"$folder/program.py" <<'PYTHON'
import io

import sentencepiece

model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(["a b c d"] * 4), model_writer=model, model_type="word",
    vocab_size=50, hard_vocab_limit=False, minloglevel=2)
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
found = []
for line in "q r y a", "q a r y":
    tokens = processor.encode(line)
    print(f"{line!r} has {len(line.split())} words and the tokens {tokens}")
    found.append(len(tokens))
raise SystemExit(0 if found == [2, 3] else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
