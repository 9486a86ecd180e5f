# Measured profiles are kept for later runs of the same work, and nothing else finds them.
source "$(dirname "$0")/lib.sh"
unset PENSTOCK_PROFILE_CACHE
rest="--model mlp --depth 3 --data synthetic --train-samples 256 --steps 2 --no-eval"
small="$rest --width 256 --batch-size 32"

# kept_by ARGUMENTS...: until the profile is kept; other programs may use the cores meanwhile.
kept_by() {
  for _ in 1 2 3 4 5 6; do
    run 0 "$@"
    grep -q 'not kept for later runs, since other programs' err || return 0
    sleep 5
  done
  echo "SKIPPED: the machine is busy: $(grep "not kept" err)" >&2
  exit 77
}
files() { find "$1" -name '*.json' 2>/dev/null | wc -l; }
found() { grep -q "profile: measured 20.* and kept in" err; }

# shellcheck disable=SC2086  # options
{
  kept_by train $small --profile-cache cache
  found && fail "a profile was found in an empty folder"
  [ "$(files cache)" = 1 ] || fail "the profile was not kept: $(ls cache 2>&1)"
  file=$(find cache -name '*.json')
  run 0 train $small --profile-cache cache
  found || fail "the profile was not found: $(cat err)"
  run 0 train $small --profile-cache cache --lr 0.2 --seed 4 --epochs 1
  found || fail "learning rate and seed do not change times: $(cat err)"
  for other in "--batch-size 16 --width 256" "--batch-size 32 --width 128" \
    "--batch-size 32 --width 256 --optimizer adam" "--batch-size 32 --width 256 --threads 2"; do
    run 0 train $rest --profile-cache cache $other
    found && fail "$other: took the profile of another run"
  done

  head -c 300 "$file" >half && mv half "$file"
  run 0 train $small --profile-cache cache
  found && fail "half a file was taken"
  before=$(cksum cache/*.json)
  run 0 train $small --profile-cache off
  found && fail "off: a profile was found"
  [ "$before" = "$(cksum cache/*.json)" ] || fail "off: the folder has changed"

  # The user's folder of caches, the variable, and a profile that is measured again.
  export XDG_CACHE_HOME=$PWD/caches
  kept_by train $small
  [ "$(files caches/penstock/profiles)" = 1 ] || fail "not in \$XDG_CACHE_HOME: $(find caches)"
  before=$(cksum caches/penstock/profiles/*.json)
  sleep 1 # the file says in which second it was measured
  kept_by train $small --profile-cache new
  found && fail "new: a profile was found"
  [ "$before" = "$(cksum caches/penstock/profiles/*.json)" ] && fail "new: nothing was replaced"
  PENSTOCK_PROFILE_CACHE=off run 0 train $small
  found && fail "PENSTOCK_PROFILE_CACHE=off: a profile was found"

  # A folder that cannot be made is no error, and a plan needs no profile.
  touch file
  kept_by train $small --profile-cache file/none
  grep -q 'not kept for later runs, since file/none cannot be written' err || fail "$(cat err)"
  run 0 profile --model mlp --width 256 --depth 3 --batch-size 32 --samples 1 -o p.json
  run 0 plan --profile p.json --workers 1 -o plan.json
  run 0 train $small --plan plan.json --profile-cache cache
  grep -q 'profile-cache has no effect: the plan is given' err || fail "--plan: $(cat err)"
  run 2 train $small --profile p.json --profile-cache cache

  # The ranks of a job keep a share each, and take them where all have theirs.
  job="launch --ranks 2 -- $PENSTOCK train $small --profile-cache $PWD/ranks"
  kept_by $job
  run 0 $job
  found || [ "$(files ranks)" -lt 2 ] || fail "a job did not find its shares: $(cat err)"
}
finish
