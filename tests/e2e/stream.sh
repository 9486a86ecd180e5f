#!/usr/bin/env bash
# penstock stream: every task and policy learns; frames are dropped and counted, never waited for;
# the frame rate decides the number of stages; weights are saved while it runs and resumed; broken,
# stalled and hostile input ends with a message.
source "$(dirname "$0")/lib.sh" "$1"

small=(--size 24x16 --depth 4 --width 6 --kernel 3)
stream() { run 0 stream --json "${small[@]}" "$@"; }
# value KEY: a scalar of the JSON object.
value() { sed -n "s/.*\"$1\":\(\"[^\"]*\"\|[^,}]*\).*/\1/p" out; }
# is KEY TEXT
is() { [ "$(value "$1")" = "$2" ] || fail "$1 is $(value "$1"), expected $2"; }
# holds EXPRESSION: of awk, with $1.. the further arguments
holds() {
  local expression=$1
  shift
  echo "$*" | awk "{ exit !($expression) }" || fail "not true: $expression for $*"
}

# Every task, one stage and several, and every policy. Each task's layers are measured once: a
# stream without a profile measures for a second, and some below do.
for task in reconstruct predict pixels label; do
  run 0 profile --model partime --depth 4 --width 6 --kernel 3 --task "$task" --input 3x16x24 \
    --samples 2 -o "$task.json"
  grep -Eq 'the loss is .* of (conv4|classify)' out || fail "$task: no loss: $(tail -1 out)"
  for workers in 1 3; do
    stream --task "$task" --frames 40 --workers "$workers" --profile "$task.json"
    json_keys frames_in processed dropped fps latency_p50_ns latency_p99_ns deadline_misses loss
    is processed 40
    is dropped 0
    is task "\"$task\""
  done
done
# What the generated scene is for by default, and raw frames.
known=(--profile pixels.json)
raw=(--pixel rgb24 "${small[@]}" --profile reconstruct.json)
# Both runs have the same stages.
planned=("${known[@]}" --replan-margin 0)
for weights in current latest stash; do
  stream --frames 60 --workers 3 --weights "$weights" "${planned[@]}"
  is weights "\"$weights\""
  cp out first
  stream --frames 60 --workers 3 --weights "$weights" "${planned[@]}"
  [ "$(value loss)" = "$(sed -n 's/.*"loss":\([^,]*\).*/\1/p' first)" ] ||
    fail "$weights: two runs of the same frames differ in their loss"
done

# Other models. Stages cannot share weights, so tied_mlp has one.
for model in "mlp 16x12 3" "tied_mlp 16x12 1" "lenet5 28x28 3"; do
  read -r name size stages <<<"$model"
  run 0 stream --json --model "$name" --size "$size" --task label --frames 12 --workers 3 \
    --weights stash
  is processed 12
  [ "$(grep -o '"layers":\[' out | wc -l)" -le "$stages" ] || fail "$name: more than $stages stages"
done

# The loss is that of the frames which have one.
stream --task label --lr 0 --frames 100 --seed 5 # measures its layers
loss=$(value loss)
stream --task label --lr 0 --frames 100 --seed 5 --label-every 10 --profile label.json
holds '$1 > 0.6 * $2 && $1 < 1.6 * $2' "$(value loss)" "$loss"
is rebuilt_loss null
stream --frames 40 --label-every 2 "${known[@]}"
json_keys loss rebuilt_loss
holds '$1 > 0 && $2 > 0' "$(value loss)" "$(value rebuilt_loss)"

stream --task predict --frames 40
holds '$1 > 0 && $2 > 0' "$(value loss)" "$(value copying_loss)"
stream --task reconstruct --frames 10
is copying_loss null

# Labels of whole frames: a folder per class, or a file; what was made of each frame is written.
mkdir -p pets/off pets/on
for ((k = 0; k < 12; ++k)); do
  for class in off on; do printf 'P5 16 16 255\n' >"pets/$class/$k.pgm"; done
  head -c 256 /dev/zero >>"pets/off/$k.pgm"
  head -c 256 /dev/zero | tr '\0' '\377' >>"pets/on/$k.pgm"
done
if penstock stream --source pets --frames 1 --model mlp >/dev/null 2>images.err; then
  run 0 stream --json --source pets --model mlp --lr 0.05 --predictions pets.jsonl
  is task '"label"'
  is processed 24
  [ "$(wc -l <pets.jsonl)" -eq 24 ] || fail "$(wc -l <pets.jsonl) lines of predictions"
  grep -q '^{"frame":23,"loss":.*"class":"on","share":.*"label":"on"}$' pets.jsonl ||
    fail "the last prediction: $(tail -n 1 pets.jsonl)"
  refused "are of whole frames: --task label" stream --source pets --task pixels --frames 2
else
  grep -q 'penstock-opencv' images.err || fail "a folder per class: $(tail -n 1 images.err)"
fi
printf 'frame,label\n3,cat\n5,dog\n' >labels.csv
run 0 stream --json --size 16x16 --model mlp --labels labels.csv --frames 8 \
  --predictions some.jsonl
is task '"label"'
[ "$(grep -c '"label":"[catdog]*"' some.jsonl)" -eq 2 ] || fail "labels: $(cat some.jsonl)"
printf "frame,label\nx,cat\n" >bad.csv
refused "bad.csv:2: expected a frame's number" stream --frames 2 --labels bad.csv
refused "cannot write 'none/x.jsonl'" stream --frames 2 --predictions none/x.jsonl "${small[@]}"

# Learning from labels: right more often than by chance, and more often later.
stream --frames 400 --workers 2 --seed 5 --lr 0.01 "${known[@]}"
holds '$1 > 0.6' "$(value accuracy)"

# A source that is faster than the model: frames are dropped, latency stays bounded.
run 0 stream --json --size 64x48 --depth 8 --width 16 --source-fps 2000 --seconds 3 --workers 2
holds '$1 > 0 && $2 + $3 <= $4 && $2 + $3 + 3 >= $4' \
  "$(value dropped)" "$(value processed)" "$(value dropped)" "$(value frames_in)"
holds '$1 < 3e9' "$(value latency_p99_ns)"
is frames_in $(($(value processed) + $(value dropped) + $(value waiting)))
# One that cannot keep its own rate: what is late is left out at the source; latency does not grow.
run 0 stream --json --size 320x240 --task reconstruct --depth 2 --width 2 --kernel 1 --lr 0.001 \
  --source-fps 8000 --seconds 4 --workers 2
holds '$1 > 0 && $1 <= $2 && $3 > 10000' \
  "$(value frames_left_out)" "$(value dropped)" "$(value frames_in)"
holds '$1 < $2 / 4' "$(value latency_p50_ns)" "$(value elapsed_ns)"
grep -q '"remarks":"the source did not keep 8000 frames/s: it delivered ' out ||
  fail "nothing about the rate of the source: $(value remarks)"
in_line() { sed -n 's/.* in \([0-9]*\)  out .*/\1/p' err | tail -1; }
is frames_in "$(in_line)" # the last line and the summary are of one moment
# One that is slower: nothing is dropped; the last line has the rate of the last seconds.
stream --source-fps 20 --frames 20 --workers 2 --queue 16 "${known[@]}"
is dropped 0
holds '$1 > 8 && $1 < 25' "$(sed -n 's/.*  \([0-9.]*\) frames\/s  latency.*/\1/p' err | tail -1)"
holds '$1 > 8 && $1 < 25' "$(value fps)"

# The frame rate decides how many stages there are; what cannot be reached is said.
run 0 stream "${small[@]}" --fps 1 --frames 5 --workers 4
grep -q '1 stage is enough: .* 1.0 wanted' err || fail "one stage was not enough: $(head -3 err)"
run 0 stream "${small[@]}" --fps 50000 --frames 5 --workers 2 "${known[@]}"
grep -q 'cannot be reached with 2 workers: .* too slow' err || fail "$(head -3 err)"
grep -Eq '50000.00 wanted: missed by [0-9]+ %' out || fail "not missed: $(grep rate out)"
grep -Eq 'would reach it|no number of workers would' err || fail "no advice: $(head -3 err)"

# A pipe that drops most of its frames is told what to do; one that waits is not.
for _ in 1 2 3 4 5 6 7 8; do head -c $((24 * 16 * 3 * 100)) /dev/zero; done >many.raw
cat many.raw | penstock stream --source - --pixel rgb24 --size 24x16 --frames 900 --lr 0.001 \
  --depth 12 --width 16 >out 2>err || fail "a fast pipe: $(tail -2 err)"
grep -q '^hint: .* frames were dropped.*--keep-all' err || fail "no hint: $(cat out err)"
cat many.raw | penstock stream --json --source - "${raw[@]}" --lr 0.001 --keep-all \
  >out 2>err || fail "a pipe that waits: $(tail -2 err)"
is processed 800
! grep -q '^hint' err || fail "a hint without a drop"

# Raw frames on standard input, and what is left of the last one.
head -c $((24 * 16 * 3 * 5 + 10)) /dev/urandom >frames.raw
penstock stream --json --source - "${raw[@]}" --lr 0.001 <frames.raw >out 2>err ||
  fail "raw frames: $(tail -2 err)"
is processed 5
grep -q '"end":".*10' out || fail "the 10 bytes at the end are not reported: $(cat out)"
penstock stream --json --source frames.raw --pixel gray --size 24x16 --depth 3 --width 4 \
  --frames 8 --lr 0.001 >out 2>err </dev/null || fail "raw file: $(tail -2 err)"
is processed 8
penstock stream --json --source frames.raw "${raw[@]}" --frames 12 --lr 0.001 \
  --repeat >out 2>err </dev/null || fail "a repeated file: $(tail -2 err)"
is processed 12
# Without a frame there is nothing to learn and nothing to save.
: >empty.raw
run 3 stream --json --source empty.raw "${raw[@]}" --checkpoint nothing
grep -q 'no frame was learned from' err || fail "no frames: $(tail -2 err)"
grep -q '"error":"no frame' out || fail "no frames: $(cat out)"
[ ! -e nothing/latest ] || fail "weights are saved that have learned nothing"
mkfifo silent
refused "raw frames need a size, such as 640x480, and a pixel format" stream --source silent
# A video or an archive is no raw frames, in a file and, when the stream runs, in a pipe.
{ printf 'YUV4MPEG2 W24 H16 F25:1\nFRAME\n' && cat frames.raw; } >street.y4m
refused "street.y4m begins as a YUV4MPEG2 video (.y4m), expected raw frames" \
  stream --source street.y4m "${raw[@]}"
for file in street.y4m frames.raw.gz; do
  gzip -kf frames.raw
  cat $file | timeout 50 "$PENSTOCK" stream --source - "${raw[@]}" >out 2>err
  code=${PIPESTATUS[1]}
  [ "$code" -eq 3 ] || fail "$file in a pipe: exit code $code, expected 3: $(tail -2 err)"
  grep -q "standard input begins as a .*, expected raw frames of 24x16" err ||
    fail "$file: $(cat err)"
done

# A source that stalls is given up, after what came has been learned from; the weights are kept.
mkfifo pipe
(head -c $((24 * 16 * 3 * 4 + 77)) /dev/urandom; exec sleep 20) >pipe &
feeder=$!
timeout 50 "$PENSTOCK" stream --json --source - "${raw[@]}" --stall 0.5 --queue 8 \
  --checkpoint stalled --lr 0.001 <pipe >out 2>err
code=$?
kill $feeder 2>/dev/null
[ $code -eq 3 ] || fail "a stalled source: exit code $code, expected 3: $(tail -2 err)"
grep -q 'no frame came for .*: 77 of 1152 bytes of frame 4 have come' err ||
  fail "a stalled source: $(tail -2 err)"
is processed 4
[ -e stalled/latest ] || fail "a stalled source: the weights are not saved"

# Without a frame there is no latency.
run 3 stream --json --source empty.raw "${raw[@]}"
is latency_p50_ns null
run 3 stream --source empty.raw "${raw[@]}"
grep -q 'latency  *- median, - for 99 %, - at most' out || fail "a latency: $(cat out)"

# Weights are saved while it runs, at the end, and resumed.
stream --frames 30 --checkpoint weights --workers 2 "${known[@]}"
refused "add --resume" stream "${small[@]}" --frames 5 --checkpoint weights
stream --frames 12 --checkpoint weights --workers 3 --resume "${known[@]}"
grep -q 'resumed after 30 frames' err || fail "$(head -2 err)"
is steps 42
# The scene goes on: frames that have been learned from do not come again.
grep -q '^the scene goes on at frame 30$' err || fail "the scene begins again: $(head -3 err)"
stream --frames 30 --lr 0 --workers 1 --checkpoint scene "${known[@]}"
first=$(value loss)
stream --frames 30 --lr 0 --workers 1 --checkpoint scene --resume "${known[@]}"
[ "$(value loss)" != "$first" ] || fail "the same frames come again"
second=$(value loss)
stream --frames 60 --lr 0 --workers 1 "${known[@]}"
holds '($1 + $2) / 2 - $3 < 1e-6 && $3 - ($1 + $2) / 2 < 1e-6' "$first" "$second" "$(value loss)"
stream --frames 3 --checkpoint none/yet --resume "${known[@]}"
grep -q "warning: no weights in 'none/yet' yet: beginning anew" err || fail "$(head -2 err)"
# From a checkpoint by its own name: what follows is saved beside it.
stream --frames 3 --checkpoint "weights/$(head -1 weights/latest)" --resume "${known[@]}"
is steps 45
stream --seconds 4 --source-fps 50 --checkpoint often --save-every 0.5 --workers 2 "${known[@]}"
[ "$(grep -c '^weights: ' err)" -ge 2 ] || fail "saved only $(grep -c '^weights: ' err) times"
refused "another model" stream --frames 3 --size 24x16 --depth 5 --width 6 --kernel 3 \
  --checkpoint weights --resume

# The live page answers while the stream runs.
timeout 50 "$PENSTOCK" stream "${small[@]}" "${known[@]}" --source-fps 200 --seconds 20 \
  --checkpoint hung_up --serve >/dev/null 2>served &
pid=$!
for ((i = 0; i < 400; i++)); do
  grep -qs ' out ' served && break
  sleep 0.05
done
# A frame's memory is that of frames before it: no page comes anew from the system. Field 10 of
# /proc/PID/stat counts the pages that did.
child=$(pgrep -P $pid | head -1)
faults() { cut -d' ' -f10 "/proc/${child:-$pid}/stat"; }
sleep 0.5
before=$(faults)
sleep 1.5
sanitized || holds '$2 - $1 < 300' "$before" "$(faults)"
port=$(sed -n 's/^live page: http:\/\/127.0.0.1:\([0-9]*\)\/$/\1/p' served)
if exec 3<>"/dev/tcp/127.0.0.1/${port:-1}"; then
  printf 'GET /state HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
  cat <&3 >state
  exec 3>&-
  grep -q '"processed":[1-9]' state || fail "/state: $(head -c 300 state)"
  # The first time there is no picture yet; then it has its frame's number.
  get_output() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET /output HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
    cat <&3
    exec 3>&-
  }
  get_output >picture
  sleep 0.5
  get_output >picture
  grep -aq '^ETag: "[0-9]' picture || fail "/output: $(head -c 300 picture | tr -d '\000')"
else
  fail "no live page: $(head -3 served)"
fi
refused "port" stream "${small[@]}" --serve "${port:-1}"
# A terminal that closes; a program under nohup ignores it.
signal=HUP
grep -q '^SigIgn:.*[13579bdf]$' /proc/self/status && signal=TERM
kill -$signal "${child:-$pid}"
wait_within 20 $pid
[ "$code" -eq 0 ] || fail "--serve: exit code $code: $(tail -2 served)"
[ -e hung_up/latest ] || fail "SIG$signal: the weights are not saved"

# A signal while the layers are measured, which these frames make long.
: >messages
timeout 100 "$PENSTOCK" stream --size 320x240 --width 48 --kernel 15 --frames 50 \
  --checkpoint measured >summary 2>messages &
pid=$!
for ((i = 0; i < 400; i++)); do
  grep -q '^measuring the' messages && break
  sleep 0.05
done
child=$(pgrep -P $pid | head -1)
kill -TERM "${child:-$pid}"
wait_within 60 $pid
[ "$code" -eq 0 ] || fail "SIGTERM while measuring: exit code $code: $(tail -2 messages)"
grep -q '^stopped before the first frame' messages ||
  fail "SIGTERM while measuring: $(cat messages)"
[ ! -e measured/latest ] || fail "SIGTERM while measuring: weights were saved"

# A policy that one stage has no use for.
run 0 stream --size 16x16 --depth 2 --width 4 --kernel 3 --frames 4 --workers 1 --weights stash
grep -q 'one stage learns without delay: --weights stash makes no difference' err ||
  fail "one stage: $(cat err)"

# Signals: USR1 saves, INT ends it with a summary. After a save that failed the next one is tried.
: >messages
timeout 50 "$PENSTOCK" stream --json "${small[@]}" "${known[@]}" --source-fps 50 \
  --checkpoint signals >summary 2>messages &
pid=$!
# told WORDS COUNT: waits until more than so many lines have them.
told() {
  local i
  for ((i = 0; i < 400; i++)); do
    [ "$(grep -cs -- "$1" messages)" -gt "$2" ] && return
    sleep 0.05
  done
  fail "'$1' is not in: $(tail -3 messages)"
}
told ' out ' 0
child=$(pgrep -P $pid | head -1)
kill -USR1 "${child:-$pid}"
told '^weights: ' 0
# The folder belongs to this run.
refused "another run is saving into 'signals'" stream --frames 1 --checkpoint signals --resume \
  "${small[@]}"
mv signals saved && : >signals
kill -USR1 "${child:-$pid}"
told '^warning: the weights are not saved: ' 0
rm signals
kill -USR1 "${child:-$pid}"
told '^weights: ' 1
kill -INT "${child:-$pid}"
wait_within 20 $pid
cp summary out
cp messages err
[ "$code" -eq 0 ] || fail "SIGINT: exit code $code: $(tail -2 err)"
is end '"stopped"'
is error null

# Without a folder the signal changes nothing, and says so.
: >messages
timeout 50 "$PENSTOCK" stream "${small[@]}" "${known[@]}" --source-fps 50 >/dev/null 2>messages &
pid=$!
told ' out ' 0
child=$(pgrep -P $pid | head -1)
kill -USR1 "${child:-$pid}"
told '^SIGUSR1: the weights are not saved: there is no --checkpoint folder' 0
kill -INT "${child:-$pid}"
wait_within 20 $pid
[ "$code" -eq 0 ] || fail "SIGUSR1 without --checkpoint: exit code $code: $(tail -2 messages)"

# A training that diverges ends, and does not replace good weights.
run 3 stream --json "${small[@]}" --frames 2000 --lr 1e30 --checkpoint diverged --workers 2 \
  "${known[@]}"
failure='failed in the forward pass of micro-batch [0-9]* (1F[0-9@]*): '
grep -q "$failure.* take a smaller learning rate" err || fail "$(tail -2 err)"
grep -q '"error":".*take a smaller learning rate' out || fail "no summary: $(cat out)"
[ ! -e diverged/latest ] || fail "the weights of a training that diverged are saved"

# Wrong and hostile input.
refused "camera" stream --source camera:99 --size 32x24
refused "raw frames need a size" stream --source - --pixel rgb24
refused "--size: expected a size" stream --size 32xx24
refused "--size: of a frame of 24x18 RGB one number per channel is left in layer 'layer" stream \
  --model resnet18 --task label --size 24x18
refused "--pixel: expected a pixel format" stream --source - --size 8x8 --pixel rgb99
refused "expected reconstruct, predict, pixels or label" stream --task dance
refused "learns from labels" stream --task pixels --source frames.raw --pixel rgb24 --size 24x16
refused "labels" stream --task label --label-every 0
refused "serial, online" stream --strategy gpipe
refused "current, latest or stash" stream --weights 2bw
refused "unknown model" stream --model unknown
refused "8" stream --size 4x4
refused "kernel must be odd" stream --kernel 4 --frames 1
refused "--keep-all" stream --source camera:0 --keep-all
refused "needs --checkpoint" stream --save-every 1
refused "--fps" stream --fps -3
refused "--frames: expected a whole number, found 1e3" stream --frames 1e3
RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 \
  refused "in one process, a thread per stage" stream --frames 1
for option in --seconds --stall --save-every --fps --deadline-ms --replan-margin --lr; do
  refused "$option: expected a number, found nan" stream "$option" nan
done
refused "--clip-norm: expected a number" train --model mlp --clip-norm NaN
for port in abc localhost:0 1.2.3.4:0 80x 65536 -1; do
  refused "expected a port from 0 to 65535" stream --serve="$port"
done
refused "--checkpoint" stream --checkpoint ''
refused "--checkpoint" train --model mlp --checkpoint ''
refused "checkpoint" stream "${small[@]}" --checkpoint /dev/full
refused "checkpoint" stream "${small[@]}" --checkpoint "$(printf 'x%.0s' {1..300})"
refused "a stream takes current, latest or stash" stream --weights foo
refused "--momentum" stream --optimizer adam --momentum 0.5
refused "--weights" stream --strategy serial --weights stash
refused "--workers" stream --strategy serial --workers 2
refused "a pixel format" stream --source frames.raw --size 24x16
refused "there is no such file" stream --source nowhere/at/all.mp4
printf 'P6 broken' >broken.png
mkdir images && cp broken.png images/
refused "broken.png" stream --source images --size 16x16
# A damaged image is skipped or shown in part, and the libraries that decode it are quiet.
media=$(dirname "$PENSTOCK")/lib/frames/frames_test_media
if [ -x "$media" ]; then
  mkdir pictures
  "$media" image "$PWD/pictures/a.jpg" 64 48 200 100 50
  head -c -60 pictures/a.jpg >pictures/b.jpg
  stream --source pictures --lr 0.001 --profile reconstruct.json
  ! grep -i 'premature\|corrupt' err || fail "a library prints"
  # A video that was cut off.
  "$media" video "$PWD/whole.avi" 64 48 30 20
  head -c $(($(wc -c <whole.avi) / 2)) whole.avi >short.avi
  stream --source short.avi --lr 0.001 --profile reconstruct.json
  is frames_announced 30
  grep -q "the source ended; short.avi announces 30 frames, $(value processed) were decoded" out ||
    fail "a video that was cut off: $(cat out)"
fi
run 0 profile --model mlp --width 8 --depth 1 --samples 1 -o mlp.json --batch-size 1
refused "profile" stream "${small[@]}" --profile mlp.json

# A profile and a plan for frames of their size.
refused "pixels.json is of frames of another size or of another task: layer 'conv1' makes" \
  stream --size 32x24 --depth 4 --width 6 --kernel 3 --profile pixels.json
run 0 plan --profile pixels.json --strategy online --workers 2 --straight -o plan.json
run 0 stream --size 32x24 --depth 4 --width 6 --kernel 3 --plan plan.json --frames 4 \
  --threads "$(nproc)"
grep -q 'they take turns, and the frame rate will be below the prediction' err ||
  fail "more threads than cores: $(cat err)"
run 0 stream --size 32x24 --depth 4 --width 6 --kernel 3 --plan plan.json --frames 4
grep -q '^warning: the plan plan.json was made for frames of another size' err ||
  fail "no warning: $(head -3 err)"
stream --plan plan.json --frames 4
! grep -q '^warning' err || fail "a warning about the size of frames: $(head -3 err)"
refused "plan.json is not a plan for 'partime' as it is for --task label" stream --size 32x24 \
  --depth 4 --width 6 --kernel 3 --task label --plan plan.json --frames 4
refused "3x120x160" profile --model mlp --task pixels --input 7
refused "expected reconstruct" profile --model partime --task dance
refused "--batch-size" profile --model partime --task label --batch-size 4
finish
