# Bad input, as tables: expected exit code | words on standard error | command. A row that ends in a
# backslash goes on in the next line. Nothing may crash, hang or leave half a JSON object.
source "$(dirname "$0")/lib.sh"
table=$2

# Plain garbage, the same everywhere: text, invalid UTF-8, a zero byte and a sequence that would
# colour a terminal.
garbage() { for _ in $(seq 200); do printf 'garbage \377\376\000\033[31m{[("\n'; done; }

make_files() {
  garbage >garbage.bin
  mkfifo fifo  # nobody writes
  mkdir folder empty idx
  for file in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte \
    t10k-labels-idx1-ubyte; do
    garbage >idx/$file
  done
  printf '[[[[%.0s' $(seq 50000) >deep.json
  run 0 schedule --kind gpipe --stages 2 --micro-batches 2 -o s.txt
  printf '%s\n' '# penstock schedule 1' '# replicas: 1 1' \
    '# micro-batches: 1  accumulate: 1  weights: flush' \
    '0RECV_B0,0F0@0,0SEND_F0,0B0@0,0FREE0@0,0STEP0@0' \
    '1RECV_F0,1F0@0,1B0@0,1SEND_B0,1FREE0@0,1STEP0@0' >deadlock.txt
  make_profile
  run 0 plan --profile p.json --workers 2 --straight --strategy 1f1b -o plan.json
  run 0 plan --profile p.json --workers 2 --strategy dp -o dp.json
  head -c 300 p.json >truncated.profile.json
  head -c 300 plan.json >truncated.plan.json
  printf '[[level]]\nname = "a"\ncount =' >truncated.toml
  sed 's/"@0"/"tanh1"/' p.json >cycle.json
  sed '0,/"forward_ns": [0-9]*/s//"forward_ns": -1/' p.json >negative.json
  sed '0,/"forward_ns": [0-9]*/s//"forward_ns": 9000000000000000000/' p.json >huge.json
  sed 's/"version": 1/"version": 99/' p.json >newer.json
  sed -e 's/"config": "2"/"config": "1000000000"/' -e 's/"replicas": 2/"replicas": 1000000000/' \
    dp.json >many_workers.json
  sed -e 's/"config": "2"/"config": "2t1000000000"/' \
    -e 's/"replicas": 2/"replicas": 2, "tensor": 1000000000/' dp.json >many_members.json
  sed 's/"replicas": 2/"replicas": 2, "tensor": 0/' dp.json >no_members.json
  sed '0,/"spread": [0-9.]*/s//"spread": 2/' p.json >spread.json
  sed -z 's/,[[:space:]]*"team": {[^}]*}//g' p.json >no_team.json
  sed 's/"strategy": "1f1b"/"strategy": "nope"/' plan.json >unknown_kind.json
  sed 's/"conv1"/"conv9"/' plan.json >other_layers.json
}

check_row() {
  local expected=$1 words=$2 command=$3 out=out.$BASHPID err=err.$BASHPID code
  eval "$command" >"$out" 2>"$err" </dev/null
  code=$?
  [ "$code" = "$expected" ] ||
    fail "$command: exit code $code, expected $expected: $(tail -n 2 "$err")"
  [ -z "$words" ] || grep -qF -- "$words" "$err" ||
    fail "$command: '$words' is not in the message: $(tail -n 3 "$err")"
  if [ "$code" -ge 2 ] && [ -s "$out" ]; then
    fail "$command: an error left this on standard output: $(head -c 100 "$out")"
  fi
  LC_ALL=C grep -q "$(printf '[\001-\010\033]')" "$err" &&
    fail "$command: the message holds control characters"
  return 0
}

make_files
pids=()
while IFS= read -r row; do
  case $row in '' | '#'*) continue ;; esac
  while [[ $row == *\\ ]]; do
    read -r more
    row=${row%\\}$more
  done
  IFS='|' read -r expected words command <<<"$row"
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
  expected=${expected// /}
  words=${words# }
  (trap - EXIT && failures=0 && check_row "$expected" "${words% }" "${command# }" &&
    exit "$failures") &
  pids+=($!)
done <"$here/hostile_$table.txt"
for pid in "${pids[@]}"; do wait "$pid" || failures=$((failures + 1)); done
finish
