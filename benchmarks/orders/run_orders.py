#!/usr/bin/env python3
"""Orders made from costs against every other kind that keeps as many micro-batches.

    benchmarks/orders/run_orders.py --penstock build/release/penstock -o orders.json

Simulated, so it needs no quiet machine: 4 and 8 workers, p, 2p and 4p micro-batches, five sets of
costs, messages of 0, 0.1 and 0.3 F. Prints a table row per kind: the time of zb-auto or zb-auto-v
with --keep as large as the kind's own number, divided by that of the kind.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COSTS = [(1000, 1000, 1000), (1000, 1200, 800), (1000, 1600, 600), (1000, 800, 1200),
         (1000, 1900, 1000)]  # F, I, W in microseconds
SINGLE = ["gpipe", "1f1b-flush", "eager-1f1b", "zb-h1", "zb-h2"]
FOLDED = ["zb-v", "v-half", "v-min", "dualpipe-v"]


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


class Bench:
    def __init__(self, penstock, folder):
        self.penstock = penstock
        self.file = Path(folder) / "schedule.txt"

    def schedule(self, kind, stages, micro_batches, *options):
        run(self.penstock, "schedule", "--kind", kind, "--stages", stages, "--micro-batches",
            micro_batches, "-o", self.file, *options)

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
    args = parser.parse_args()
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
    print("| against | cases | median | lowest | highest | more than 1 % faster |")
    print("|---|---|---|---|---|---|")
    for kind, found in ratios.items():
        faster = sum(ratio < 0.99 for ratio in found)
        print(f"| `{kind}` | {len(found)} | {statistics.median(found):.3f} | {min(found):.3f} "
              f"| {max(found):.3f} | {faster} |")
    print(f"\n16 workers, 64 micro-batches: {longest:.2f} s at most")
    if args.output:
        Path(args.output).write_text(json.dumps({"ratios": ratios, "longest_s": longest}))


def compare(bench, ratios, workers, micro_batches, costs):
    for kinds, ours, stages in ((SINGLE, "zb-auto", workers), (FOLDED, "zb-auto-v", 2 * workers)):
        for kind in kinds:
            bench.schedule(kind, stages, micro_batches)
            theirs = bench.makespan(costs)
            keep = bench.kept()
            bench.schedule(ours, stages, micro_batches, "--keep", keep, *costs)
            if bench.kept() > keep:
                sys.exit(f"{ours} keeps {bench.kept()}, may keep {keep}")
            ratios.setdefault(kind, []).append(bench.makespan(costs) / theirs)


if __name__ == "__main__":
    main()
