#!/usr/bin/env python3
"""Has this change made training slower? Two binaries of Penstock take turns over nine short runs.

    ./scripts/bench.sh --guard                          against the last commit, which it builds
    benchmarks/guard.py --penstock NEW --against OLD    any two binaries

A row is four pairs of runs, eight where the first four look slow; which binary begins changes from
pair to pair. A ratio is of one pair: samples/s, and peak memory of the process. A row fails where
the median speed is below 0.95 and the spread lies below 1: the four ratios, or of eight all but the
lowest and the highest. Memory fails likewise, above 1/0.95. Both binaries plan from one profile.
Exit code: 0 as good as before, 1 worse, 2 bad options, 3 a program failed. Standard library only.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from machine import REPOSITORY, describe_machine

LEAST = 0.95
FIRST_PAIRS, ALL_PAIRS = 4, 8

MLP = ["--model", "mlp", "--width", 1024, "--depth", 4]
VGG = ["--model", "vgg_small"]
RESNET = ["--model", "resnet18", "--input", "3x32x32", "--classes", 10]
GPT = ["--model", "gpt", "--width", 128, "--depth", 4, "--heads", 4, "--input", 32,
       "--classes", 256]
LSTM = ["--model", "awd_lm", "--width", 256, "--embedding", 128, "--classes", 512, "--input", 32]

# name -> (model, samples of a step, micro-batches, steps, options of the run, ranks). The steps
# take about a second on two slow cores.
COMPARISONS = {
    "mlp, one worker": (MLP, 64, 1, 40, ["--strategy", "serial"], 1),
    "mlp, 1f1b": (MLP, 64, 1, 60, ["--strategy", "1f1b", "--workers", 2], 1),
    "mlp, dp, 2 processes": (MLP, 128, 2, 25, ["--strategy", "dp", "--workers", 2], 2),
    "vgg_small, one worker": (VGG, 16, 1, 20, ["--strategy", "serial"], 1),
    "vgg_small, dp": (VGG, 32, 2, 15, ["--strategy", "dp", "--workers", 2], 1),
    "resnet18, 1f1b-flush": (RESNET, 32, 4, 5, ["--strategy", "1f1b-flush", "--workers", 2], 1),
    "gpt, one worker": (GPT, 8, 1, 40, ["--strategy", "serial"], 1),
    "gpt, zb-h1": (GPT, 32, 8, 10, ["--strategy", "zb-h1", "--workers", 2], 1),
    "awd_lm, one worker": (LSTM, 8, 1, 16, ["--strategy", "serial"], 1),
}
WARMUP = 2


class Failed(Exception):
    """A program failed: what it was and what it said."""


def run(command, folder, timeout):
    """Runs a command in a process group of its own. Returns its standard output and the peak
    memory, in bytes, of the largest of its processes."""
    words = [str(word) for word in command]
    with tempfile.TemporaryFile(dir=folder) as out, tempfile.TemporaryFile(dir=folder) as messages:
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=messages,
                                       cwd=folder, start_new_session=True)
        except OSError as error:
            raise Failed(f"{error}: {' '.join(words)}")
        deadline = time.monotonic() + timeout
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        while ended == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended == 0:
            os.killpg(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        messages.seek(0)
        if process.returncode != 0:
            end = f"no end after {timeout} s" if ended == 0 else f"exit code {process.returncode}"
            said = messages.read().decode(errors="replace")[-1500:]
            raise Failed(f"{end}: {' '.join(words)}\n{said}")
        return out.read().decode(errors="replace"), usage.ru_maxrss * 1024


class Comparison:
    """One row: a way to train that both binaries go."""

    def __init__(self, name, args, folder):
        self.name, self.args, self.folder = name, args, folder
        self.model, self.batch, self.micro_batches, self.steps, self.options, self.ranks = (
            COMPARISONS[name])
        self.steps = max(self.steps // 8, 2) if args.quick else self.steps
        self.profile = folder / (name.replace(", ", "-").replace(" ", "-") + ".profile.json")

    def measure_profile(self):
        """By the binary that came first, so that both can read it."""
        run([self.args.against, "profile", *self.model, "--threads", 1, "--samples", 3,
             "--batch-size", self.batch // self.micro_batches, "-o", self.profile],
            self.folder, self.args.timeout)

    def once(self, program):
        """Samples per second and peak memory in bytes of one run."""
        steps = self.steps + WARMUP
        command = ["train", *self.model, *self.options, "--profile", self.profile,
                   "--data", "synthetic", "--train-samples", self.batch * steps,
                   "--batch-size", self.batch, "--micro-batches", self.micro_batches,
                   "--warmup-steps", WARMUP, "--threads", 1, "--optimizer", "sgd",
                   "--momentum", 0.9, "--lr", 0.001, "--seed", 1, "--no-eval", "--json"]
        launch = ["launch", "-n", self.ranks, "--"] if self.ranks > 1 else []
        text, memory = run([program, *launch, *command], self.folder, self.args.timeout)
        try:
            return json.loads(text)["throughput_samples_per_s"], memory
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"{self.name}: expected one JSON object with throughput_samples_per_s on "
                         f"standard output of {program}, found {text[:200]!r} ({error})")

    def pair(self, number):
        """Both, one after the other: ratios of speed and of memory, new over old."""
        programs = [self.args.penstock, self.args.against]
        order = programs if number % 2 == 0 else programs[::-1]
        runs = [self.once(program) for program in order]
        new, old = runs if number % 2 == 0 else runs[::-1]
        return {"speed": new[0] / old[0], "memory": new[1] / old[1],
                "samples_per_s": [new[0], old[0]], "peak_bytes": [new[1], old[1]]}

    def row(self, log):
        self.measure_profile()
        pairs = []
        while len(pairs) < FIRST_PAIRS or (len(pairs) < ALL_PAIRS and looks_worse(pairs)):
            log(f"{self.name}: pair {len(pairs) + 1}")
            pairs.append(self.pair(len(pairs)))
        return judge(self.name, pairs)


def spread(ratios):
    """Lowest and highest; of eight or more without one on either side."""
    ordered = sorted(ratios)
    return (ordered[1], ordered[-2]) if len(ordered) >= ALL_PAIRS else (ordered[0], ordered[-1])


def looks_worse(pairs):
    speed = statistics.median(pair["speed"] for pair in pairs)
    memory = statistics.median(pair["memory"] for pair in pairs)
    return speed < LEAST or memory > 1 / LEAST


def judge(name, pairs):
    """The row of a table: medians, spreads, and whether they pass."""
    row = {"what": name, "pairs": pairs}
    for measure in ("speed", "memory"):
        ratios = [pair[measure] for pair in pairs]
        low, high = spread(ratios)
        row[measure] = {"median": statistics.median(ratios), "low": low, "high": high}
    speed, memory = row["speed"], row["memory"]
    row["slower"] = speed["median"] < LEAST and speed["high"] < 1
    row["larger"] = memory["median"] > 1 / LEAST and memory["low"] > 1
    return row


def verdict(row):
    if "failed" in row:
        return "FAILED"
    words = [word for word in ("slower", "larger") if row[word]]
    if words:
        return " and ".join(words).upper()
    return "noise" if looks_worse(row["pairs"]) else "yes"


def table(rows):
    lines = [f"{'new / old':24} {'speed':>6} {'spread':>12} {'memory':>7} {'pairs':>6}  as good"]
    for row in rows:
        if "failed" in row:
            lines.append(f"{row['what']:24} {'-':>6} {'-':>12} {'-':>7} {'-':>6}  FAILED")
            continue
        speed = row["speed"]
        between = f"{speed['low']:.2f}..{speed['high']:.2f}"
        lines.append(f"{row['what']:24} {speed['median']:6.3f} {between:>12} "
                     f"{row['memory']['median']:7.3f} {len(row['pairs']):6}  {verdict(row)}")
    return "\n".join(lines)


def exit_code(rows):
    if any("failed" in row for row in rows):
        return 3
    return 1 if any(row["slower"] or row["larger"] for row in rows) else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", type=pathlib.Path, help="the binary to judge",
                        default=REPOSITORY / "build/release-wheel/penstock")
    parser.add_argument("--against", type=pathlib.Path, required=True, metavar="PENSTOCK",
                        help="the binary that it is compared with")
    parser.add_argument("--only", nargs="+", choices=list(COMPARISONS), metavar="ROW",
                        help="these rows: " + "; ".join(COMPARISONS))
    parser.add_argument("--quick", action="store_true", help="an eighth of the steps")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a run may take")
    args = parser.parse_args()
    for name in ("penstock", "against"):
        path = getattr(args, name).resolve()
        if not (path.is_file() and os.access(path, os.X_OK)):
            parser.error(f"--{name}: expected a program, found none at {path}")
        setattr(args, name, path)
    return args


def main():
    args = parse_arguments()
    begin = time.monotonic()
    rows = []

    def log(text):
        print(f"{text}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="penstock-guard-") as folder:
        for name in args.only or COMPARISONS:
            try:
                rows.append(Comparison(name, args, pathlib.Path(folder)).row(log))
            except Failed as failure:
                log(f"failed: {failure}")
                rows.append({"what": name, "failed": str(failure)})
    if args.json:
        print(json.dumps({"machine": machine, "new": str(args.penstock),
                          "old": str(args.against), "least": LEAST, "rows": rows}, indent=1))
    else:
        print(table(rows))
    return exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
