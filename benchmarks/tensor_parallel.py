#!/usr/bin/env python3
"""Teams of two threads against PyTorch's parallelize_module with two processes over Gloo, in turns:
the same sizes, samples, optimiser and steps.

    tensor_parallel.py --penstock build/release-wheel/penstock --rounds 5

PyTorch has its best plan: inputs of attention and of the MLP are replicated once, so that a layer
has two all-reduces in each pass instead of seven. Prints one JSON object: samples per second of
both, and the ratio of each round.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

CASES = {
    "gpt": {"width": 512, "depth": 4, "heads": 8, "time": 128, "tokens": 512, "batch": 8},
    "mlp": {"width": 2048, "depth": 6, "inputs": 1024, "classes": 1024, "batch": 64},
}


def run_penstock(tool, case, steps):
    c = CASES[case]
    if case == "gpt":
        sizes = ["--width", c["width"], "--depth", c["depth"], "--heads", c["heads"],
                 "--input", c["time"], "--classes", c["tokens"], "--dropout", 0]
    else:
        sizes = ["--width", c["width"], "--depth", c["depth"], "--input", c["inputs"],
                 "--classes", c["classes"]]
    command = [tool, "train", "--model", case, *sizes, "--data", "synthetic",
               "--batch-size", c["batch"], "--workers", 2, "--tensor", 2, "--strategy", "serial",
               "--micro-batches", 1, "--optimizer", "sgd", "--momentum", 0, "--lr", 0.01,
               "--warmup-steps", 2, "--steps", steps + 2, "--no-eval", "--json"]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    return json.loads(result.stdout)["throughput_samples_per_s"]


def member(rank, case, steps, port, results):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module)
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    c = CASES[case]

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(c["width"], c["width"]) for _ in range(4))

        def forward(self, x):
            size = c["width"] // c["heads"]
            q, k, v = (f(x).unflatten(2, (-1, size)).transpose(1, 2)
                       for f in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o(y.transpose(1, 2).flatten(2))

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(c["width"], 4 * c["width"])
            self.proj = nn.Linear(4 * c["width"], c["width"])

        def forward(self, x):
            return self.proj(F.gelu(self.fc(x), approximate="tanh"))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(c["width"]), nn.LayerNorm(c["width"])
            self.attn, self.mlp = Attention(), Mlp()

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(c["tokens"], c["width"])
            self.wpe = nn.Parameter(torch.zeros(c["time"], c["width"]))
            self.h = nn.ModuleList(Block() for _ in range(c["depth"]))
            self.ln_f = nn.LayerNorm(c["width"])
            self.head = nn.Linear(c["width"], c["tokens"], bias=False)
            self.head.weight = self.wte.weight

        def forward(self, x):
            x = self.wte(x) + self.wpe
            for block in self.h:
                x = block(x)
            return self.head(self.ln_f(x)).flatten(0, 1)

    class WideMlp(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = [c["inputs"]] + [c["width"]] * (c["depth"] - 1) + [c["classes"]]
            self.fc = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

        def forward(self, x):
            for layer in self.fc[:-1]:
                x = F.relu(layer(x))
            return self.fc[-1](x)

    replicated = {"input_layouts": (Replicate(),), "desired_input_layouts": (Replicate(),)}
    if case == "gpt":
        model = Gpt()
        for block in model.h:
            parallelize_module(block, mesh, {
                "attn": PrepareModuleInput(**replicated), "mlp": PrepareModuleInput(**replicated),
                "attn.q": ColwiseParallel(), "attn.k": ColwiseParallel(),
                "attn.v": ColwiseParallel(), "attn.o": RowwiseParallel(),
                "mlp.fc": ColwiseParallel(), "mlp.proj": RowwiseParallel()})
        inputs = torch.randint(0, c["tokens"], (c["batch"], c["time"]))
        targets = torch.randint(0, c["tokens"], (c["batch"] * c["time"],))
    else:
        model = WideMlp()
        parallelize_module(model, mesh, {
            f"fc.{i}": ColwiseParallel() if i % 2 == 0 else RowwiseParallel()
            for i in range(c["depth"])})
        inputs = torch.randn(c["batch"], c["inputs"])
        targets = torch.randint(0, c["classes"], (c["batch"],))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = 0.0
    for step in range(steps + 2):
        if step == 2:
            dist.barrier()
            begin = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    dist.barrier()
    if rank == 0:
        results.put(steps * c["batch"] / (time.perf_counter() - begin))
    dist.destroy_process_group()


def run_pytorch(case, steps):
    import socket
    import torch.multiprocessing as mp

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(member, (case, steps, port, results), nprocs=2)
    return results.get()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--penstock", default="build/release-wheel/penstock")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options = parser.parse_args()
    report = {}
    for case in options.cases:
        rounds = [(run_penstock(options.penstock, case, options.steps),
                   run_pytorch(case, options.steps)) for _ in range(options.rounds)]
        ratios = sorted(ours / theirs for ours, theirs in rounds)
        report[case] = {
            "penstock": statistics.median(ours for ours, _ in rounds),
            "pytorch": statistics.median(theirs for _, theirs in rounds),
            "ratio": statistics.median(ratios), "ratios": [round(ratio, 3) for ratio in ratios]}
        print(f"{case}: {json.dumps(report[case])}", file=sys.stderr)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
