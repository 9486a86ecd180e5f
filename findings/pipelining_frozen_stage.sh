#!/usr/bin/env bash
# torch.distributed.pipelining: zero-bubble schedules do not train what lies behind a frozen stage.
#
# One would guess: a schedule decides the order of passes, not what they compute. Where the first
# stage is frozen, as in fine-tuning, the weights of the second one get the gradients that they
# have under 1F1B.
#
# What happens: with a schedule that divides backward passes (ScheduleInterleavedZeroBubble,
# ScheduleZBVZeroBubble, I and W of a CSV) the second stage's weights get no gradient at all. `I`
# looks for the weights of `W` on the way from the stage's inputs to its outputs; inputs that need
# no gradient have no such way. Nothing is said, the optimiser passes over the weights, and the loss
# stays where it is. Weights whose way does not join that of an input within the stage, such as an
# embedding that a middle stage begins with, are left out as well.
#
# Versions: torch 2.13.0 (CPU). Date: 2026-12-01.
# Source: torch/distributed/pipelining/_backward.py, get_param_groups, whose check of this is
# commented out.
#
# Output seen:
#   ScheduleInterleaved1F1B: gradients of 2 of the 2 trained tensors
#   ScheduleInterleavedZeroBubble: gradients of 0 of the 2 trained tensors
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x, y = torch.randn(4, 3), torch.randn(4, 3)
found = []
for kind in (pipelining.ScheduleInterleaved1F1B, pipelining.ScheduleInterleavedZeroBubble):
    modules = [nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3)]
    stages = [
        pipelining.PipelineStage(module, k, 2, torch.device("cpu"))
        for k, module in enumerate(modules)
    ]
    kind(stages, 2, loss_fn=nn.functional.mse_loss).step(x, target=y)
    found.append(sum(weight.grad is not None for weight in modules[1].parameters()))
    print(f"{kind.__name__}: gradients of {found[-1]} of the 2 trained tensors")
raise SystemExit(0 if found == [2, 0] else 1)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
