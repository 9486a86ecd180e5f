# Shared by the end-to-end tests: `source lib.sh PENSTOCK` gives a clean working folder and the
# checks below. Only the shell, grep, sed and awk are needed.
set -u
PENSTOCK=$1
[ -x "$PENSTOCK" ] || { echo "FAILED: there is no program at '$PENSTOCK'" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-e2e.XXXXXX") || exit 1
# A subshell that is signalled right after its start still runs this shell's trap.
trap '[ "$BASHPID" != $$ ] || rm -rf "$work"' EXIT
cd "$work" || exit 1
sanitized() { grep -qaE '__(a|t)san_init' "$(readlink -f "$PENSTOCK")"; }
# kB; a run away must not take the machine with it. Sanitizers need terabytes.
sanitized || ulimit -v 16000000 2>/dev/null
# Tests measure anew, and nothing is left with the user.
export PENSTOCK_PROFILE_CACHE=off
failures=0

penstock() { timeout -k 5 60 "$PENSTOCK" "$@"; }

fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

finish() {
  [ "$failures" -eq 0 ] && exit 0
  echo "$failures check(s) failed" >&2
  exit 1
}

# run CODE ARGUMENTS...: the tool must exit with CODE; leaves out and err.
run() {
  local expected=$1 code
  shift
  penstock "$@" >out 2>err </dev/null
  code=$?
  [ "$code" -eq "$expected" ] ||
    fail "penstock $*: exit code $code, expected $expected: $(tail -n 3 err)"
}

# wait_within SECONDS PID: sets `code` to the exit code of a child, which is killed if it takes
# longer.
wait_within() {
  local i
  for ((i = 0; i < $1 * 100; i++)); do
    kill -0 "$2" 2>/dev/null || break
    sleep 0.01
  done
  kill -9 "$2" 2>/dev/null
  wait "$2"
  code=$?
}

# refused WORDS ARGUMENTS...: the tool must exit with 2, with these words in the message and nothing
# on standard output.
refused() {
  local words=$1
  shift
  run 2 "$@"
  grep -qF -- "$words" err || fail "penstock $*: '$words' is not in: $(cat err)"
  [ ! -s out ] || fail "penstock $*: an error left this on standard output: $(head -c 100 out)"
}

# json_keys KEYS...: `out` is one line that holds one JSON object with these keys.
json_keys() {
  local key
  [ "$(wc -l <out)" -eq 1 ] ||
    fail "standard output has $(wc -l <out) lines, expected one JSON object"
  grep -q '^{.*}$' out || fail "standard output is not one JSON object: $(head -c 100 out)"
  for key in "$@"; do grep -q "\"$key\":" out || fail "the JSON object lacks the key $key"; done
}

# numbers KEY [FILE]: the numbers of the array or scalar, one a line.
numbers() {
  sed -n "s/.*\"$1\":\[\{0,1\}\([-+0-9.e,]*\).*/\1/p" "${2:-out}" | tr ',' '\n' | grep .
}

# same_numbers TOLERANCE FILE FILE: as many numbers, pairwise within the tolerance.
same_numbers() {
  paste "$2" "$3" | awk -v tolerance="$1" '
    NF != 2 { bad = 1 }
    { d = $1 - $2; if (d < 0) d = -d; if (!(d <= tolerance)) bad = 1 }
    END { exit bad || NR == 0 }'
}

# The names of all kinds of schedule, and of all strategies, as the tool lists them where it knows
# none.
kinds() {
  penstock schedule --kind none 2>&1 </dev/null | sed -n 's/.*expected one of //p' | tr -d ','
}
strategies() {
  penstock plan --profile none --strategy none 2>&1 </dev/null |
    sed -n 's/.*expected one of auto, //p' | tr -d ','
}

# Synthetic data and a saved profile keep the runs short and alike.
make_profile() { run 0 profile --model lenet5 --batch-size 8 --samples 1 -o p.json; }
small="--model lenet5 --data synthetic --profile p.json --lr-schedule constant --json"
