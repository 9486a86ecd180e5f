#!/usr/bin/env python3
"""Messages between two processes of this host: the mesh through the memory of the host, over TCP,
over TCP with TLS, and Open MPI if mpirun and mpicc are there.

    benchmarks/mesh_bench.py build/release/benchmarks/mesh_bench [--rounds 7] [--to memory]

Programs take turns, the order moves on by one each round, ratios are taken within a round. Prints
for each size the median time of the mesh over --to in microseconds, and the ratios of the others'
time to it (above 1: it is faster): median (lowest..highest).
"""
import argparse
import pathlib
import shutil
import statistics
import subprocess
import tempfile

SIZES = [64, 4 << 10, 60_000, 1 << 20, 4 << 20, 8 << 20, 64 << 20]
MEASURES = ["there and back, halved", "stream, per message"]


def label(size):
    for unit, name in (1 << 20, "MiB"), (1 << 10, "KiB"):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size:,} B"


def run(command):
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {int(size): (float(a), float(b)) for size, a, b in map(str.split, lines.splitlines())}


def programs(bench, folder):
    sizes = [str(size) for size in SIZES]
    found = {path: [bench, path, *sizes] for path in ("memory", "tcp", "tls")}
    if shutil.which("mpirun") and shutil.which("mpicc"):
        source = pathlib.Path(__file__).parent / "peers" / "mpi_messages.c"
        program = str(pathlib.Path(folder) / "mpi_messages")
        subprocess.run(["mpicc", "-std=c99", "-O2", str(source), "-o", program], check=True)
        found["Open MPI"] = ["mpirun", "-n", "2", "--oversubscribe", "--allow-run-as-root",
                             "--mca", "btl", "vader,self", program, *sizes]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--to", default="memory", choices=("memory", "tcp", "tls"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = programs(arguments.bench, folder)
        names = list(commands)
        rounds = []
        for i in range(arguments.rounds):
            order = names[i % len(names):] + names[:i % len(names)]
            rounds.append({name: run(commands[name]) for name in order})
    for at, measure in enumerate(MEASURES):
        print(measure)
        for size in SIZES:
            row = [f"{label(size):>8}"]
            own = [one[arguments.to][size][at] for one in rounds]
            row.append(f"{statistics.median(own):9.1f} us")
            for name in names:
                if name == arguments.to:
                    continue
                ratios = [one[name][size][at] / one[arguments.to][size][at] for one in rounds]
                row.append(f"{name} {statistics.median(ratios):.2f} "
                           f"({min(ratios):.2f}..{max(ratios):.2f})")
            print("  ".join(row))


if __name__ == "__main__":
    main()
