# The first minute: a small network through everything, and a page at the end.
source "$(dirname "$0")/lib.sh"

run 0 demo --model lenet5 --seconds 1 -o here
page=$(tail -n 1 out)
[ "$page" = "$work/here/report.html" ] || fail "the last line is not the page: $page"
grep -q '</html>' "$page" || fail "$page is no page"
for made in profile.json plan.json schedule.txt history.json; do
  [ -s "here/$made" ] || fail "here/$made was not made"
done
grep -q 'measured / predicted = ' out || fail "nothing was compared: $(tail -n 20 out)"
# What it shows can be typed: the same plan comes of it.
command=$(grep '^\$ penstock plan ' out)
cp here/plan.json first.json
(cd here && run 0 ${command#\$ penstock } && cmp -s plan.json ../first.json) ||
  fail "'$command' gives another plan"

# Its own folder is made anew; what is somebody's is left alone.
run 0 demo --model lenet5 --seconds 1 -o here --workers 3
grep -q -- '--workers 3' out || fail "three workers were not planned for"
mkdir mine && echo keep >mine/profile.json
run 2 demo -o mine
grep -q "no demo has made it" err || fail "mine: $(cat err)"
[ "$(cat mine/profile.json)" = keep ] || fail "mine/profile.json was written"
run 2 demo -o mine/profile.json
run 2 demo --model no-such-model -o there
grep -q "'penstock profile' ended with 2" err || fail "a model that is none: $(cat err)"
for words in "--workers 1" "--seconds 0" "--seconds x"; do run 2 demo $words; done
finish
