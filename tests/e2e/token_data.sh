# Texts and translations as folders of tokens: from plain files, pages of help, a user's catalogues;
# BLEU; what is refused. No package of texts is needed.
source "$(dirname "$0")/lib.sh"

page() {
  local n
  mkdir -p "help/$1/text"
  {
    printf '<html><body><p>title</p><div id="DisplayArea">'
    for n in $(seq 40); do printf '<p id="par_%s">%s %s %s.</p>' "$n" "$3" "$2" "$n"; done
    printf '</div><div id="SearchFrame"></div></body></html>'
  } >"help/$1/text/$2.html"
}
for i in $(seq 12); do
  page en-US "$i" 'This is the help of page'
  page de "$i" 'Das ist die Hilfe zur Seite'
  echo "a small text of line $i, which <unk> knows" >>ptb.txt
done
mkdir ptb
for part in train valid test; do cp ptb.txt ptb/ptb.$part.txt; done

# From pages to tokens: all pairs are there, whole pages go to the test.
help="data translation --from libreoffice-help help --languages en-US de --vocabulary 120"
run 0 $help --valid-share 0.1 --test-share 0.2 -o pairs
grep -q 'of the test.s sources, 0.0 % are in train' out || fail "recurrence: $(cat out)"
grep -q 'next: penstock train --model gnmt8 --data pairs --metric bleu' out ||
  fail "no next command: $(cat out)"
[ "$(cat pairs/test.source.txt pairs/valid.source.txt | wc -l)" -eq 200 ] ||
  fail "expected 5 pages of 40 lines, found $(wc -l pairs/*.txt)"
[ "$(wc -c <pairs/train.target.idx)" -eq $((8 * 281)) ] || fail "$(ls -l pairs)"
run 0 $help --valid-share 0.1 --test-share 0.2 -o again --json
json_keys format task vocabulary parts sources removed recurs seed command output notes
for file in vocabulary.model train.source.bin train.target.bin test.target.txt; do
  cmp -s "pairs/$file" "again/$file" || fail "another run wrote another $file"
done
run 0 $help --seed 2 --valid-share 0.1 --test-share 0.2 -o other
cmp -s pairs/test.source.txt other/test.source.txt && fail "another seed has the same test"

# A row of tokens of Penn Treebank's form; the trainer reads it, where there is one.
run 0 data text --from ptb -o words --json
grep -q '"type":"word"' out || fail "Penn Treebank has words: $(cat out)"
[ "$(numbers longest | head -n 1)" = 9 ] || fail "longest: $(cat out)"
run 0 data text --from ptb.txt --vocabulary 60 -o text
[ -s text/train.bin ] && [ -s text/vocabulary.model ] || fail "$(ls -l text)"

# BLEU: all right, partly right, and files that do not fit.
run 0 data bleu pairs/test.target.txt pairs/test.target.txt
grep -q '^BLEU 100.00 ' out || fail "the same file: $(cat out)"
sed 's/Hilfe/Seite/' pairs/test.target.txt >worse.txt
run 0 data bleu worse.txt pairs/test.target.txt --json
json_keys bleu precisions brevity_penalty
numbers bleu | awk '!($1 > 50 && $1 < 90) { exit 1 }' || fail "worse.txt: $(cat out)"
head -n 3 worse.txt >short.txt
refused 'worse.txt has 120 lines, short.txt has 3' data bleu worse.txt short.txt
refused 'worse.txt has 120 lines, short.txt has 3' data meteor worse.txt short.txt

# METEOR, with a WordNet of two words, and without.
mkdir wordnet
for pos in noun verb adj adv; do touch "wordnet/index.$pos" "wordnet/$pos.exc"; done
printf 'automobile n 1 0 1 0 00000012\ncar n 1 0 1 0 00000012\n' >wordnet/index.noun
echo 'the cars are red' >said.txt
echo 'the automobile was red' >meant.txt
echo 'the cars are' >other.txt
run 0 data meteor said.txt meant.txt --wordnet wordnet --json
json_keys meteor of_sums links chunks synonyms
[ "$(numbers links)" = 3 ] || fail "expected 3 linked words: $(cat out)"
run 0 data meteor said.txt meant.txt other.txt --no-synonyms
grep -q '^METEOR 0.9498' out || fail "the second reference is better: $(cat out)"
refused 'apt-get install wordnet-base; or leave synonyms out: --no-synonyms' \
  data meteor said.txt meant.txt --wordnet none
: >empty.txt
refused 'at least one sentence' data bleu empty.txt empty.txt

# What cannot be read or made is refused, and nothing is written.
refused 'apt-get install libreoffice-help-fr' data translation --from libreoffice-help help \
  --languages en-US fr -o bad
refused 'apt-get install sword-text-kjv' data text --from sword help --modules KJV -o bad
refused 'there are no catalogues' data translation --from gettext none --languages de -o bad
mkdir catalogues
head -c 3000 "$PENSTOCK" >catalogues/x.mo
refused 'expected a catalogue' data translation --from gettext catalogues --languages de -o bad
printf 'good\nb\344d\n' >latin1.txt
refused 'latin1.txt:2: expected UTF-8' data text --from latin1.txt -o bad
refused 'nothing is left to train on' data text --from empty.txt -o bad
refused 'has 12 lines, worse.txt has 120' data translation --from pairs --source ptb.txt \
  --target worse.txt -o bad
refused 'expected train.en and train.de' data translation --from ptb --languages en de -o bad
refused 'from 5 to 65535 tokens' data text --from ptb.txt --vocabulary 100000 -o bad
refused "no vocabulary of 8 tokens" data text --from ptb.txt --vocabulary 8 -o bad
refused 'valid must be from 0 to 0.5' data text --from ptb.txt --valid-share 2 -o bad
refused 'expected one of bpe, unigram, word' data text --from ptb.txt --vocabulary-type x -o bad
refused 'holds other files' data text --from ptb.txt --vocabulary 60 -o ptb
refused "unknown command 'txt', expected one of translation, text, captions, bleu, meteor" data txt
refused 'no command, expected one of' data
refused "unknown option '--nonsense'" data text --from ptb.txt -o bad --nonsense
grep -q 'Try: penstock data text --help' err || fail "no hint: $(cat err)"
[ ! -e bad ] || fail "a refused command wrote $(ls bad)"
finish
