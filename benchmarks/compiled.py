#!/usr/bin/env python3
"""Compiled stages against torch.compile and eager PyTorch: python3 benchmarks/compiled.py.

The same model, data, loss and SGD with momentum. Every side is a process of its own; they take
turns, round by round, and ratios are taken within a round. Prints one JSON document: seconds per
step, and medians (lowest to highest) of PyTorch's time over Penstock's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch


class Block(torch.nn.Module):
    """A block of a transformer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, places, width = x.shape
        split = self.qkv(self.first(x)).view(batch, places, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, places, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class Gpt(torch.nn.Module):
    def __init__(self, depth, width, heads, words):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.head = torch.nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.blocks(self.words(x)))


class Lstm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = torch.nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def _mlp(depth, width):
    layers = [one for _ in range(depth) for one in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers[:-1])


def _vgg(widths):
    layers, channels = [], 3
    for width in widths:
        for _ in range(2):
            layers += [torch.nn.Conv2d(channels, width, 3, padding=1), torch.nn.ReLU()]
            channels = width
        layers.append(torch.nn.MaxPool2d(2))
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.LazyLinear(10))


def make(name):
    """The module, a batch and its targets."""
    torch.manual_seed(0)
    if name == "mlp":
        return _mlp(5, 4096), torch.randn(64, 4096), torch.randint(4096, (64,))
    if name == "gpt":
        words = torch.randint(256, (16, 129))
        return Gpt(6, 384, 6, 256), words[:, :-1].contiguous(), words[:, 1:].contiguous()
    if name == "vgg_small":
        net, x = _vgg((64, 128, 256)), torch.randn(32, 3, 32, 32)
        net(x)
        return net, x, torch.randint(10, (32,))
    if name == "lstm":
        return Lstm(256), torch.randn(64, 32, 256), torch.randint(10, (64,))
    return _mlp(2, 16), torch.randn(8, 16), torch.randint(16, (8,))  # tiny


def _pytorch(net, x, y, threads, compiled):
    torch.set_num_threads(threads)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()
    forward = torch.compile(net) if compiled else net

    def step():
        optimizer.zero_grad()
        out = forward(x)
        loss = loss_of(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _penstock(net, x, y, args, strategy, compiled):
    import penstock

    parts = {"serial": 1, "dp": args.workers}.get(strategy, 2 * args.workers)
    trainer = penstock.Trainer(
        net, x, strategy=strategy, workers=args.workers, lr=0.001, momentum=0.9, threads=1,
        batch_size=len(x), compile=compiled, micro_batches=parts,
    )  # fmt: skip
    return lambda: trainer.step(x, y)["loss"]


def one_side(args):
    net, x, y = make(args.model)
    side, _, how = args.side.partition("+")
    if side in ("eager", "compile"):
        step = _pytorch(net, x, y, args.workers, side == "compile")
    else:
        step = _penstock(net, x, y, args, side, how == "compile")
    losses = [step() for _ in range(args.warmup)]
    times = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": statistics.median(times), "loss": losses[-1]}))


def rounds(args, name, sides):
    """Per side: of each round, what one_side() prints."""
    found = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side in sides:
            command = [
                sys.executable, __file__, "--side", side, "--model", name, "--steps",
                str(args.steps), "--warmup", str(args.warmup), "--workers", str(args.workers),
            ]  # fmt: skip
            environment = {**os.environ, "OMP_NUM_THREADS": str(args.workers)}
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True,
                                  env=environment)  # fmt: skip
            found[side].append(json.loads(done.stdout.splitlines()[-1]))
    return found


def ratios(found, side, peer):
    """Of the peer's time over the side's: median, lowest, highest."""
    all_of = [a["seconds"] / b["seconds"] for a, b in zip(found[peer], found[side])]
    return [round(one, 3) for one in (statistics.median(all_of), min(all_of), max(all_of))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="mlp,gpt,vgg_small,lstm")
    parser.add_argument("--sides", default="dp+compile,1f1b-flush+compile,dp",
                        help="strategies; +compile: with compiled stages")  # fmt: skip
    parser.add_argument("--workers", type=int, default=2, help="of Penstock; PyTorch's threads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--side", help="one side alone, in this process")
    parser.add_argument("--model")
    args = parser.parse_args()
    if args.side:
        one_side(args)
        return
    result = {}
    for name in args.models.split(","):
        own = args.sides.split(",")
        found = rounds(args, name, ["eager", "compile", *own])
        result[name] = {
            "seconds": {side: [round(one["seconds"], 4) for one in found[side]] for side in found},
            "losses": {side: found[side][-1]["loss"] for side in found},
            "against": {
                side: {peer: ratios(found, side, peer) for peer in ("eager", "compile")}
                for side in own
            },
        }
        print(json.dumps({name: result[name]}), file=sys.stderr, flush=True)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
