#!/usr/bin/env bash
# torch.export: one tensor at two places of the example becomes one input, without a word.
#
# One would guess: the example shows shapes and types. A model of a language, exported with
# (ids, ids) because the labels are the tokens, keeps two inputs.
#
# What happens: the program has two inputs by name, and reads the last one in both places. The first
# is ignored: ids * 10 + labels of 1 and 2 is 22, not 12. There is no warning, and strict mode does
# the same. A copy in the example (ids.clone()) mends it.
#
# Versions: torch 2.13.0; 2.14.1 does the same. Date: 2026-11-29.
# Source: the graphs that torch.export.export returns.
#
# Output seen:
#   one tensor twice, strict=False: 22
#   one tensor twice, strict=True: 22
#   a copy, strict=False: 12
#   a copy, strict=True: 12
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
import torch


class Net(torch.nn.Module):
    def forward(self, ids, labels):
        return ids * 10 + labels


ids = torch.arange(4)
found = []
for name, labels in (("one tensor twice", ids), ("a copy", ids.clone())):
    for strict in (False, True):
        program = torch.export.export(Net(), (ids, labels), strict=strict).module()
        found.append(int(program(torch.full((4,), 1), torch.full((4,), 2))[0]))
        print(f"{name}, strict={strict}: {found[-1]}")
raise SystemExit(0 if found == [22, 22, 12, 12] else 1)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
