#!/usr/bin/env bash
# numpy.load(FILE.npz, mmap_mode="r"): the option is taken and ignored; arrays are read into memory.
#
# One would guess: mmap_mode="r" keeps arrays on the disk, as it does for FILE.npy. numpy.savez stores
# them as they are, so nothing stands in the way; where it cannot be done, one is told.
#
# What happens: without a warning each access of an array of the .npz reads all of it into new memory.
# A second access reads it again: the two are different arrays.
#
# Versions: numpy 2.4.6. Date: 2026-11-29.
# Source: numpy/lib/_npyio_impl.py, load (NpzFile is made without mmap_mode).
#
# Output seen:
#   x.npy: memmap, read 0 MB
#   x.npz: ndarray, read 80 MB
#   x.npz again: ndarray, read 80 MB, the same array: False
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
import os
import sys
import warnings

import numpy

warnings.simplefilter("error")  # there is none
os.chdir(sys.argv[1])
numpy.save("x.npy", numpy.zeros(10_000_000))
numpy.savez("x.npz", x=numpy.zeros(10_000_000))


def bytes_read():
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


def opened(call):
    before = bytes_read()
    array = call()
    return array, round((bytes_read() - before) / 1e6)


plain, plain_mb = opened(lambda: numpy.load("x.npy", mmap_mode="r"))
archive = numpy.load("x.npz", mmap_mode="r")
first, first_mb = opened(lambda: archive["x"])
second, second_mb = opened(lambda: archive["x"])
print(f"x.npy: {type(plain).__name__}, read {plain_mb} MB")
print(f"x.npz: {type(first).__name__}, read {first_mb} MB")
print(f"x.npz again: {type(second).__name__}, read {second_mb} MB, the same array: "
      f"{first is second}")
is_there = (isinstance(plain, numpy.memmap) and plain_mb == 0 and type(first) is numpy.ndarray
            and first_mb == second_mb == 80 and first is not second)
raise SystemExit(0 if is_there else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
