#!/usr/bin/env python3
"""How often runs lie in the interval that `penstock train` predicts for them: small and fast
models, each as serial, dp, 1f1b and zb-h1 with two workers, every run with a profile of its own.

Prints a table and writes a JSON with every number. Standard library only.
"""

import argparse
import json
import pathlib
import statistics
import sys

from machine import REPOSITORY, describe_machine
from run_bench import Failed, run_json

# Words for `penstock train`, and samples of about ten seconds on one core of an EPYC.
MODELS = {
    "lenet5": (["--model", "lenet5"], 120_000),
    "mlp 256x3": (["--model", "mlp", "--width", "256", "--depth", "3"], 400_000),
    "resnet18 3x32x32": (["--model", "resnet18", "--input", "3x32x32"], 1_800),
    "vgg_small": (["--model", "vgg_small", "--lr", "0.001"], 9_000),
}
STRATEGIES = ["serial", "dp", "1f1b", "zb-h1"]
BATCH = 64
MOST_SAMPLES_IN_MEMORY = 12_800
QUICK_SAMPLES = 256
WIDEST = 0.25


def train(penstock, words, strategy, samples, seed):
    """One run; all samples are seen, in as many epochs as memory asks for."""
    in_memory = max(BATCH, min(samples, MOST_SAMPLES_IN_MEMORY) // BATCH * BATCH)
    epochs = max(1, round(samples / in_memory))
    command = [penstock, "train", *words, "--data", "synthetic", "--train-samples", in_memory,
               "--epochs", epochs, "--batch-size", BATCH, "--strategy", strategy, "--no-eval",
               "--seed", seed, "--json"]
    if strategy != "serial":
        command += ["--workers", 2]
    return run_json(command, timeout=600)


def row_of(model, strategy, result):
    measured = result["throughput_samples_per_s"]
    predicted = result["predicted_throughput_samples_per_s"]
    low = result["prediction_low_samples_per_s"]
    high = result["prediction_high_samples_per_s"]
    if low is None:
        raise Failed(f"{model} {strategy}: no interval")
    row = {"model": model, "strategy": strategy, "measured": measured, "predicted": predicted,
           "low": low, "high": high, "ratio": measured / predicted}
    row["width"] = (high - low) / predicted
    row["inside"] = low <= measured <= high
    row["workers"] = result["workers"]
    return row


def table(rows):
    lines = ["| model | strategy | measured, samples/s | predicted | interval | "
             "measured / predicted | inside |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['model']} | {row['strategy']} | {row['measured']:,.0f} | "
                     f"{row['predicted']:,.0f} | {row['low']:,.0f} to {row['high']:,.0f} | "
                     f"{row['ratio']:.2f} | {'yes' if row['inside'] else 'no'} |")
    inside = sum(row["inside"] for row in rows)
    ratios = [row["ratio"] for row in rows]
    lines.append("")
    lines.append(f"{inside} of {len(rows)} inside; widest interval "
                 f"{100 * max(row['width'] for row in rows):.0f} %; measured / predicted: median "
                 f"{statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--penstock", default=REPOSITORY / "build" / "release" / "penstock",
                        type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=1, help="of all models and strategies")
    parser.add_argument("--more", type=int, default=4, help="runs beyond that, of the next round")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--output", default="intervals.json", type=pathlib.Path)
    args = parser.parse_args()

    plan = [(model, strategy) for model in MODELS for strategy in STRATEGIES]
    runs = plan * args.rounds + plan[:: max(1, len(plan) // args.more + 1)][: args.more] \
        if args.more > 0 else plan * args.rounds
    machine = describe_machine()
    rows = []
    try:
        for seed, (model, strategy) in enumerate(runs, 1):
            words, samples = MODELS[model]
            result = train(args.penstock, words, strategy,
                           QUICK_SAMPLES if args.quick else samples, seed)
            if args.quick and result["prediction_low_samples_per_s"] is None:
                continue  # too few passes to know anything
            rows.append(row_of(model, strategy, result))
            print(f"{model} {strategy}: {rows[-1]['ratio']:.2f}", file=sys.stderr)
    except Failed as failure:
        print(f"intervals.py: {failure}", file=sys.stderr)
        return 1
    finally:
        args.output.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))
    if rows:
        print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
