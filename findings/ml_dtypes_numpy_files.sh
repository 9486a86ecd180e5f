#!/usr/bin/env bash
# NumPy's files: arrays of ml_dtypes (bfloat16, float8) are written without a word and cannot be read
# back as what they were.
#
# One would guess: numpy.save writes the type of an array, and numpy.load, in a program that has
# imported ml_dtypes, returns the same array. At least all types are treated alike.
#
# What happens: the header gets the type's letter and width only.
# - bfloat16 is "<V2" and comes back as raw bytes (void), two for each number. Numbers can be computed
#   with after .view(ml_dtypes.bfloat16) only.
# - float8_e4m3fn, int4 and int2 are all "<V1": the file does not say which.
# - float8_e5m2 is "<f1", which numpy.load itself refuses.
#
# Versions: numpy 2.4.6, ml_dtypes 0.5.4. Date: 2026-11-29.
# Source: numpy/lib/_format_impl.py, dtype_to_descr and descr_to_dtype.
#
# Output seen:
#   bfloat16 '<V2' loads as |V2
#   float8_e4m3fn '<V1' loads as |V1
#   int4 '<V1' loads as |V1
#   float8_e5m2 '<f1' is refused: descr is not a valid dtype descriptor: '<f1'
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 ml_dtypes==0.5.4

cat >"$folder/program.py" <<'PYTHON'
import io

import ml_dtypes
import numpy

found = []
for name in "bfloat16", "float8_e4m3fn", "int4", "float8_e5m2":
    file = io.BytesIO()
    numpy.save(file, numpy.ones(3, getattr(ml_dtypes, name)))
    written = file.getvalue().split(b"'descr': '")[1].split(b"'")[0].decode()
    file.seek(0)
    try:
        read = f"loads as {numpy.load(file).dtype}"
    except ValueError as error:
        read = f"is refused: {error}"
    print(f"{name} '{written}' {read}")
    found.append((written, read.split(":")[0]))
raise SystemExit(0 if found == [("<V2", "loads as |V2"), ("<V1", "loads as |V1"),
                                ("<V1", "loads as |V1"), ("<f1", "is refused")] else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
