# Prints file:line of every sentence of a document that has more than `most` words; exit code 1 if
# there is one. Code, tables, headings, HTML and addresses do not count; code inside a sentence is
# one word. A paragraph and an item of a list end their last sentence. Pages that a program writes
# ("<!-- Written by ... -->") are left out: they are lists of what stands elsewhere.

function flush_sentence() {
  if (words > most) {
    printf "%s:%d: a sentence of %d words, at most %d: %s ...\n", file, first_line, words, most,
           opening
    found = 1
  }
  words = 0
  may_end = 0
  opening = ""
}

function add_word(word,   start) {
  if (word !~ /[A-Za-z0-9\200-\377]/) {
    if (word ~ /^[.!?]/) may_end = 1
    return
  }
  start = word
  gsub(/^[("'*_\[]+/, "", start)
  if (may_end && start !~ /^[a-z]/) flush_sentence()
  if (words++ == 0) first_line = FNR
  if (words <= 6) opening = opening (words > 1 ? " " : "") word
  may_end = word ~ /[.!?][]"')*_]*$/ && word !~ /^[("'*_\[]*(e\.g|i\.e|vs|cf|al|etc)\.$/
  if (words == 1 && word ~ /^[A-Z]\.$/) may_end = 0  # the initial of a name
}

function add_line(text,   parts, count, i, clean) {
  # `code` becomes the word Code, also where it goes on in the next line.
  count = split(text, parts, "`")
  clean = ""
  for (i = 1; i <= count; i++) {
    if (i > 1) { in_code = !in_code; if (in_code) clean = clean "Code" }
    if (!in_code) clean = clean parts[i]
  }
  gsub(/!\[[^]]*\]\([^)]*\)/, "", clean)
  gsub(/\]\([^)]*\)/, "]", clean)
  gsub(/<?https?:\/\/[^ )>]*>?/, "Address", clean)
  count = split(clean, parts, /[ \t]+/)
  for (i = 1; i <= count; i++) if (parts[i] != "") add_word(parts[i])
}

function end_block() { flush_sentence(); in_code = 0; open = 0 }

FNR == 1 { end_block(); file = FILENAME; in_fence = in_html = 0; blank = 1; written = 0 }
/^<!-- Written by / { written = 1 }
written { next }
/^ *```/ { end_block(); in_fence = !in_fence; blank = 1; next }
in_fence { next }
/^[ \t]*$/ { end_block(); in_html = 0; blank = 1; next }
/^    / && blank && !open { next }                            # indented code
/^<[a-zA-Z\/!]/ { end_block(); in_html = 1 }
in_html { next }
/^ *\|/ || /^#/ || /^\[[^]]*\]: / { end_block(); next }
{
  if (sub(/^ *([-*+]|[0-9]+[.)]) +/, "")) end_block()
  sub(/^ *> ?/, "")
  open = 1
  blank = 0
  add_line($0)
}
END { end_block(); exit found }
