#!/usr/bin/env bash
# torch.distributed: the errors of powerSGD_hook add up from step to step where replicas have other
# data.
#
# One would guess: error feedback keeps what a step's compression has left out and sends it later.
# So what is kept stays about as large as a few gradients, and shrinks as they do.
#
# What happens: the hook keeps each replica's own gradient, with what it kept before, minus the
# decompressed mean. What a replica's gradient differs from the mean by is never sent by anybody: it
# is added at every step. Tensors that are not compressed, such as biases, take part. With two
# replicas that see other classes, what is kept grows in proportion to the steps while gradients
# become small.
#
# Versions: torch 2.13.0 (CPU, gloo). Date: 2026-12-01.
# Source: torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py, powerSGD_hook, where
# error_dict is set after the decompression.
#
# Output seen:
#   step 10: kept 6.00, gradient 0.59
#   step 100: kept 64.12, gradient 0.51
#   step 1000: kept 662.20, gradient 0.15
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

rank = int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 3)))
state = power.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2,
                            min_compression_rate=1)
model.register_comm_hook(state, power.powerSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(2 + rank)
x = torch.randn(64, 10)
y = (x[:, 0] > 0).long() + rank
kept = {}
for step in range(1001):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    if step in (10, 100, 1000):
        kept[step] = state.error_dict[0].norm().item()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
        if rank == 0:
            print(f"step {step}: kept {kept[step]:.2f}, gradient {gradient:.2f}", flush=True)
dist.barrier()
raise SystemExit(0 if kept[100] > 5 * kept[10] and kept[1000] > 5 * kept[100] else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder/store" 1 &
other=$!
"$folder/venv/bin/python" "$folder/program.py" "$folder/store" 0
wait "$other"
