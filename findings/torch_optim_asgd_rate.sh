#!/usr/bin/env bash
# torch.optim.ASGD: a new learning rate counts one step late, and the first rate twice.
#
# One would guess: a step moves the weights by the rate that its group has at that step, as those of
# all other optimisers do. The formula of the documentation has one rate throughout.
#
# What happens: a step uses the rate that the step before has worked out for it (the state "eta"),
# and the first one that of the moment. Under a schedule each rate is applied one step late: a
# warm-up begins with its first rate twice, and the last rate of a run is never used.
#
# Versions: torch 2.13.0. Date: 2026-11-29.
# Source: torch/optim/asgd.py, where eta is set after the weights have moved.
#
# Output seen:
#   rates 1, 0.1, 0.01, 0.001: SGD moves by 1.0, 0.1, 0.01, 0.001
#   rates 1, 0.1, 0.01, 0.001: ASGD moves by 1.0, 1.0, 0.1, 0.01
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
import torch

found = []
for make in (torch.optim.SGD, torch.optim.ASGD):
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = make([weight], lr=1.0, **({"lambd": 0.0} if make is torch.optim.ASGD else {}))
    moved = []
    for step in range(4):
        optimizer.param_groups[0]["lr"] = 10.0**-step
        before = weight.item()
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        moved.append(round(before - weight.item(), 6))
    found.append(moved)
    print("rates 1, 0.1, 0.01, 0.001:", make.__name__, "moves by", ", ".join(map(str, moved)))
raise SystemExit(0 if found == [[1, 0.1, 0.01, 0.001], [1, 1, 0.1, 0.01]] else 1)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
