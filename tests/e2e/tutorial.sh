# Runs every command of docs/tutorial.md, in its order, in one folder. Each must end with the exit
# code that the document names ("# exit code 1"; otherwise 0), and every word that the document
# shows of its output must be in what it prints. Numbers, times and names of layers may differ.
source "$(dirname "$0")/lib.sh"
# Training takes seconds, but minutes on a machine that other programs keep busy.
penstock() { timeout -k 5 240 "$PENSTOCK" "$@"; }
if [ ! -e /usr/share/datasets/fashion-mnist ]; then
  echo "skipped: no Fashion-MNIST here (scripts/install-deps.sh installs it)"
  exit 77
fi
document="$here/../../docs/tutorial.md"
ln -s "$here/../../examples" examples

# One line per command: exit code, tab, the command, tab, the words of its documented output.
# Words have four letters or more and no digits beside them.
awk '
  function flush() {
    if (command != "") print code "\t" command "\t" words
    command = ""
    words = " "
  }
  /^```/ { flush(); inside = !inside; next }
  !inside { next }
  /^\$ / {
    flush()
    command = substr($0, 3)
    code = 0
    if (match(command, /# exit code [0-9]/)) code = substr(command, RSTART + 12, 1)
    sub(/ *#.*/, "", command)
    continued = sub(/ *\\$/, "", command)
    next
  }
  continued {
    command = command " " $0
    continued = sub(/ *\\$/, "", command)
    next
  }
  {
    line = $0
    sub(/the run lay .*/, "", line)  # within the interval or not: that differs, too
    gsub(/[^A-Za-z0-9_.-]+/, " ", line)
    count = split(line, parts, " ")
    for (i = 1; i <= count; ++i)
      if (parts[i] ~ /^[A-Za-z]+$/ && length(parts[i]) >= 4 && index(words, " " parts[i] " ") == 0)
        words = words parts[i] " "
  }
  END { flush() }
' "$document" >commands

commands=0
while IFS=$'\t' read -r code command words; do
  case $command in
    'penstock '*) ;;
    *) fail "docs/tutorial.md: '$command' is no command of penstock"; continue ;;
  esac
  commands=$((commands + 1))
  # On a machine that is busy the usual limit might end a search.
  [[ "$command" != 'penstock plan '* ]] || command="$command --time-limit 0"
  # shellcheck disable=SC2086
  run "$code" ${command#penstock }
  for word in $words; do
    grep -qF -- "$word" out err || fail "docs/tutorial.md: '$word' is not in what '$command' prints"
  done
done <commands
[ "$commands" -ge 12 ] || fail "docs/tutorial.md shows $commands commands, expected at least 12"
finish
