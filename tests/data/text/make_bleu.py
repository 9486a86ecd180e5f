"""Made-up sentences and what sacreBLEU says of them: bleu_hypotheses.txt, bleu_references.txt,
bleu_other_references.txt and bleu_scores.txt, which penstock/text/metrics/bleu_test.cpp reads.

    pip install sacrebleu==2.6.0
    python make_bleu.py

Scores: of the first n lines together for n = 1, 2, ..., a line each. First with the first
references, then with both; last of the line alone.
"""

import random

import sacrebleu

WORDS = """the a of to in and is that it with as for was on are by this be from at or which an
model models text token house tree river garden light-weight state-of-the-art Äpfel Größe niño
café „Haus“ »Wort« ‚x‘ isn't don't U.S. e.g. 3.14 1,000 2-3 10-fold $5 50% C++ a/b <b> &amp;
&quot;Hi&quot; &lt;x&gt;
[1] (see {below}) #7 x=y ~ ^ ` | \\ @home foo_bar end. stop, go; why? so: -- - ... . , ! 5. 7, .5 ,x
1-a a-1 …  — – 東京 🙂 <skipped> A\u00a0B C\u2003D""".split("\n")
WORDS = [word for line in WORDS for word in line.split(" ") if word]


def sentence(rng):
    words = [rng.choice(WORDS) for _ in range(rng.choice((1, 2, 3, 4, 6, 9, 14, 20)))]
    while len(" ".join(words)) > 80:  # lines of files here have at most 100 columns
        words.pop()
    return " ".join(words)


def changed(rng, text):
    """Some words left out, doubled, replaced or moved."""
    words = []
    for word in text.split(" "):
        act = rng.random()
        if act < 0.08:
            continue
        if act < 0.16:
            word = rng.choice(WORDS)
        words.append(word)
        if act > 0.95:
            words.append(word)
    if len(words) > 3 and rng.random() < 0.3:
        words[1], words[2] = words[2], words[1]
    return " ".join(words)


def main():
    rng = random.Random(47)
    references = [sentence(rng) for _ in range(300)]
    others = [changed(rng, text) for text in references]
    hypotheses = [changed(rng, text) for text in references]
    for name, lines in (
        ("references", references),
        ("other_references", others),
        ("hypotheses", hypotheses),
    ):
        with open(f"bleu_{name}.txt", "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
    with open("bleu_scores.txt", "w", encoding="utf-8") as file:
        for n in range(1, len(hypotheses) + 1):
            one = sacrebleu.corpus_bleu(hypotheses[:n], [references[:n]]).score
            both = sacrebleu.corpus_bleu(hypotheses[:n], [references[:n], others[:n]]).score
            alone = sacrebleu.corpus_bleu(hypotheses[n - 1 : n], [references[n - 1 : n]]).score
            file.write(f"{one:.4f} {both:.4f} {alone:.4f}\n")


main()
