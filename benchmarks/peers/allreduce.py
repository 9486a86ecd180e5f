#!/usr/bin/env python3
"""torch.distributed's all-reduce over Gloo: one rank of a job that torchrun or another launcher
started. Rank 0 prints one JSON line with the seconds of each."""

import argparse
import json
import os
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--bytes", type=int, required=True)
parser.add_argument("--times", type=int, default=3)
args = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402
from torch import distributed  # noqa: E402

distributed.init_process_group("gloo")
values = torch.ones(args.bytes // 4)
distributed.all_reduce(torch.ones(1 << 16))  # connects
seconds = []
for _ in range(args.times):
    values.fill_(1)
    distributed.barrier()
    before = time.perf_counter()
    distributed.all_reduce(values)
    seconds.append(time.perf_counter() - before)
expected = distributed.get_world_size()
if values[0].item() != expected or values[-1].item() != expected:
    raise SystemExit(f"allreduce.py: expected a sum of {expected}, found {values[-1].item()}")
if distributed.get_rank() == 0:
    print(json.dumps({"seconds": seconds, "torch": torch.__version__}), flush=True)
distributed.barrier()
distributed.destroy_process_group()
