#!/usr/bin/env bash
# torch.distributed.pipelining: a weight of two stages in one process gets a wrong gradient.
#
# One would guess: where a process holds the first and the last stage (a loop or a V), a weight that
# both use, such as a tied embedding, gets the sum of both gradients, as autograd makes it: it is
# one tensor in one process, and nothing has to be sent.
#
# What happens: the sum is there, but each stage divides the gradients of its parameters by the
# number of micro-batches (scale_grads), after its own last backward. The shared weight's is divided
# twice, in part before the other stage has added to it. No warning. All other gradients are right.
# With scale_grads=False and a division by hand this one is right, too.
#
# Versions: torch 2.13.0 (CPU). Date: 2026-11-29.
# Source: torch/distributed/pipelining/stage.py, _PipelineStageBase.scale_grads.
#
# Output seen:
#   gradients against those of the whole module, which are 1:
#   of one stage: 1.00 to 1.00
#   of two stages: -2.57 to 2.96
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(1)
shared, own = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
modules = [nn.Sequential(shared, nn.Tanh(), own), nn.Sequential(nn.Tanh(), shared)]
x, y = torch.randn(4, 3), torch.randn(4, 3)

whole = copy.deepcopy(nn.Sequential(*modules))
nn.functional.mse_loss(whole(x), y).backward()
stages = [PipelineStage(module, k, 2, torch.device("cpu")) for k, module in enumerate(modules)]
ScheduleInterleaved1F1B(stages, 2, loss_fn=nn.functional.mse_loss).step(x, target=y)

print("gradients against those of the whole module, which are 1:")
own_ratio = own.weight.grad / whole[0][2].weight.grad
shared_ratio = shared.weight.grad / whole[0][0].weight.grad
for said, ratio in (("one stage", own_ratio), ("two stages", shared_ratio)):
    print(f"of {said}: {ratio.min():.2f} to {ratio.max():.2f}")
is_there = (own_ratio - 1).abs().max() < 1e-3 and (shared_ratio - 1).abs().max() > 0.1
raise SystemExit(0 if is_there else 1)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
