#!/usr/bin/env bash
# torch.distributed.pipelining: the first step changes batch norm's running statistics by garbage.
#
# One would guess: a PipelineStage made as in PyTorch's guide, from a module, its number and a
# device, leaves buffers as the micro-batches make them. After one step with two micro-batches a
# batch norm has seen two batches.
#
# What happens: without `input_args` and `output_args` the first call of schedule.step runs each
# module once more to learn the sizes that it hands on. The later stages run on uninitialised memory
# (torch.empty). Batch norm in training mode takes the statistics of that, too: it has seen three
# batches, and its running mean holds whatever lay in memory. The losses in training mode do not
# show it; evaluation uses the numbers. With `input_args` and `output_args` on every stage nothing
# is run.
#
# Versions: torch 2.13.0 (CPU). Date: 2026-11-29.
# Source: torch/distributed/pipelining/stage.py, PipelineStage._forward_metadata_inference.
# The script turns on deterministic algorithms, which fill uninitialised memory with NaN, so that the
# output does not vary. Without them the mean was -1.0e+37 once.
#
# Output seen:
#   without sizes: batches 3, running mean nan
#   with sizes: batches 2, running mean finite
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

torch.use_deterministic_algorithms(True)  # torch.empty returns NaN
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def after_a_step(with_sizes):
    """Of the second stage's batch norm: batches seen, and whether its mean is finite."""
    torch.manual_seed(1)
    norm = nn.BatchNorm1d(3)
    modules = [nn.Linear(3, 3), nn.Sequential(norm, nn.Linear(3, 3))]
    x = torch.randn(2, 3)
    between = torch.zeros(2, 3, requires_grad=True)
    sizes = [(x, between), (between, between)] if with_sizes else [(None, None)] * 2
    stages = [
        PipelineStage(module, k, 2, torch.device("cpu"), input_args=taken, output_args=made)
        for k, (module, (taken, made)) in enumerate(zip(modules, sizes))
    ]
    schedule = ScheduleInterleaved1F1B(stages, 2, loss_fn=nn.functional.mse_loss)
    schedule.step(torch.randn(4, 3), target=torch.randn(4, 3))
    return norm.num_batches_tracked.item(), norm.running_mean.isfinite().all().item()


found = [after_a_step(with_sizes) for with_sizes in (False, True)]
for said, (batches, finite) in zip(("without", "with"), found):
    print(f"{said} sizes: batches {batches}, running mean {'finite' if finite else 'nan'}")
raise SystemExit(0 if found == [(3, False), (2, True)] else 1)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
