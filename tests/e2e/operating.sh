# What operators need of penstock train: run folders.
source "$(dirname "$0")/lib.sh"

tiny=(--model mlp --width 16 --data synthetic --train-samples 96 --test-samples 16 --epochs 2
  --batch-size 16)
losses() { grep -o '"losses": *\[[^]]*\]' "$1" | tr -d ' \n'; }
field() { grep -o "\"$2\": *[^,}]*" "$1" | head -1; }

# --- Run folders: what a run was, and the same again, bit for bit ---

mkdir -p user && git -C user init -q 2>/dev/null &&
  git -C user -c user.name=a -c user.email=a@b commit -q --allow-empty -m one
cd user || exit 1
run 0 train "${tiny[@]}" --strategy 1f1b --workers 2 --lr-schedule cosine --large-batch=all,-gamma \
  --base-batch-size 8 --checkpoint ../saved --run-folder ../runs/1 --json
cp out ../first.json
[ ! -d .git ] || grep -q "$(git rev-parse HEAD)" ../runs/1/environment.json ||
  fail "no commit: $(cat ../runs/1/environment.json)"
[ ! -d .git ] || grep -q '"has_changes": false' ../runs/1/environment.json || fail "changes?"
cd ..
for file in config.toml plan.json environment.json history.json report.html results.json; do
  [ -s "runs/1/$file" ] || fail "no runs/1/$file"
done
[ "$(losses first.json)" = "$(losses runs/1/results.json)" ] || fail "results.json has other losses"
grep -q '^checkpoint' runs/1/config.toml && fail "the run would meet its own checkpoints"

# Also where the folder was moved to, and from elsewhere.
mv runs moved
run 0 train --config moved/1/config.toml --run-folder again --json
[ -n "$(losses first.json)" ] && [ "$(losses out)" = "$(losses first.json)" ] ||
  fail "other losses: $(losses out) $(losses first.json)"
[ "$(field out test_loss)" = "$(field first.json test_loss)" ] || fail "other weights"
strip() { grep -v '^#' "$1"; }
diff <(strip moved/1/config.toml) <(strip again/config.toml) >/dev/null ||
  fail "another config: $(diff moved/1/config.toml again/config.toml)"
cmp -s moved/1/plan.json again/plan.json || fail "another plan"

# One that holds a run, or anything, is left as it is.
before=$(cksum again/*)
refused "--run-folder: 'again' holds another run" train "${tiny[@]}" --run-folder again
refused "cannot be combined with" train "${tiny[@]}" --run-folder new --check-against-serial
[ "$before" = "$(cksum again/*)" ] || fail "a refused run has changed the folder"
mkdir other && echo mine >other/notes
refused "'other' holds other files" train "${tiny[@]}" --run-folder other
refused "cannot make the folder 'other/notes'" train "${tiny[@]}" --run-folder other/notes

# A run that goes on with its checkpoints goes on with its folder; the history has both parts.
run 0 train "${tiny[@]}" --steps 3 --checkpoint kept --run-folder whole
run 0 train "${tiny[@]}" --checkpoint kept --resume --run-folder whole
[ "$(grep -o '"step":' whole/history.json | wc -l)" -ge 12 ] || fail "the history lacks steps"
refused "its checkpoints are in" train "${tiny[@]}" --checkpoint kept2 --resume --run-folder whole

# A job writes one folder; the launcher's restarts go on with it.
run 0 launch -n 2 -- train "${tiny[@]}" --strategy dp --run-folder job
grep -q '"ranks": 2' job/environment.json || fail "ranks: $(cat job/environment.json)"
run 0 launch -n 2 -- train --config job/config.toml --json
[ "$(losses out)" = "$(losses job/results.json)" ] || fail "a job again: other losses"
finish
