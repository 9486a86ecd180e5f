#!/usr/bin/env python3
"""How well `penstock train` predicts: small and fast models, each as serial, dp, 1f1b and zb-h1
with two workers, every run with a profile of its own, and how often the run lies in the interval
that was predicted for it.

    intervals.py                                              # 16 runs and 4 more, in threads
    intervals.py --strategies all --fabrics threads tcp       # docs/accuracy.md
    intervals.py --strategies dp --fabrics tcp --syncs ordered ring hierarchical

A machine whose speed changes between the profile and the run is an error of its own. So the passes
of the workers are compared, too: `passes` is their time over the predicted one. `rest` is what
remains of measured / predicted once they are taken out: waiting, messages, steps, sums. Between
processes dp has neither: there a predicted pass includes the wait for the sums.

Prints tables of the runs, of bias and worst cases by strategy and by model, and writes a JSON with
every number; `--tables-of FILE` prints them again. Standard library only.
"""

import argparse
import json
import pathlib
import statistics
import sys
import typing

from machine import REPOSITORY, describe_machine
from run_bench import Failed, run_json

# Words for `penstock train`, and samples/s of one core of an EPYC, for the first run's length.
MODELS = {
    "lenet5": (["--model", "lenet5"], 4_000),
    "mlp 256x3": (["--model", "mlp", "--width", "256", "--depth", "3"], 20_000),
    "resnet18 3x32x32": (["--model", "resnet18", "--input", "3x32x32"], 80),
    "vgg_small": (["--model", "vgg_small", "--lr", "0.001"], 200),
}
STRATEGIES = ["serial", "dp", "1f1b", "zb-h1"]
ALL_STRATEGIES = ["serial", "dp", "mp", "gpipe", "1f1b", "2bw", "1f1b-flush", "eager-1f1b",
                  "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zb-auto", "zb-v", "v-half",
                  "v-min", "zb-auto-v", "dualpipe-v", "dualpipe", "chimera"]
RANKS = 2
BATCH = 64
MOST_SAMPLES_IN_MEMORY = 12_800
QUICK_SAMPLES = 256
WIDEST = 0.25


class Case(typing.NamedTuple):
    model: str
    strategy: str
    fabric: str  # "threads", or what carries messages between two processes
    sync: str


def cases_of(args):
    """Every model under every strategy and fabric; the way to add gradients matters to dp alone."""
    strategies = ALL_STRATEGIES if args.strategies == ["all"] else args.strategies
    for model in args.models:
        for fabric in args.fabrics:
            for strategy in strategies:
                if strategy == "serial" and fabric != "threads":
                    continue  # one worker
                for sync in args.syncs if strategy == "dp" and fabric != "threads" else ["auto"]:
                    yield Case(model, strategy, fabric, sync)


def train(penstock, words, case, samples, seed):
    """One run; all samples are seen, in as many epochs as memory asks for."""
    in_memory = max(BATCH, min(samples, MOST_SAMPLES_IN_MEMORY) // BATCH * BATCH)
    epochs = max(1, round(samples / in_memory))
    command = ["train", *words, "--data", "synthetic", "--train-samples", in_memory, "--epochs",
               epochs, "--batch-size", BATCH, "--strategy", case.strategy, "--no-eval", "--seed",
               seed, "--json"]
    if case.strategy != "serial":
        command += ["--workers", RANKS]
    if case.fabric == "threads":
        return run_json([penstock, *command], timeout=600)
    return run_json([penstock, "launch", "-n", RANKS, "--", *command, "--fabric", case.fabric,
                     "--sync", case.sync], timeout=600)


def row_of(case, result):
    measured = result["throughput_samples_per_s"]
    predicted = result["predicted_throughput_samples_per_s"]
    low = result["prediction_low_samples_per_s"]
    high = result["prediction_high_samples_per_s"]
    if low is None:
        raise Failed(f"{case}: no interval")
    row = {**case._asdict(), "measured": measured, "predicted": predicted, "low": low,
           "high": high, "ratio": measured / predicted}
    row["width"] = (high - low) / predicted
    row["inside"] = low <= measured <= high
    row["workers"] = result["workers"]
    return row


def without_passes(row):
    """Measured / predicted as if the passes had taken the predicted time; None where that is not
    known."""
    if row["strategy"] == "dp" and row["fabric"] != "threads":
        return None
    return row["ratio"] * passes_of(row["workers"])


def passes_of(workers):
    """Time of the workers' passes per micro-batch, measured over predicted."""
    def total(what):
        return sum(worker[what]["forward_ns"] + worker[what]["backward_ns"] for worker in workers)
    return total("measured") / total("predicted")


def table(rows):
    lines = ["| model | strategy | fabric | measured, samples/s | predicted | interval | "
             "measured / predicted | passes | rest | inside |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        rest = without_passes(row)
        rests = "- | -" if rest is None else f"{rest / row['ratio']:.2f} | {rest:.2f}"
        lines.append(f"| {row['model']} | {row['strategy']} | {fabric_of(row)} | "
                     f"{row['measured']:,.0f} | "
                     f"{row['predicted']:,.0f} | {row['low']:,.0f} to {row['high']:,.0f} | "
                     f"{row['ratio']:.2f} | {rests} | "
                     f"{'yes' if row['inside'] else 'no'} |")
    inside = sum(row["inside"] for row in rows)
    ratios = [row["ratio"] for row in rows]
    lines.append("")
    lines.append(f"{inside} of {len(rows)} inside; widest interval "
                 f"{100 * max(row['width'] for row in rows):.0f} %; measured / predicted: median "
                 f"{statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
    return "\n".join(lines)


def fabric_of(row):
    return row["fabric"] if row["sync"] == "auto" else f"{row['fabric']}, {row['sync']}"


def accuracy(rows, by):
    """Bias and worst case of each `by` (strategy or model) and fabric."""
    groups = {}
    for row in rows:
        fabric = fabric_of(row) if by == "strategy" else row["fabric"]
        groups.setdefault((row[by], fabric), []).append(row)
    lines = [f"| {by} | fabric | runs | bias | mean error | worst | inside | rest: mean error | "
             "rest: worst |", "|---|---|---|---|---|---|---|---|---|"]
    other = "model" if by == "strategy" else "strategy"
    for (name, fabric), of in [*groups.items(), (("**all**", ""), rows)]:
        errors = [row["ratio"] - 1 for row in of]
        rests = [rest - 1 for rest in map(without_passes, of) if rest is not None]
        worst = max(of, key=lambda row: abs(row["ratio"] - 1))
        lines.append(f"| {name} | {fabric} | {len(of)} | "
                     f"{100 * statistics.median(errors):+.1f} % | "
                     f"{100 * statistics.fmean(map(abs, errors)):.1f} % | "
                     f"{100 * (worst['ratio'] - 1):+.1f} % ({worst[other]}) | "
                     f"{sum(row['inside'] for row in of)} | "
                     + (f"{100 * statistics.fmean(map(abs, rests)):.1f} % | "
                        f"{100 * max(rests, key=abs):+.1f} % |" if rests else "- | - |"))
    return "\n".join(lines)


def print_tables(rows):
    print("\n\n".join([table(rows), accuracy(rows, "strategy"), accuracy(rows, "model")]))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=REPOSITORY / "build" / "release" / "penstock",
                        type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=1, help="of all models and strategies")
    parser.add_argument("--more", type=int, default=4, help="runs beyond that, of the next round")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--strategies", nargs="+", choices=["all", *ALL_STRATEGIES],
                        default=STRATEGIES)
    parser.add_argument("--fabrics", nargs="+", default=["threads"],
                        help="threads, tcp, gloo, mpi: all but the first by two processes")
    parser.add_argument("--syncs", nargs="+", default=["auto"], help="of dp between processes")
    parser.add_argument("--seconds", type=float, default=6, help="of training, about")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--output", default="intervals.json", type=pathlib.Path)
    parser.add_argument("--tables-of", type=pathlib.Path, metavar="FILE",
                        help="what --output wrote: print its tables, run nothing")
    args = parser.parse_args()
    if args.tables_of:
        print_tables(json.loads(args.tables_of.read_text())["rows"])
        return 0

    plan = list(cases_of(args))
    runs = plan * args.rounds + plan[:: max(1, len(plan) // args.more + 1)][: args.more] \
        if args.more > 0 else plan * args.rounds
    machine = describe_machine()
    rows = []
    speeds = {}
    failed = 0
    for seed, case in enumerate(runs, 1):
        words, first_speed = MODELS[case.model]
        samples = QUICK_SAMPLES if args.quick else \
            round(args.seconds * speeds.get(case.model, first_speed))
        title = f"{case.model} {case.strategy} {case.fabric} {case.sync}"
        try:
            result = train(args.penstock, words, case, samples, seed)
            speeds[case.model] = result["throughput_samples_per_s"]
            if args.quick and result["prediction_low_samples_per_s"] is None:
                continue  # too few passes to know anything
            rows.append(row_of(case, result))
            print(f"{len(rows)} of {len(runs)}: {title}: {rows[-1]['ratio']:.2f}", file=sys.stderr)
        except Failed as failure:
            failed += 1
            print(f"intervals.py: {title}: {failure}", file=sys.stderr)
        args.output.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))
    if rows:
        print_tables(rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
