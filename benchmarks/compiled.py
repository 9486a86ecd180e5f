#!/usr/bin/env python3
"""Compiled stages against torch.compile and eager PyTorch: python3 benchmarks/compiled.py.

The same model, data, loss and SGD with momentum. Every side is a process of its own; they take
turns, round by round, and ratios are taken within a round. Prints one JSON document: seconds per
step, and medians (lowest to highest) of PyTorch's time over Penstock's.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "benchmarks/imported"))

import models  # noqa: E402


def make(name):
    """The module, a batch and its targets."""
    torch.manual_seed(0)
    if name == "mlp":
        return models.mlp(), torch.randn(64, 4096), torch.randint(10, (64,))
    if name == "gpt":
        words = torch.randint(1000, (16, 129))
        return models.small_gpt(), words[:, :-1].contiguous(), words[:, 1:].contiguous()
    if name == "vgg_small":
        return models.vgg_small(), torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    if name == "lstm":
        return models.Lstm(), torch.randint(1000, (64, 64)), torch.randint(10, (64,))
    return models.mlp(16, 2), torch.randn(8, 16), torch.randint(10, (8,))  # tiny


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
        step = _penstock(net, x, y, args, side, bool(how))
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
            environment = {**os.environ, "OMP_NUM_THREADS": str(args.workers),
                           "PENSTOCK_COMPILE_ALL": str(int(side.endswith("+all"))),
                           "PYTHONPATH": str(args.build / "python")}  # fmt: skip
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
    parser.add_argument("--sides", default="dp,dp+compile,dp+all",
                        help="strategies; +compile: with compiled stages where these are faster; "
                        "+all: with all of them")  # fmt: skip
    parser.add_argument("--workers", type=int, default=2, help="of Penstock; PyTorch's threads")
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release-wheel",
                        help="a build with the package for Python")  # fmt: skip
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
