# The conformance suite of fabrics over MPI: five processes under mpirun run the same tests, each of
# them as one rank. Given the program of the runtime's tests. Skipped without mpirun, and in a build
# without MPI.
set -u
program=$1
skip() {
  echo "skipped: $*"
  exit 77
}
command -v mpirun >/dev/null || skip "there is no mpirun (Debian: openmpi-bin)"
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-mpi.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
# Open MPI's own: two that start at once fail over its folder in /tmp.
export TMPDIR=$work
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR PENSTOCK_LISTEN PENSTOCK_SERVERS
export MASTER_PORT=$((20000 + $$ % 10000)) OMP_NUM_THREADS=1

# Each rank's output in a file of its own.
timeout 250 mpirun -n 5 --oversubscribe sh -c \
  'exec "$0" --gtest_filter="Fabrics/ConformanceTest.*/mpi" >"$1.$OMPI_COMM_WORLD_RANK" 2>&1' \
  "$program" "$work/out" </dev/null >"$work/mpirun" 2>&1
code=$?
grep -qs '^\[==========\] 0 tests' "$work/out.0" && skip "this build has no module of MPI"
if [ $code -ne 0 ]; then
  echo "FAILED: exit code $code"
  tail -n 20 "$work/mpirun"
  for out in "$work"/out.*; do
    echo "--- rank ${out##*.}"
    grep -vE '^\[ +(OK|RUN) +\]' "$out" | tail -n 40
  done
  exit 1
fi
for rank in 0 1 2 3 4; do
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests.*/\1/p' "$work/out.$rank")
  [ "${passed:-0}" -ge 8 ] || { echo "FAILED: rank $rank passed ${passed:-no} tests"; exit 1; }
done
echo "passed: $passed tests on each of 5 ranks"
