#!/usr/bin/env python3
"""Peak memory of whole processes: training by Penstock's Trainer over the same by PyTorch, eager.

    memory_peers.py                                   # all models, all ways; an hour or more
    memory_peers.py --models mlp gpt --ways one dp
    memory_peers.py --penstock build/release/penstock # beside it the command, for models of its zoo

Each run is a process of its own: the same module, batches, loss and SGD with momentum, a few steps.
What is compared is the largest resident memory (VmHWM) from the start to the end, with the import
of torch, and for Penstock with export, profile and plan. Prints a row per model and way: both peaks
in MB, their ratio, what each had after its imports, and the peaks of the Trainer's construction and
of its steps alone. Writes a JSON with every number. Needs a Python with PyTorch and the package.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

from machine import REPOSITORY, describe_machine
from speed_peers import RATE, WAYS, case

STEPS = 4
# The samples of a step; words for `penstock train` where its zoo has the model.
MODELS = {
    "mlp": (128, ["mlp", "--width", "4096", "--depth", "5"]),
    "gpt": (16, None),
    "resnet18": (32, ["resnet18", "--input", "3x64x64"]),
    "vgg_small": (64, ["vgg_small"]),
    "lstm": (64, None),
    "smollm2": (4, None),
    "lora": (4, None),
}
TARGET = {"one": 1.0, "dp": 1.0, "1f1b-flush": 1.0, "1f1b": 1.3}
TARGET_OF_LORA = 0.7


def memory_kb(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":"))


def reset_peak():
    with open("/proc/self/clear_refs", "w") as control:
        control.write("5")


# PyTorch is imported where modules are made: what its import takes is measured.


def smollm2(rank=0):
    """The shape of SmolLM2-135M. `rank`: of adapters of queries and values, all else is frozen."""
    import torch
    from torch import nn

    width, inner, heads, groups, depth, words, places = 576, 1536, 9, 3, 30, 49152, 128
    size = width // heads

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    class Adapted(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.base = nn.Linear(inputs, outputs, bias=False)
            self.a, self.b = nn.Linear(inputs, rank, False), nn.Linear(rank, outputs, False)

        def forward(self, x):
            return self.base(x) + self.b(self.a(x))

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            adapted = Adapted if rank else linear
            self.norm1, self.norm2 = Norm(), Norm()
            self.q, self.v = adapted(width, width), adapted(width, groups * size)
            self.k, self.o = linear(width, groups * size), linear(width, width)
            self.gate, self.up = linear(width, inner), linear(width, inner)
            self.down = linear(inner, width)

        def forward(self, x, cos, sin):
            b, t, _ = x.shape
            y = self.norm1(x)
            q = self.q(y).view(b, t, heads, size).transpose(1, 2)
            k = self.k(y).view(b, t, groups, size).transpose(1, 2)
            v = self.v(y).view(b, t, groups, size).transpose(1, 2)
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            k = k.repeat_interleave(heads // groups, 1)
            v = v.repeat_interleave(heads // groups, 1)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, t, width))
            y = self.norm2(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    def turned(x, cos, sin):
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat((-right, left), -1) * sin

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(words, width)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm = Norm()
            self.head = linear(width, words)
            self.head.weight = self.tokens.weight
            nn.init.normal_(self.tokens.weight, std=0.02)
            angles = torch.outer(torch.arange(places),
                                 100000.0 ** -(torch.arange(0, size, 2) / size))
            angles = torch.cat((angles, angles), -1)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

        def forward(self, x):
            x = self.tokens(x)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return self.head(self.norm(x))

    model = Llama()
    if rank:
        for name, weight in model.named_parameters():
            weight.requires_grad_(name.endswith((".a.weight", ".b.weight")))
    return model


def case_of(name):
    """As case() of speed_peers.py, which has the smaller models."""
    import torch

    if name not in ("smollm2", "lora"):
        return case(name, STEPS)
    module, samples = smollm2(rank=8 if name == "lora" else 0), MODELS[name][0]
    x, y = torch.randint(0, 49152, (2, STEPS * samples, 128))
    return module, samples, x, y


def train_by_pytorch(module, x, y, samples, threads):
    import torch

    torch.set_num_threads(threads)
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(trained, **RATE)
    module.train()
    reset_peak()
    for begin in range(0, len(x), samples):
        optimizer.zero_grad()
        logits = module(x[begin : begin + samples])
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]),
                                                 y[begin : begin + samples].view(-1))
        del logits
        loss.backward()
        optimizer.step()
        last = loss.item()
    return {"loss": last}


def train_by_penstock(module, x, y, samples, keywords):
    import penstock

    reset_peak()
    micro = samples // keywords.get("micro_batches", 4)
    trainer = penstock.Trainer(module, x[:micro], batch_size=samples, optimizer="SGD",
                               profile_cache=False, progress=False, threads=1, **RATE, **keywords)
    result = {"construct_mb": memory_kb("VmHWM") / 1e3, "constructed_mb": memory_kb("VmRSS") / 1e3}
    reset_peak()
    result["loss"] = trainer.fit(x, y, shuffle=False)[0]["loss"]
    return result


def child(name, way, side):
    """Trains in this process; prints a JSON."""
    import torch

    if side == "penstock":
        import penstock  # noqa: F401
    libraries = memory_kb("VmRSS") / 1e3
    torch.manual_seed(1)
    module, samples, x, y = case_of(name)
    keywords, threads = WAYS[way]
    peak = memory_kb("VmHWM") / 1e3
    if side == "penstock":
        result = train_by_penstock(module, x, y, samples, dict(keywords))
    else:
        result = train_by_pytorch(module, x, y, samples, threads)
    result["train_mb"] = memory_kb("VmHWM") / 1e3
    result["peak_mb"] = max(peak, result["train_mb"], result.get("construct_mb", 0))
    result["libraries_mb"] = libraries
    print(json.dumps(result))


def run_child(build, name, way, side):
    # As train_by_pytorch() and the Trainer set their threads, but for what the import starts.
    done = subprocess.run([sys.executable, __file__, "--child", name, way, side], text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "2",
                                                     "PYTHONPATH": str(build / "python")})
    if done.returncode != 0:
        raise RuntimeError(f"{name}, {way}, {side}: exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def run_command(penstock, name, way):
    """The peak of `penstock train`, one process, with profile and plan; None: not in the zoo."""
    samples, words = MODELS[name]
    if words is None:
        return None
    keywords = WAYS[way][0]
    done = subprocess.run(
        [penstock, "train", "--model", *words, "--data", "synthetic", "--train-samples",
         str(STEPS * samples), "--epochs", "1", "--batch-size", str(samples), "--workers",
         str(keywords["workers"]), "--strategy", keywords["strategy"], "--lr", str(RATE["lr"]),
         "--momentum", str(RATE["momentum"]), "--no-eval", "--profile-cache", "off", "--json",
         *(["--micro-batches", str(keywords["micro_batches"])] if "micro_batches" in keywords
           else []),
         *(["--straight"] if "straight" in keywords else [])],
        text=True, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise RuntimeError(f"{name}, {way}, penstock train: exit status {done.returncode}")
    result = json.loads(done.stdout)
    return {"peak_mb": result["peak_memory_bytes"] / 1e6, "memory": result["memory"]}


def target_of(name, way):
    return TARGET_OF_LORA if name == "lora" else TARGET[way]


def table(rows):
    lines = ["| model | way | PyTorch, MB | Penstock | ratio | aim | libraries | construction "
             "| steps | command | ratio |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        peer, own, command = row["pytorch"], row["penstock"], row.get("command")
        by_command = f"{command['peak_mb']:.0f} | {command['peak_mb'] / peer['peak_mb']:.2f}" \
            if command else "|"
        lines.append(
            f"| {row['model']} | {row['way']} | {peer['peak_mb']:.0f} | {own['peak_mb']:.0f} "
            f"| {own['peak_mb'] / peer['peak_mb']:.2f} | {target_of(row['model'], row['way'])} "
            f"| {peer['libraries_mb']:.0f}, {own['libraries_mb']:.0f} "
            f"| {own['construct_mb']:.0f} | {own['train_mb']:.0f} | {by_command} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release-wheel",
                        help="a build with the package for Python")
    parser.add_argument("--penstock", type=pathlib.Path)
    parser.add_argument("--output", default="memory_peers.json", type=pathlib.Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    rows, peers = [], {}
    for name in args.models:
        for way in args.ways:
            threads = WAYS[way][1]
            if (name, threads) not in peers:
                peers[name, threads] = run_child(args.build, name, way, "pytorch")
            row = {"model": name, "way": way, "pytorch": peers[name, threads],
                   "penstock": run_child(args.build, name, way, "penstock")}
            if args.penstock:
                row["command"] = run_command(args.penstock, name, way)
            rows.append(row)
            print(table([row]).splitlines()[-1], file=sys.stderr)
    args.output.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
