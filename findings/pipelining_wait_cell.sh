#!/usr/bin/env bash
# torch.distributed.pipelining up to 2.14: a cell with an unknown word is read as its first letter.
#
# One would guess: a schedule file that PyTorch 2.15 has written, with its new cells WAIT_SEND_F and
# WAIT_SEND_B, is refused by an earlier version, which names the cell that it does not know.
#
# What happens: the parser matches the beginning of a cell. `0WAIT_SEND_F1` is read as `0W`, a
# backward for the weights of no micro-batch, and the rest of the cell is dropped. Likewise
# `0FORWARD3` is `0F` without a micro-batch, and `0F3x7` is `0F3`. The message that follows, if any,
# is about a weight gradient, which the file does not have.
#
# Versions: torch 2.13.0 (CPU); 2.14.0's parser is the same text. Date: 2026-11-29.
# Source: torch/distributed/pipelining/schedules.py, _action_regex and _Action.from_str.
#
# Output seen:
#   0WAIT_SEND_F1 is read as 0W
#   0FORWARD3 is read as 0F
#   0F3x7 is read as 0F3
#   the schedule: Rank 0, step 4: Running Backward Weight for stage 0, microbatch None ...
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
from torch.distributed.pipelining.schedules import _Action, _validate_schedule

cells = ("0WAIT_SEND_F1", "0FORWARD3", "0F3x7")
read = [str(_Action.from_str(cell)) for cell in cells]
for cell, action in zip(cells, read):
    print(f"{cell} is read as {action}")
rows = ("0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0", "1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0")
orders = {r: [_Action.from_str(cell) for cell in row.split(",")] for r, row in enumerate(rows)}
said = ""
try:
    _validate_schedule(orders, 2, 2, 1)
except AssertionError as error:
    said = str(error).splitlines()[0]
print("the schedule:", said)
raise SystemExit(0 if read == ["0W", "0F", "0F3"] and "Backward Weight" in said else 1)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
