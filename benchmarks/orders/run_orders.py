#!/usr/bin/env python3
"""Orders made from costs against every other kind that keeps as many micro-batches.

    benchmarks/orders/run_orders.py --penstock build/release/penstock -o orders.json

Simulated, so it needs no quiet machine: 4 and 8 workers, p, 2p and 4p micro-batches, five sets of
costs, messages of 0, 0.1 and 0.3 F. Prints a table row per kind: the time of zb-auto or zb-auto-v
with --keep as large as the kind's own number, divided by that of the kind. With --random N instead:
N cases of 2 to 16 workers, p to 4p micro-batches, stages with F, I and W of their own and messages
of 0 to 0.3 F, and the same order with more and more to keep; with --links messages also occupy the
links, for 0.05 to 3 F, and every third case recomputes. Exits with 1 where one of ours is
slower by more than 0.1 %, or slower although it may keep more.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COSTS = [(1000, 1000, 1000), (1000, 1200, 800), (1000, 1600, 600), (1000, 800, 1200),
         (1000, 1900, 1000)]  # F, I, W in microseconds
SINGLE = ["mp", "gpipe", "1f1b-flush", "eager-1f1b", "zb-h1", "zb-h2"]
FOLDED = ["zb-v", "v-half", "v-min", "dualpipe-v"]


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


class Bench:
    def __init__(self, penstock, folder):
        self.penstock = penstock
        self.shape = []  # of all schedules
        self.file = Path(folder) / "schedule.txt"

    def schedule(self, kind, stages, micro_batches, *options):
        run(self.penstock, "schedule", "--kind", kind, "--stages", stages, "--micro-batches",
            micro_batches, "-o", self.file, *self.shape, *options)

    def kept(self):
        """Micro-batches from F to B or W, of the worker that keeps most."""
        most = 0
        for line in self.file.read_text().splitlines():
            kept = 0
            for op in re.findall(r"(?:^|,)\d+([FBW])\d+", line):
                kept += 1 if op == "F" else -1
                most = max(most, kept)
        return most

    def makespan(self, costs):
        report = json.loads(run(self.penstock, "simulate", "--schedule", self.file, "--json",
                                *costs))
        return report["makespan_ns"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--penstock", required=True)
    parser.add_argument("-o", "--output")
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("--links", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.random:
        sys.exit(run_random(args))
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.penstock, folder)
        for workers in (4, 8):
            for rounds in (1, 2, 4):
                for forward, backward_input, weight in COSTS:
                    for message in (0, forward // 10, forward * 3 // 10):
                        costs = ["--forward", f"{forward}us", "--backward-input",
                                 f"{backward_input}us", "--backward-weight", f"{weight}us",
                                 "--latency", f"{message}us"]
                        compare(bench, ratios, workers, workers * rounds, costs)
        begin = time.monotonic()
        bench.schedule("zb-auto", 16, 64, *costs)
        longest = time.monotonic() - begin
        begin = time.monotonic()
        bench.schedule("zb-auto-v", 32, 64, *costs)
        longest = max(longest, time.monotonic() - begin)
    print_ratios(ratios)
    print(f"\n16 workers, 64 micro-batches: {longest:.2f} s at most")
    if args.output:
        Path(args.output).write_text(json.dumps({"ratios": ratios, "longest_s": longest}))


def print_ratios(ratios):
    print("| against | cases | median | lowest | highest | more than 1 % faster |")
    print("|---|---|---|---|---|---|")
    for kind, found in ratios.items():
        faster = sum(ratio < 0.99 for ratio in found)
        print(f"| `{kind}` | {len(found)} | {statistics.median(found):.3f} | {min(found):.3f} "
              f"| {max(found):.4f} | {faster} |")


def run_random(args):
    rng = random.Random(args.seed)
    ratios, growing, steps, longest = {}, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.penstock, folder)
        for case in range(args.random):
            workers = rng.randint(2, 16)
            micro_batches = rng.randint(workers, 4 * workers)
            message = rng.choice([0, rng.uniform(0, 300)])
            uneven = rng.choice([0, 0.1, 0.5])
            links = []
            if args.links:
                links = ["--bandwidth", "1GB/s", "--message-bytes",
                         f"{rng.uniform(0.05, 3) * 1e6:.0f}B"]
                bench.shape = ["--recompute", "all"] if rng.randrange(3) == 0 else []
            means = [1000 * rng.uniform(0.5, 2) for _ in range(3)]
            for folded in (False, True):
                stages = workers * (2 if folded else 1)
                costs = ["--latency", f"{message:.0f}us", *links]
                for name, mean in zip(["forward", "backward-input", "backward-weight"], means):
                    own = [f"{mean * rng.uniform(1 - uneven, 1 + uneven):.0f}us"
                           for _ in range(stages)]
                    costs += [f"--{name}", ",".join(own)]
                single, double = (SINGLE, []) if not folded else ([], FOLDED)
                longest = max(longest, compare(bench, ratios, workers, micro_batches, costs, single,
                                               double))
                last = None
                ours = "zb-auto-v" if folded else "zb-auto"
                for keep in sorted({workers, workers * 3 // 2, 2 * workers - 1, 2 * workers,
                                    3 * workers, 4 * workers}):
                    bench.schedule(ours, stages, micro_batches, "--keep", keep, *costs)
                    span = bench.makespan(costs)
                    steps += last is not None
                    growing += last is not None and span > last
                    last = span
    print_ratios(ratios)
    worst = max(max(found) for found in ratios.values())
    print(f"\n{args.random} cases, seed {args.seed}: {worst:.4f} at most; slower with more to "
          f"keep: {growing} of {steps}; {longest:.2f} s at most for an order")
    return 1 if worst > 1.001 or growing else 0


def compare(bench, ratios, workers, micro_batches, costs, single=SINGLE, folded=FOLDED):
    """Returns how long the longest search took, in seconds."""
    longest = 0
    for kinds, ours, stages in ((single, "zb-auto", workers), (folded, "zb-auto-v", 2 * workers)):
        for kind in kinds:
            bench.schedule(kind, stages, micro_batches)
            theirs = bench.makespan(costs)
            keep = bench.kept()
            begin = time.monotonic()
            bench.schedule(ours, stages, micro_batches, "--keep", keep, *costs)
            longest = max(longest, time.monotonic() - begin)
            if bench.kept() > keep:
                sys.exit(f"{ours} keeps {bench.kept()}, may keep {keep}")
            ratios.setdefault(kind, []).append(bench.makespan(costs) / theirs)
    return longest


if __name__ == "__main__":
    main()
