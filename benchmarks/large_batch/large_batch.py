#!/usr/bin/env python3
"""What `penstock train --large-batch` is worth: a small ResNet on fashion-mnist with 1, 8 and 32
times the samples of a step, with all rules, without each of them and without any, three seeds.

    large_batch.py PROGRAM                   # the table of docs/training.md, and a JSON beside it
    large_batch.py PROGRAM --factors 1 8 --seeds 1 --epochs 2 --train-samples 2000

All runs train the same number of epochs. Accuracies are those of the test set after the last one,
in percent. A run whose loss becomes infinite has chance's accuracy. Runs that the JSON has of the
same options are not made again.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from machine import describe_machine  # noqa: E402

BASE = 32
RULES = ["scale", "warmup", "statistics", "momentum", "decay", "gamma"]
CHANCE = 10.0


def settings():
    """Words for `penstock train`, by what the table calls them."""
    every = ["all"] + [f"all,-{rule}" for rule in RULES]
    found = {"all" if words == "all" else f"without {words[5:]}": ["--large-batch", words]
             for words in every}  # fmt: skip
    return {**found, "none": []}


def command(options, factor, seed, words):
    batch = BASE * factor
    large = [*words, "--base-batch-size", str(BASE)] if words else []
    return [
        options.program, "train", "--model", "resnet18", "--width", str(options.width),
        "--depth", "1", "--input", "1x28x28", "--classes", "10", "--data", "fashion-mnist",
        "--train-samples", str(options.train_samples), "--strategy", "serial", "--workers", "1",
        "--batch-size", str(batch), "--epochs", str(options.epochs), "--lr", str(options.lr),
        "--momentum", "0.9", "--weight-decay", str(options.weight_decay), "--drop-last",
        "--lr-schedule", "cosine", "--seed", str(seed), "--json", *large,
    ]  # fmt: skip


def accuracy(words):
    """In percent."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode == 0:
        return 100 * json.loads(done.stdout)["test_accuracy"]
    if "no longer finite" in done.stderr:
        return CHANCE
    raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")


def spread(values):
    """The mean, and how far seeds lie apart."""
    return f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def table(results, factors):
    """Rows by setting, columns by factor; 1x has nothing to set."""
    lines = ["| rules | " + " | ".join(f"{factor}x" for factor in factors) + " |",
             "|---" * (len(factors) + 1) + "|"]  # fmt: skip
    for name in settings():
        found = [list(results.get(f"{factor} {name}", {}).values()) for factor in factors]
        cells = [spread(values) if values else "" for values in found]
        if any(cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def learned_by(options):
    """What the results depend on."""
    names = ("epochs", "train_samples", "width", "lr", "weight_decay")
    return {name: getattr(options, name) for name in names}


def measured_before(options):
    """Accuracies by seed, by factor and setting."""
    path = pathlib.Path(options.output)
    if not path.exists():
        return {}
    document = json.loads(path.read_text())
    return document["accuracy"] if document["options"] == learned_by(options) else {}


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("program")
    parser.add_argument("--factors", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--train-samples", type=int, default=10240)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--settings", nargs="+", help="rows of the table; all without it")
    parser.add_argument("-o", "--output", default="large_batch.json")
    options = parser.parse_args()
    results = measured_before(options)
    for seed in range(1, options.seeds + 1):
        for factor in options.factors:
            for name, words in settings().items():
                if factor == 1 and name != "none":
                    continue
                if factor > 1 and options.settings and name not in options.settings:
                    continue
                known = results.setdefault(f"{factor} {name}", {})
                if str(seed) in known:
                    continue
                found = known[str(seed)] = accuracy(command(options, factor, seed, words))
                print(f"seed {seed}, {factor}x, {name}: {found:.2f} %", file=sys.stderr, flush=True)
                document = {"machine": describe_machine(), "options": learned_by(options),
                            "accuracy": results}  # fmt: skip
                pathlib.Path(options.output).write_text(json.dumps(document, indent=2) + "\n")
    print(table(results, options.factors))


if __name__ == "__main__":
    main()
