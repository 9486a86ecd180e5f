#!/usr/bin/env python3
"""What carries messages between two ranks of this host: connections, the memory of the same host,
Gloo and MPI. All are started by mpirun.

    benchmarks/carrier_bench.py build/release [--rounds 7] [--steps 30]

Needs a build with benchmarks (cmake --preset release -DPENSTOCK_BUILD_BENCHMARKS=ON). Programs take
turns, the order moves on by one each round, ratios are taken within a round. Prints messages (the
time over connections, and the others' time to it, below 1: faster than connections) and training
(samples/s over connections, and the others' to it, above 1: faster): median (lowest..highest).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

SIZES = [64 << 10, 1 << 20, 8 << 20, 64 << 20]
MEASURES = ["there and back, halved", "stream, per message"]
PATHS = {"tcp": "tcp", "memory": "auto", "gloo": "gloo", "mpi": "mpi"}  # the name for --fabric
MPIRUN = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"]
MODEL = ["--model", "mlp", "--width", "1024"]


def run(command, folder):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder,
                          env=environment).stdout


def messages(build, path, folder):
    sizes = [str(size) for size in SIZES]
    lines = run([*MPIRUN, str(build / "benchmarks" / "carrier_bench"), path, *sizes], folder)
    return {int(size): (float(a), float(b)) for size, a, b in map(str.split, lines.splitlines())}


def training(build, strategy, path, steps, folder):
    out = run([*MPIRUN, str(build / "penstock"), "train", *MODEL, "--data", "synthetic",
               "--train-samples", str(128 * steps), "--strategy", strategy, "--workers", "2",
               "--batch-size", "128", "--micro-batches", "4", "--lr", "0.001", "--no-eval",
               "--warmup-steps", "5", "--profile", "p.json", "--fabric", PATHS[path], "--json"],
              folder)
    result = json.loads(out)
    return result["throughput_samples_per_s"], result["losses"]


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    names = list(PATHS)
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        run([str(arguments.build / "penstock"), "profile", *MODEL, "--batch-size", "32", "-o",
             "p.json"], folder)
        for i in range(arguments.rounds):
            one = {}
            for name in names[i % len(names):] + names[:i % len(names)]:
                one[name] = messages(arguments.build, name, folder)
                for strategy in ("dp", "1f1b"):
                    one[name, strategy] = training(arguments.build, strategy, name,
                                                   arguments.steps, folder)
            for strategy in ("dp", "1f1b"):
                losses = [one[name, strategy][1] for name in names]
                assert all(other == losses[0] for other in losses), f"{strategy}: other losses"
            rounds.append(one)
    for at, measure in enumerate(MEASURES):
        print(measure)
        for size in SIZES:
            row = [f"{size >> 10:6} KiB"]
            own = [one["tcp"][size][at] for one in rounds]
            row.append(f"tcp {statistics.median(own):.0f} us ({min(own):.0f}..{max(own):.0f})")
            row += [f"{name} " + spread([one[name][size][at] / one["tcp"][size][at]
                                         for one in rounds]) for name in names[1:]]
            print("  ".join(row))
    for strategy in ("dp", "1f1b"):
        own = [one["tcp", strategy][0] for one in rounds]
        row = [f"{strategy:4} tcp {statistics.median(own):.0f} samples/s "
               f"({min(own):.0f}..{max(own):.0f})"]
        row += [f"{name} " + spread([one[name, strategy][0] / one["tcp", strategy][0]
                                     for one in rounds]) for name in names[1:]]
        print("  ".join(row))


if __name__ == "__main__":
    main()
