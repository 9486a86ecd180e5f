#!/usr/bin/env python3
"""What delayed weights cost in learning, and what compensations give back: a small GPT on a text,
cut into eight stages in one process, against the same training without delays.

    run_delays.py --data book -o results          # a folder of `penstock data text`
    run_delays.py --data book -o results --steps 20 --seeds 1 --variants flush stash

Every run sees the same samples in the same order: mini-batches of the same size, as many steps,
the same schedule of the rate. Writes delays.json with every loss and delays.svg, and prints a table
with the mean and the spread over the seeds. Runs that delays.json has already are not made again.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "evaluation")]

from machine import REPOSITORY, describe_machine  # noqa: E402
from plots import lines  # noqa: E402

STAGES = 8
ADAMW = ["--optimizer", "adamw", "--weight-decay", "0.01"]
# Muon's steps as large as AdamW's, so that one rate serves both.
MUON = ["--optimizer", "muon,match_rms", "--weight-decay", "0.01"]
STASH = ["--strategy", "1f1b", "--weights", "stash"]
# Words of `penstock train` beside those of all runs, and micro-batches per step.
VARIANTS = {
    "flush, AdamW": (ADAMW + ["--strategy", "serial"], 1),
    "stash, AdamW": (ADAMW + STASH, 1),
    "stash, predict": (ADAMW + STASH + ["--compensate", "predict"], 1),
    "stash, rate": (ADAMW + STASH + ["--compensate", "rate"], 1),
    "stash, nesterov": (ADAMW + STASH + ["--compensate", "nesterov"], 1),
    "latest, correct": (
        ADAMW + ["--strategy", "1f1b", "--weights", "latest", "--compensate", "correct"], 1),
    "2bw, AdamW": (ADAMW + ["--strategy", "2bw"], STAGES),
    "flush, Muon": (MUON + ["--strategy", "serial"], 1),
    "2bw, Muon": (MUON + ["--strategy", "2bw"], STAGES),
}
REFERENCE = "flush, AdamW"
POINTS = 40  # of a curve


def words_of(name, seed, options):
    own, micro_batches = VARIANTS[name]
    workers = 1 if "serial" in own else STAGES
    words = [
        "train", "--model", "gpt", "--untied", "--width", options.width, "--depth", options.depth,
        "--heads", options.heads, "--input", options.length, "--classes", options.classes,
        "--data", options.data, "--batch-size", options.batch, "--micro-batches", micro_batches,
        "--workers", workers, "--profile", options.profile, "--steps", options.steps,
        "--schedule-steps", options.steps, "--lr", options.lr, "--lr-schedule", "cosine",
        "--lr-warmup", options.steps // 10, "--clip-norm", 1, "--seed", seed, "--json", *own
    ]
    return [str(word) for word in words + ([] if workers == 1 else ["--straight"])]


def penstock(options, words):
    run = subprocess.run([options.penstock, *words], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"penstock {' '.join(words)} failed:\n{run.stderr[-2000:]}")
    return run.stdout


def measure_profile(options):
    words = [
        "profile", "--model", "gpt", "--untied", "--width", options.width, "--depth",
        options.depth, "--heads", options.heads, "--input", options.length, "--classes",
        options.classes, "--batch-size", options.batch, "-o", options.profile
    ]
    penstock(options, [str(word) for word in words])


def last_tenth(losses):
    return statistics.fmean(losses[-max(1, len(losses) // 10):])


def run_one(name, seed, options):
    result = json.loads(penstock(options, words_of(name, seed, options)))
    run = {
        "variant": name, "seed": seed, "losses": result["losses"], "config": result["config"],
        "weights": result["weights"], "compensate": result["compensate"],
        "train_loss": last_tenth(result["losses"]), "test_loss": result["test_loss"],
        "throughput_samples_per_s": result["throughput_samples_per_s"]
    }
    print(f"{name}, seed {seed}: train {run['train_loss']:.4f}, test {run['test_loss']:.4f}",
          file=sys.stderr)
    return run


def of_variant(runs, name, key):
    return [run[key] for run in runs if run["variant"] == name]


def spread(values):
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{statistics.fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def table(runs):
    names = [name for name in VARIANTS if of_variant(runs, name, "seed")]
    lines_of_table = ["| run | seeds | train loss | test loss | against flush |",
                      "|---|---|---|---|---|"]
    reference = of_variant(runs, REFERENCE, "test_loss")
    for name in names:
        test = of_variant(runs, name, "test_loss")
        against = "" if not reference else (
            f"{100 * (statistics.fmean(test) / statistics.fmean(reference) - 1):+.1f} %")
        lines_of_table.append(f"| {name} | {len(test)} | "
                              f"{spread(of_variant(runs, name, 'train_loss'))} | {spread(test)} | "
                              f"{against} |")
    return "\n".join(lines_of_table)


def curve(runs, name, batch):
    """The mean loss over the seeds, in POINTS parts of the run."""
    losses = of_variant(runs, name, "losses")
    steps = len(losses[0])
    points = []
    for part in range(min(POINTS, steps)):
        begin, end = part * steps // min(POINTS, steps), (part + 1) * steps // min(POINTS, steps)
        mean = statistics.fmean(loss for one in losses for loss in one[begin:end])
        points.append((end * batch, mean))
    return points


def sizes_of(options):
    return {key: getattr(options, key) for key in
            ("width", "depth", "heads", "length", "classes", "batch", "steps", "lr")}


def earlier_runs(options):
    """Those of delays.json, if its sizes are the same."""
    path = pathlib.Path(options.output) / "delays.json"
    if not path.exists():
        return []
    document = json.loads(path.read_text())
    return document["runs"] if document["sizes"] == sizes_of(options) else []


def write(runs, options):
    folder = pathlib.Path(options.output)
    document = {"machine": describe_machine(), "stages": STAGES, "sizes": sizes_of(options),
                "runs": runs}
    (folder / "delays.json").write_text(json.dumps(document, indent=1) + "\n")
    series = {name: curve(runs, name, options.batch)[2:] for name in VARIANTS
              if of_variant(runs, name, "seed")}
    (folder / "delays.svg").write_text(
        lines(f"GPT in {STAGES} stages: training loss", "nats per token", "samples", series))


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of `penstock data text`")
    parser.add_argument("-o", "--output", required=True, help="folder of the results")
    parser.add_argument("--penstock", default=str(REPOSITORY / "build/release/penstock"))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), metavar="NAME",
                        help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--seeds", type=int, default=3)
    for name, usual in (("width", 384), ("depth", 6), ("heads", 6), ("length", 128),
                        ("classes", 8000), ("batch", 16), ("steps", 3000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    for name in options.variants:
        if name not in VARIANTS:
            parser.error(f"unknown variant '{name}', expected some of: {'; '.join(VARIANTS)}")
    return options


def main():
    options = parsed()
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    options.profile = str(folder / "gpt.profile.json")
    runs = earlier_runs(options)
    if not runs:
        measure_profile(options)
    known = {(run["variant"], run["seed"]) for run in runs}
    for seed in range(1, options.seeds + 1):
        for name in options.variants:
            if (name, seed) not in known:
                runs.append(run_one(name, seed, options))
                write(runs, options)
    print(table(runs))


if __name__ == "__main__":
    main()
