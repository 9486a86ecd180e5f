#!/usr/bin/env python3
"""Speed of training by penstock.Trainer over that by PyTorch, eager, from Python.

    benchmarks/speed_peers.py                                  all models and ways, half an hour
    benchmarks/speed_peers.py --models mlp lstm --ways one     some
    benchmarks/speed_peers.py --another-build build/old        another build of Penstock beside it
    benchmarks/speed_peers.py --precision bfloat16             16 bits against torch.autocast, and
                                                               against float32 here

Both train the same module with the same batches, loss and SGD with momentum; one worker against one
thread, two workers against two. Each run is a process; they take turns, the order moves on from
round to round, and ratios are taken within a round: median (lowest..highest). The plan of a way is
made once, by the first build. Peak memory is that of the largest process (VmHWM) of the same runs,
with the import of PyTorch; a run with the plan at hand does not profile.
Exit code: 0 done, 2 wrong usage, 3 a run failed. Needs a Python with PyTorch.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "imported")]

from machine import REPOSITORY, describe_machine  # noqa: E402

WARMUP = 2
RATE = {"lr": 0.001, "momentum": 0.9}
# Keywords of the Trainer, and the threads that PyTorch has for the same.
WAYS = {
    "one": ({"workers": 1, "strategy": "serial", "micro_batches": 1}, 1),
    "dp": ({"workers": 2, "strategy": "dp", "micro_batches": 2}, 2),
    "1f1b-flush": ({"workers": 2, "strategy": "1f1b-flush", "straight": True}, 2),
    "1f1b": ({"workers": 2, "strategy": "1f1b", "straight": True}, 2),
}
STEPS = {"mlp": 8, "gpt": 8, "resnet18": 10, "vgg_small": 8, "lstm": 8}


def case(name, steps):
    """A module, the samples of a step, and inputs and targets of all steps."""
    import torch
    import models

    torch.manual_seed(1)
    if name == "mlp":
        return models.mlp(), 128, torch.randn(128 * steps, 4096), torch.randint(10, (128 * steps,))
    if name == "gpt":
        ids = torch.randint(1000, (16 * steps, 129))
        return models.small_gpt(), 16, ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    if name == "lstm":
        rows = 64 * steps
        return models.Lstm(), 64, torch.randint(1000, (rows, 64)), torch.randint(10, (rows,))
    if name == "resnet18":
        rows = 32 * steps
        return models.resnet18(), 32, torch.randn(rows, 3, 64, 64), torch.randint(10, (rows,))
    rows = 64 * steps
    return models.vgg_small(), 64, torch.randn(rows, 3, 32, 32), torch.randint(10, (rows,))


def train_eager(module, samples, x, y, threads, precision):
    """Times at the ends of steps, and losses; 16 bits by torch.autocast."""
    import torch

    short = precision != "float32"
    dtype = getattr(torch, precision) if short else torch.bfloat16
    torch.set_num_threads(threads)
    optimizer = torch.optim.SGD(module.parameters(), **RATE)
    ends, losses = [], []
    for inputs, targets in zip(x.split(samples), y.split(samples)):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype, enabled=short):
            outputs = module(inputs)
        outputs = outputs.float().flatten(0, -2)
        loss = torch.nn.functional.cross_entropy(outputs, targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        ends.append(time.perf_counter())
    return ends, losses


def train_penstock(module, samples, x, y, keywords, plan, precision):
    import penstock

    keywords = {"plan": plan} if plan.exists() else {**keywords, "precision": precision}
    micro = samples // keywords.get("micro_batches", 1)
    trainer = penstock.Trainer(module, x[:micro], batch_size=samples, optimizer="SGD", threads=1,
                               progress=False, **RATE, **keywords)
    if not plan.exists():
        plan.write_text(json.dumps(trainer.plan))
    ends, losses = [], []

    def seen(step):
        ends.append(time.perf_counter())
        losses.append(step["loss"])

    trainer.fit(x, y, shuffle=False, callbacks=[seen])
    return ends, losses


def child(name, way, side, plan, steps, precision):
    """One run; prints a JSON."""
    keywords, threads = WAYS[way]
    module, samples, x, y = case(name, steps + WARMUP)
    if side == "eager":
        ends, losses = train_eager(module, samples, x, y, threads, precision)
    else:
        ends, losses = train_penstock(module, samples, x, y, keywords, pathlib.Path(plan),
                                      precision)
    with open("/proc/self/status") as status:
        peak_kb = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(json.dumps({"samples_per_s": samples * steps / (ends[-1] - ends[WARMUP - 1]),
                      "peak_bytes": peak_kb * 1024, "losses": losses}))


class Failed(Exception):
    """A run failed: what it was and what it said."""


def run(args, side, build, name, way, plan, steps):
    precision = "float32" if side == "float32" else args.precision
    plan = plan.with_suffix(f".{precision}.json")
    threads = WAYS[way][1] if side == "eager" else 1
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if build:
        environment["PYTHONPATH"] = str(build / "python")
    command = [args.python, __file__, "--child", name, way, side, str(plan), str(steps), precision]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise Failed(f"{name}, {way}, {side}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(args, name, way, folder):
    """Rounds of all sides in turn: a row with ratios over eager PyTorch."""
    sides = {"eager": None, "penstock": args.build}
    if args.another_build:
        sides["another"] = args.another_build
    if args.precision != "float32":
        sides["float32"] = args.build
    plan = folder / f"{name}.{way}.json"
    steps = 2 if args.quick else STEPS[name]
    for side in sides:
        if side in ("penstock", "float32"):
            run(args, side, args.build, name, way, plan, 1)  # makes the plan
    rounds = []
    for number in range(args.rounds):
        names = list(sides)
        start = number % len(names)
        rounds.append({side: run(args, side, sides[side], name, way, plan, steps)
                       for side in names[start:] + names[:start]})
    row = {"model": name, "way": way, "rounds": rounds}
    for side in list(sides)[1:]:
        for measure in ("samples_per_s", "peak_bytes"):
            row[f"{side} {measure}"] = [one[side][measure] / one["eager"][measure]
                                        for one in rounds]
    if args.another_build:
        row["penstock / another"] = [one["penstock"]["samples_per_s"] /
                                     one["another"]["samples_per_s"] for one in rounds]
    if "float32" in sides:
        for measure in ("samples_per_s", "peak_bytes"):
            row[f"{measure} over float32"] = [one["penstock"][measure] / one["float32"][measure]
                                              for one in rounds]
    return row


def between(ratios):
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"


def print_row(row):
    text = (f"{row['model']:10} {row['way']:10} speed {between(row['penstock samples_per_s'])}  "
            f"memory {statistics.median(row['penstock peak_bytes']):.2f}")
    if "penstock / another" in row:
        text += (f"  another {between(row['another samples_per_s'])}, this / another "
                 f"{between(row['penstock / another'])}")
    if "samples_per_s over float32" in row:
        text += (f"  over float32: speed {between(row['samples_per_s over float32'])}, memory "
                 f"{statistics.median(row['peak_bytes over float32']):.2f}")
    print(text, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release-wheel",
                        help="a build with the package for Python")
    parser.add_argument("--another-build", type=pathlib.Path, help="a second one")
    parser.add_argument("--precision", default="float32",
                        choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--python", default=REPOSITORY / "build/venv/bin/python")
    parser.add_argument("--plans", type=pathlib.Path, help="folder that keeps the plans")
    parser.add_argument("--quick", action="store_true", help="two steps: shows that all runs")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="results as JSON")
    args = parser.parse_args()
    args.python = str(args.python)
    if args.rounds < 1:
        parser.error("--rounds: expected at least 1")
    return args


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.plans or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows, code = [], 0
        for name in args.models:
            for way in args.ways:
                try:
                    rows.append(compare(args, name, way, folder.resolve()))
                    print_row(rows[-1])
                except Failed as failure:
                    print(failure, file=sys.stderr, flush=True)
                    code = 3
    if args.output:
        args.output.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))
    return code


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:6], int(sys.argv[6]), sys.argv[7])
    else:
        sys.exit(main())
