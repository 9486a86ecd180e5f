# Checkpoints: resuming equals not having stopped, under another split as well; interrupts save;
# damaged checkpoints are refused.
source "$(dirname "$0")/lib.sh"
make_profile
steps="$small --train-samples 80 --batch-size 16 --no-eval"

run 0 train $steps --strategy serial --epochs 3
numbers losses >whole.txt
run 0 train $steps --strategy 1f1b-flush --workers 2 --micro-batches 2 --epochs 1 --checkpoint saved
numbers losses >parts.txt
run 0 train $steps --strategy gpipe --workers 2 --micro-batches 2 --epochs 2 --checkpoint saved \
  --resume --history h.json
numbers losses >>parts.txt
span="$(numbers final_loss_first_step) to $(numbers final_loss_last_step)"
[ "$span" = "6 to 10" ] || fail "final loss of a resumed run: steps $span, expected 6 to 10"
run 0 train $steps --strategy serial --epochs 3 --checkpoint saved --resume --history h.json
numbers losses >>parts.txt
same_numbers 1e-4 whole.txt parts.txt ||
  fail "resumed losses $(paste -sd' ' parts.txt), in one go $(paste -sd' ' whole.txt)"

# A finished run has nothing left to train, and says so without measuring anything.
run 0 train ${steps/--profile p.json/} --epochs 3 --checkpoint saved --resume
grep -q 'nothing left to train: 3 of 3 epochs done; raise --epochs' err ||
  fail "a finished run: $(cat err)"
grep -q profiling err && fail "a finished run is profiled: $(cat err)"
# A history is continued by a run that trains, and stays as it is after one that does not.
told=$(grep -o '"step":[0-9]*' h.json | tr -d 'a-z":' | paste -sd' ')
[ "$told" = "6 7 8 9 10 11 12 13 14 15" ] || fail "the history has the steps $told"
[ "$(grep -o '"epoch":[0-9]*' h.json | paste -sd' ')" = '"epoch":2 "epoch":3' ] ||
  fail "the history has other epochs: $(head -c 300 h.json)"
cp h.json before.json
run 0 train $steps --strategy serial --epochs 3 --checkpoint saved --resume --history h.json \
  --html h.html
cmp -s h.json before.json || fail "a run without steps has changed the history"
[ ! -e h.html ] || fail "a run without steps has written a page"
[ "$(numbers steps)" = 15 ] || fail "a finished run of 15 steps has $(numbers steps)"
run 0 train ${steps/--json/} --epochs 3 --checkpoint saved --resume
grep -q 'nothing trained; 15 steps so far' out || fail "a finished run: $(cat out)"
grep -q 'peak memory' out && fail "a run without training has a peak: $(cat out)"
run 0 train $steps --epochs 9 --steps 15 --checkpoint saved --resume
grep -q 'nothing left to train: 15 of 15 steps done; raise --steps' err ||
  fail "a run that has made all its steps: $(cat err)"

# Without --resume nothing is overwritten; with it a first start is no error.
run 2 train $steps --strategy serial --epochs 3 --checkpoint saved
grep -qF "'saved' holds a checkpoint of step 15: add --resume" err ||
  fail "a folder with a checkpoint: $(cat err)"
run 0 train $steps --strategy serial --epochs 1 --checkpoint first --resume
grep -qF "warning: no checkpoint in 'first' yet: starting at step 0" err ||
  fail "resumed from nothing: $(cat err)"
[ -e first/latest ] || fail "a first start with --resume saved nothing"

run 0 train $steps --strategy 1f1b --workers 2 --epochs 1 --checkpoint stashed
run 0 train $steps --strategy gpipe --workers 2 --epochs 2 --checkpoint stashed --resume
[ "$(numbers steps)" = 10 ] ||
  fail "1f1b and then gpipe: $(numbers steps) steps in all, expected 10"

# Optimiser state that replicas share out is saved as a whole: other replicas go on with it.
adam="$steps --optimizer adam --gradient-groups 4 --micro-batches 4 --weights flush"
run 0 train $adam --strategy dp --workers 4 --epochs 3 --checkpoint all
run 0 train $adam --strategy dp --workers 2 --epochs 1 --checkpoint shared --shard-optimizer
run 0 train $adam --strategy dp --workers 4 --epochs 2 --checkpoint shared --shard-optimizer \
  --resume
run 0 train $adam --strategy serial --epochs 3 --checkpoint shared --resume
diff -r -x plan.json -x manifest.json "all/$(sed -n 1p all/latest)" \
  "shared/$(sed -n 1p shared/latest)" >differences ||
  fail "resumed with shared-out state: $(cat differences)"

# Options that change what is learned are named where they differ from the checkpoint's.
run 0 train $steps --strategy serial --epochs 1 --checkpoint changed --lr 0.05 --seed 3
changes() { grep '^warning: options differ from those of the checkpoint: ' err; }
run 0 train $steps --strategy serial --epochs 2 --checkpoint changed --lr 0.05 --seed 3 --resume
grep '^warning: ' err && fail "nothing has changed: $(cat err)"
other=${steps/--train-samples 80 --batch-size 16/--train-samples 96 --batch-size 12}
other=${other/constant/cosine}
run 0 train $other --strategy serial --epochs 3 --checkpoint changed --resume --lr 0.01 \
  --momentum 0.5 --seed 4
for change in ' --batch-size 12 (was 16)' ' --lr 0.01 (was 0.05)' ' --momentum 0.5 (was 0.9)' \
  ' --lr-schedule cosine (was constant)' ' --data synthetic, 96 samples'; do
  changes | grep -qF -- "$change" || fail "no word of$change: $(cat err)"
done
[ "$(changes | wc -l)" = 1 ] || fail "changes are one line: $(cat err)"
grep -q "warning: --seed 4 has no effect: the run goes on with the checkpoint's seed, 3" err ||
  fail "another seed: $(cat err)"

# A schedule keeps the length of the run that began it, and says so; --schedule-steps is another.
rates() { grep -o '"learning_rate":[^,}]*' length.json | cut -d: -f2 | paste -sd' '; }
linear="${steps/constant/linear} --strategy serial --epochs 2 --lr 0.5 --checkpoint length"
linear+=" --history length.json"
run 0 train $linear --steps 4
[ "$(rates)" = "0.5 0.375 0.25 0.125" ] || fail "a linear schedule of 4 steps: $(rates)"
run 0 train $linear --steps 6 --resume
grep -q 'has its last value at step 4, .*ends at step 6: --schedule-steps 6 would' err ||
  fail "a schedule that has ended: $(cat err)"
changes && fail "only the end has changed"
[ "$(rates)" = "0.5 0.375 0.25 0.125 0.0 0.0" ] || fail "a schedule that has ended: $(rates)"
run 0 train $linear --steps 8 --schedule-steps 16 --resume
changes | grep -qF -- ': --schedule-steps 16 (was 4)' || fail "another schedule: $(cat err)"
case $(rates) in *" 0.0 0.0 0.3125 0.28125") ;; *) fail "a longer schedule: $(rates)" ;; esac

# Batch normalisation cannot train on one sample: said before the start.
norm="--model resnet18 --input 3x32x32 --data synthetic --epochs 1"
refused "a step of 1 sample in 1 micro-batch: layer '" train $norm --train-samples 4 --batch-size 1
refused "the last step of an epoch would have 1 of 9 training samples" \
  train $norm --train-samples 9 --batch-size 8 --checkpoint never
grep -qF -- '(--drop-last)' err || fail "advice: $(cat err)"
[ ! -e never ] || fail "a run that was refused has a folder"

# A signal ends the run after the mini-batches under way, with a checkpoint that can be resumed.
# Another run may not use its folder. Under nohup SIGHUP is ignored.
hangup=HUP
grep -q '^SigIgn:.*[13579bdf]$' /proc/self/status && hangup=TERM
for signal in INT $hangup; do
  rm -rf stopped
  (trap - INT; exec "$PENSTOCK" train $steps --strategy 1f1b --workers 2 --epochs 1000000 \
    --checkpoint stopped >out 2>err) &
  pid=$!
  for _ in $(seq 100); do
    [ -e stopped/latest ] && break
    sleep 0.1
  done
  penstock train $steps --strategy serial --epochs 1000000 --checkpoint stopped --resume \
    >other 2>&1 </dev/null
  [ $? -eq 2 ] && grep -q "another run is saving into 'stopped'" other ||
    fail "two runs in one folder: $(tail -n 3 other)"
  kill -$signal $pid
  wait $pid
  code=$?
  [ $code -eq 0 ] || fail "SIG$signal: exit code $code: $(tail -n 3 err)"
  json_keys losses
  grep -q '"interrupted":true' out ||
    fail "SIG$signal: the result does not say that the run was interrupted"
  stopped_at=$(numbers steps)
  run 0 train $steps --strategy serial --epochs 1000000 --steps $((stopped_at + 3)) \
    --checkpoint stopped --resume
  [ "$(numbers losses | wc -l)" -eq 3 ] ||
    fail "SIG$signal: resumed after $stopped_at steps for 3 more, found $(numbers losses | wc -l)"
done

# A checkpoint by its name: later ones go beside it, not into it, and are gone on with.
run 0 train $steps --strategy serial --epochs 1 --checkpoint named
run 0 train $steps --strategy serial --epochs 2 --checkpoint named/step-000000005 --resume
run 0 train $steps --strategy serial --epochs 3 --checkpoint named --resume
[ "$(numbers steps)" = 15 ] || fail "resumed by name: $(numbers steps) steps in all, expected 15"
[ "$(ls named | paste -sd' ')" = "latest step-000000010 step-000000015" ] ||
  fail "resumed by name: the folder holds $(ls named | paste -sd' ')"

# refused WORDS: the damaged checkpoint must be refused with exit code 2 and these words.
refused() {
  run 2 train $steps --strategy serial --epochs 4 --checkpoint damaged --resume
  [ -s out ] && fail "a refused checkpoint left something on standard output"
  grep -qi -- "$1" err || fail "damaged checkpoint: expected '$1' in: $(tail -n 2 err)"
}
newest=$(basename "$(ls -d saved/step-* | tail -n 1)")
damage() {
  rm -rf damaged
  cp -r saved damaged
}
damage && head -c 40 saved/$newest/manifest.json >damaged/$newest/manifest.json &&
  refused manifest.json
damage && rm damaged/$newest/layer-00000-conv1.safetensors && refused conv1
damage && head -c 100 saved/$newest/layer-00000-conv1.safetensors \
  >damaged/$newest/layer-00000-conv1.safetensors && refused conv1
damage && : >damaged/$newest/layer-00000-conv1.safetensors && refused conv1
damage && echo garbage >damaged/$newest/manifest.json && refused manifest.json
damage && echo ../../nowhere >damaged/latest && refused latest

run 2 train $steps --strategy serial --epochs 4 --optimizer adam --checkpoint saved --resume
grep -q "optimiser" err || fail "another optimiser: $(tail -n 1 err)"
run 2 train --model mlp --width 8 --data synthetic --train-samples 32 --json --checkpoint saved \
  --resume
finish
