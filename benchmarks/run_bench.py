#!/usr/bin/env python3
"""Measures Penstock against its own predictions, one worker, and PyTorch; prints one table and
writes a JSON beside it.

Every round runs all programs once, one after the other, each round starting with another one;
ratios are taken within a round, so that a machine that slows down slows down both sides. Standard
library only.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from machine import REPOSITORY, describe_machine

HERE = pathlib.Path(__file__).resolve().parent

# What is measured. A pipeline fills and drains once per measurement, so it needs more steps than
# its peers. `quick` sizes only show that everything runs.
MODELS = {
    "mlp": {
        "full": {
            "batch": 128, "width": 4096, "depth": 5, "steps": 40, "peer_steps": 10, "warmup": 4
        },
        "quick": {"batch": 16, "width": 64, "depth": 3, "steps": 6, "peer_steps": 2, "warmup": 2},
    },
    "vgg_small": {
        "full": {"batch": 64, "steps": 100, "peer_steps": 30, "warmup": 6},
        "quick": {"batch": 4, "steps": 3, "peer_steps": 2, "warmup": 1},
    },
}

# Measured against predicted throughput: strategies that `train` profiles, plans and runs by itself.
PREDICTED_STRATEGIES = {"dp": 2, "mp": 1, "gpipe": 8, "1f1b": 1}  # micro-batches per step
QUICK_STRATEGIES = {"mlp": ["dp", "1f1b"], "vgg_small": ["gpipe"], "resnet18": ["mp"]}
PREDICTED_MODELS = {
    **MODELS,
    "resnet18": {
        "full": {"batch": 16, "steps": 12, "warmup": 2},
        "quick": {"batch": 16, "steps": 2, "warmup": 1, "input": "3x32x32"},
    },
}
PREDICTION_ERROR = 0.10
# Passes of a profile, about as long as the run that it is to predict: the machine's speed wavers
# over seconds, too.
PROFILE_SAMPLES = {
    "mlp": lambda micro_batch: 30,
    "vgg_small": lambda micro_batch: 40 * 64 // max(micro_batch, 8),
    "resnet18": lambda micro_batch: 10,
}

# Measured against simulated idle share of the schedules that flush, 2 workers, 8 micro-batches per
# step; and the gain of splitting the backward pass, measured against predicted.
FLUSHED_SCHEDULES = [
    "gpipe", "1f1b-flush", "eager-1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2",
    "zb-auto", "zb-v", "v-half", "v-min", "zb-auto-v", "dualpipe-v", "dualpipe", "chimera"
]
QUICK_SCHEDULES = ["zb-h1"]
SCHEDULE_MICRO_BATCHES = 8
SCHEDULE_BATCHES = 4  # a step takes this many of the model's batches
IDLE_ERROR = 0.05
GAIN_ERROR = 0.03
SPLIT_PAIRS = 6  # runs of zb-h1, each with one of 1f1b-flush, in a round

# (row, model, numerator, denominator, factor on the denominator, least ratio or None)
ROWS = [
    ("pipeline / prediction", "vgg_small", "pipeline", "prediction", 1, 0.93),
    ("pipeline / prediction", "mlp", "pipeline", "prediction", 1, 0.93),
    ("pipeline / (2 x one worker)", "mlp", "pipeline", "serial", 2, 0.90),
    ("pipeline / (2 x one worker)", "vgg_small", "pipeline", "serial", 2, 0.85),
    ("one worker / with another penstock", "mlp", "serial", "serial_of_another", 1, None),
    ("one worker / with another penstock", "vgg_small", "serial", "serial_of_another", 1, None),
    ("pipeline / with another penstock", "mlp", "pipeline", "pipeline_of_another", 1, None),
    ("pipeline / with another penstock", "vgg_small", "pipeline", "pipeline_of_another", 1, None),
    ("one worker / PyTorch, 1 thread", "mlp", "serial", "eager_1", 1, 1.0),
    ("one worker / PyTorch, 1 thread", "vgg_small", "serial", "eager_1", 1, 1.0),
    ("one worker / torch.compile, 1 thread", "mlp", "serial", "compiled_1", 1, None),
    ("one worker / torch.compile, 1 thread", "vgg_small", "serial", "compiled_1", 1, None),
    ("pipeline / PyTorch, 2 threads", "mlp", "pipeline", "eager_2", 1, 1.15),
    ("pipeline / PyTorch, 2 threads", "vgg_small", "pipeline", "eager_2", 1, 1.0),
    ("pipeline / torch.compile, 2 threads", "mlp", "pipeline", "compiled_2", 1, None),
    ("pipeline / torch.compile, 2 threads", "vgg_small", "pipeline", "compiled_2", 1, None),
    ("pipeline / PyTorch's pipelining, best", "mlp", "pipeline", "pipelining", 1, 1.3),
    ("pipeline / PyTorch's pipelining, best", "vgg_small", "pipeline", "pipelining", 1, 1.3),
    ("pipeline / PyTorch DDP, 2 processes", "mlp", "pipeline", "ddp", 1, 2.0),
    ("pipeline / PyTorch DDP, 2 processes", "vgg_small", "pipeline", "ddp", 1, None),
]


class Failed(Exception):
    pass


def run_json(command, timeout):
    """Runs a program that prints one JSON object as the last line of stdout, or as all of it."""
    show = " ".join(str(word) for word in command)
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              timeout=timeout, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {timeout} s: {show}")
    except OSError as error:
        raise Failed(f"{error}: {show}")
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode}: {show}\n{done.stderr[-2000:]}")
    for text in (done.stdout, done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""):
        try:
            return json.loads(text)
        except ValueError:
            continue
    raise Failed(f"no JSON on stdout: {show}\n{done.stdout[-500:]}")


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.size = "quick" if args.quick else "full"
        self.timeout = 120 if args.quick else 900

    def options(self, model):
        return PREDICTED_MODELS[model][self.size]

    def model_options(self, model):
        sizes = self.options(model)
        options = ["--model", model]
        for key in ("width", "depth", "input"):
            if key in sizes:
                options += [f"--{key}", sizes[key]]
        return options

    def penstock(self, *arguments, program=None):
        return run_json([program or self.args.penstock, *arguments, "--json"], self.timeout)

    def make_plan(self, model):
        """Profile and plan afresh each round: the prediction is made under the conditions of the
        run that it is compared with."""
        sizes = self.options(model)
        profile, plan = self.folder / f"{model}.profile.json", self.folder / f"{model}.plan.json"
        samples = 3 if self.args.quick else 10
        self.penstock("profile", *self.model_options(model), "--batch-size", sizes["batch"],
                      "--samples", samples, "--threads", 1, "--concurrency", 2, "-o", profile)
        self.penstock("plan", "--profile", profile, "--workers", 2, "--strategy", "1f1b",
                      "--straight", "-o", plan)
        return plan

    def train(self, model, *options, micro_batches=1, program=None):
        sizes = self.options(model)
        batch = sizes["batch"] * micro_batches
        # One pass over the data: the pipeline drains between passes
        steps = sizes["steps"] + sizes["warmup"]
        return self.penstock("train", *self.model_options(model), "--data", "synthetic",
                             "--train-samples", batch * steps, "--epochs", 1, "--batch-size", batch,
                             "--warmup-steps", sizes["warmup"], "--optimizer", "sgd",
                             "--momentum", 0.9, "--lr", 0.001, "--seed", 1, "--no-eval", *options,
                             program=program)

    def peer(self, script, model, *options):
        sizes = self.options(model)
        command = [
            self.args.torch_python, HERE / "peers" / script, *self.model_options(model),
            "--batch-size", sizes["batch"], "--steps", sizes["peer_steps"],
            "--warmup", sizes["warmup"], *options
        ]
        return run_json(command, self.timeout)

    def programs(self, model):
        """name -> function that measures samples per second (and, for the pipeline, its
        prediction)."""

        def pipeline():
            plan = self.make_plan(model)
            report = self.train(model, "--plan", plan, "--threads", 1)
            return {
                "pipeline": report["throughput_samples_per_s"],
                "prediction": report["predicted_throughput_samples_per_s"]
            }

        def serial(name, program):
            report = self.train(model, "--strategy", "serial", "--workers", 1, "--threads", 1,
                                program=program)
            return {name: report["throughput_samples_per_s"]}

        def pipeline_of_another():
            plan = self.folder / f"{model}.plan.json"
            if not plan.exists():
                plan = self.make_plan(model)
            report = self.train(model, "--plan", plan, "--threads", 1,
                                program=self.args.another_penstock)
            return {"pipeline_of_another": report["throughput_samples_per_s"]}

        programs = {"pipeline": pipeline, "serial": lambda: serial("serial", self.args.penstock)}
        if self.args.another_penstock:
            programs["pipeline_of_another"] = pipeline_of_another
            programs["serial_of_another"] = lambda: serial("serial_of_another",
                                                           self.args.another_penstock)
        if self.args.peers:
            steps = {"pipelining": ("pipelining.py", ["--threads", 1]),
                     "ddp": ("ddp.py", ["--threads", 1])}
            for threads in (1, 2):
                steps[f"eager_{threads}"] = ("plain.py", ["--threads", threads])
                steps[f"compiled_{threads}"] = ("plain.py", ["--threads", threads, "--compile"])
            for name, (script, options) in steps.items():
                programs[name] = lambda name=name, script=script, options=options: {
                    name: self.peer(script, model, *options)["samples_per_s"]
                }
        return programs

    def predicted(self, model):
        """name -> function that profiles and trains with one strategy and returns (measured,
        predicted) samples per second."""

        def strategy(name):
            # The micro-batches that the strategy runs with.
            micro_batch = max(self.options(model)["batch"] // PREDICTED_STRATEGIES[name], 1)
            profile = self.folder / f"{model}.{name}.profile.json"
            samples = 3 if self.args.quick else PROFILE_SAMPLES[model](micro_batch)
            self.penstock("profile", *self.model_options(model), "--batch-size", micro_batch,
                          "--threads", 1, "--concurrency", 2,
                          "--samples", samples, "-o", profile)
            report = self.train(model, "--strategy", name, "--workers", 2, "--threads", 1,
                                "--profile", profile)
            return report["throughput_samples_per_s"], report["predicted_throughput_samples_per_s"]

        names = QUICK_STRATEGIES[model] if self.args.quick else PREDICTED_STRATEGIES
        return {name: lambda name=name: strategy(name) for name in names}

    def profile_of_steps(self, model):
        """One profile for all schedules of a round, so that their predictions differ by nothing but
        the schedule."""
        profile = self.folder / f"{model}.schedules.profile.json"
        micro_batch = self.options(model)["batch"] * SCHEDULE_BATCHES // SCHEDULE_MICRO_BATCHES
        self.penstock("profile", *self.model_options(model), "--batch-size", micro_batch,
                      "--threads", 1, "--concurrency", 2,
                      *(["--samples", 3] if self.args.quick else []), "-o", profile)
        return profile

    def scheduled(self, model, kind, profile):
        """Measured and predicted idle share and throughput of one schedule."""
        sizes = self.options(model)
        steps = max(sizes["steps"] // SCHEDULE_BATCHES, 2)
        batch = sizes["batch"] * SCHEDULE_BATCHES
        report = self.penstock("train", *self.model_options(model), "--data", "synthetic",
                               "--train-samples", batch * (steps + 1), "--epochs", 1,
                               "--batch-size", batch, "--micro-batches", SCHEDULE_MICRO_BATCHES,
                               "--warmup-steps", 1, "--optimizer", "sgd", "--momentum", 0.9,
                               "--lr", 0.001, "--seed", 1, "--no-eval", "--strategy", kind,
                               "--workers", 2, "--threads", 1, "--profile", profile)
        return {
            key: report[key]
            for key in ("idle_share", "predicted_idle_share", "throughput_samples_per_s",
                        "predicted_throughput_samples_per_s")
        }

    def memory(self):
        """Extra peak memory of stash over flush against what the method needs: one version of stage
        0's weights and one stashed micro-batch.

        Two baselines with the same split and micro-batches of the same size: a flush after every
        micro-batch, whose two workers never compute (and so never hold gradients) at the same time,
        and a flush after every four, whose workers do."""
        stash_plan = self.make_plan("mlp")
        plan = json.loads(stash_plan.read_text())
        allowed = plan["stages"][0]["weight_bytes"] + plan["stages"][0]["stash_bytes"]

        def peak(plan_file, micro_batches):
            runs = [
                self.train("mlp", "--plan", plan_file, "--threads", 1,
                           micro_batches=micro_batches)["peak_memory_bytes"]
                for _ in range(1 if self.args.quick else 3)
            ]
            return statistics.median(runs)

        stash = peak(stash_plan, 1)
        rows = []
        for micro_batches in (1, 4):
            flush_plan = self.folder / f"mlp.flush{micro_batches}.plan.json"
            content = dict(plan, strategy="1f1b-flush", weights="flush",
                           micro_batches=micro_batches)
            flush_plan.write_text(json.dumps(content))
            flush = peak(flush_plan, micro_batches)
            ratio = (stash - flush) / allowed
            rows.append({
                "flush_after_micro_batches": micro_batches, "stash_bytes": stash,
                "flush_bytes": flush, "extra_bytes": stash - flush, "allowed_bytes": allowed,
                "ratio": ratio, "met": ratio <= 1
            })
        return rows


def measure(bench, rounds, log):
    """samples[model][name] = one value per round, None where a program failed."""
    samples = {model: {} for model in bench.args.models}
    for number in range(rounds):
        for model in bench.args.models:
            programs = list(bench.programs(model).items())
            start = number % len(programs)
            values = {}
            for name, program in programs[start:] + programs[:start]:
                log(f"round {number + 1}/{rounds}: {model}, {name}")
                try:
                    values.update(program())
                except Failed as failure:
                    log(f"failed: {failure}")
                    values[name] = None
                if bench.args.pause:
                    time.sleep(bench.args.pause)
            for name, value in values.items():
                samples[model].setdefault(name, []).append(value)
    return samples


def measure_predictions(bench, rounds, log):
    """Measured / predicted throughput, two ratios per round, None where a program failed. The
    machine's speed drifts over minutes, so each strategy is profiled and trained twice in turns,
    and a run is set against the mean of the predictions before and after it, the second prediction
    against the mean of the runs before and after."""
    ratios = {}
    for number in range(rounds):
        for model in PREDICTED_MODELS:
            for name, program in bench.predicted(model).items():
                log(f"round {number + 1}/{rounds}: {model}, prediction of {name}")
                try:
                    (first, first_predicted), (second, second_predicted) = program(), program()
                    both = [
                        2 * first / (first_predicted + second_predicted),
                        (first + second) / (2 * second_predicted)
                    ]
                    log("  measured / predicted: {:.3f} {:.3f}".format(*both))
                except (Failed, TypeError, ZeroDivisionError) as failure:
                    log(f"failed: {failure}")
                    both = [None, None]
                ratios.setdefault((model, name), []).extend(both)
    rows = []
    for (model, name), values in ratios.items():
        good = [value for value in values if value]
        row = {"model": model, "strategy": name, "ratios": values}
        if good:
            row["median"] = statistics.median(good)
            row["met"] = abs(row["median"] - 1) <= PREDICTION_ERROR
        rows.append(row)
    return rows


def measure_schedules(bench, rounds, log):
    """One row per model and schedule: idle share measured and predicted, and throughput against a
    run of 1f1b-flush beside it."""
    results = {}
    for number in range(rounds):
        for model in bench.args.models:
            kinds = QUICK_SCHEDULES if bench.args.quick else FLUSHED_SCHEDULES
            start = number % len(kinds)
            profile = None
            for kind in kinds[start:] + kinds[:start]:
                for pair in range(SPLIT_PAIRS if kind == "zb-h1" and not bench.args.quick else 1):
                    log(f"round {number + 1}/{rounds}: {model}, schedule {kind}")
                    try:
                        profile = profile or bench.profile_of_steps(model)
                        # The second of two runs can be the slower one by several per cent, so they
                        # change places from pair to pair.
                        order = [kind, "1f1b-flush"]
                        if (number + pair) % 2 == 1:
                            order.reverse()
                        pair_of_runs = [bench.scheduled(model, name, profile) for name in order]
                        result = tuple(pair_of_runs if order[0] == kind else reversed(pair_of_runs))
                    except (Failed, KeyError) as failure:
                        log(f"failed: {failure}")
                        result = None
                    results.setdefault((model, kind), []).append(result)
    rows = []
    for (model, kind), pairs in results.items():
        row = {"model": model, "schedule": kind, "pairs": pairs}
        good = [pair for pair in pairs if pair]
        if good:
            median = lambda of: statistics.median(of(mine, base) for mine, base in good)
            row["idle_share"] = median(lambda mine, base: mine["idle_share"])
            row["predicted_idle_share"] = median(lambda mine, base: mine["predicted_idle_share"])
            row["idle_error"] = median(
                lambda mine, base: mine["idle_share"] - mine["predicted_idle_share"])
            gains = sorted(mine["throughput_samples_per_s"] / base["throughput_samples_per_s"]
                           for mine, base in good)
            row["gain"], row["gains"] = statistics.median(gains), gains
            predicted = "predicted_throughput_samples_per_s"
            row["predicted_gain"] = median(lambda mine, base: mine[predicted] / base[predicted])
            row["met"] = abs(row["idle_error"]) <= IDLE_ERROR
            if kind == "zb-h1":
                gain_error = abs(row["gain"] - row["predicted_gain"])
                row["met"] = row["met"] and row["gain"] >= 1 and gain_error <= GAIN_ERROR
        rows.append(row)
    return rows


def schedule_table(rows):
    lines = [
        f"{'schedule, 2 workers, 8 micro-batches':40} {'model':10} {'idle':>7} {'predicted':>9} "
        f"{'points':>7} {'/ 1f1b-flush':>12} {'lowest':>7} {'highest':>7} {'predicted':>9}"
    ]
    for row in rows:
        if "met" not in row:
            lines.append(f"{row['schedule']:40} {row['model']:10} {'failed':>7}")
            continue
        lines.append(
            f"{row['schedule']:40} {row['model']:10} {100 * row['idle_share']:6.1f}% "
            f"{100 * row['predicted_idle_share']:8.1f}% {100 * row['idle_error']:+7.1f} "
            f"{row['gain']:12.3f} {row['gains'][0]:7.3f} {row['gains'][-1]:7.3f} "
            f"{row['predicted_gain']:9.3f}  {'yes' if row['met'] else 'NO'}")
    return "\n".join(lines)


def evaluate(samples):
    rows = []
    for title, model, over, under, factor, target in ROWS:
        if model not in samples or over not in samples[model] or under not in samples[model]:
            continue
        pairs = zip(samples[model][over], samples[model][under])
        ratios = [a / (factor * b) for a, b in pairs if a and b]
        row = {"row": title, "model": model, "target": target, "ratios": ratios}
        if ratios:
            row["median"] = statistics.median(ratios)
            row["met"] = None if target is None else row["median"] >= target
        rows.append(row)
    return rows


def prediction_table(rows):
    lines = [
        f"{'measured / predicted throughput, 2 workers':40} {'model':10} {'median':>8} "
        f"{'lowest':>8} {'highest':>8} {'target':>8}"
    ]
    for row in rows:
        good = [value for value in row["ratios"] if value]
        if not good:
            lines.append(f"{row['strategy']:40} {row['model']:10} {'failed':>8}")
            continue
        verdict = "yes" if row["met"] else "NO"
        lines.append(
            f"{row['strategy']:40} {row['model']:10} {row['median']:8.3f} {min(good):8.3f} "
            f"{max(good):8.3f} {'1 +- .10':>8}  {verdict}")
    return "\n".join(lines)


def table(rows, samples, memory):
    lines = [f"{'what':40} {'model':10} {'median':>8} {'lowest':>8} {'highest':>8} {'target':>8}"]
    for row in rows:
        target = "-" if row["target"] is None else f">= {row['target']:.2f}"
        if not row["ratios"]:
            lines.append(
                f"{row['row']:40} {row['model']:10} {'failed':>8} {'':>8} {'':>8} {target:>8}")
            continue
        verdict = {True: "yes", False: "NO", None: ""}[row["met"]]
        lines.append(
            f"{row['row']:40} {row['model']:10} {row['median']:8.3f} {min(row['ratios']):8.3f} "
            f"{max(row['ratios']):8.3f} {target:>8}  {verdict}")
    for row in memory or []:
        title = f"memory, stash - flush every {row['flush_after_micro_batches']} / allowed"
        lines.append(
            f"{title:40} {'mlp':10} {row['ratio']:8.3f} {'':>8} {'':>8} {'<= 1.00':>8}  "
            f"{'yes' if row['met'] else 'NO'}")
    lines += [
        "", f"{'samples per second':40} {'model':10} {'median':>8} {'lowest':>8} {'highest':>8}"
    ]
    for model in samples:
        for name, values in samples[model].items():
            values = [value for value in values if value]
            if values:
                lines.append(
                    f"{name:40} {model:10} {statistics.median(values):8.0f} {min(values):8.0f} "
                    f"{max(values):8.0f}")
    return "\n".join(lines)


def has_pipelining(python):
    """Whether it has a PyTorch that is new enough for all peers."""
    try:
        return subprocess.run([python, "-c", "import torch.distributed.pipelining"],
                              capture_output=True).returncode == 0
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=REPOSITORY / "build/release-wheel/penstock",
                        type=pathlib.Path, help="the binary to measure")
    parser.add_argument("--another-penstock", type=pathlib.Path, metavar="PENSTOCK",
                        help="a second binary to compare with, such as one with another libtorch")
    parser.add_argument("--torch-python", default=REPOSITORY / "build/venv/bin/python",
                        help="a Python with PyTorch 2.13, for the peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--no-peers", dest="peers", action="store_false",
                        help="only Penstock's own rows")
    parser.add_argument("--only", choices=["comparisons", "predictions", "schedules"],
                        help="only the table of ratios, of predictions, or of schedules")
    parser.add_argument("--quick", action="store_true",
                        help="tiny sizes: shows that everything runs; the ratios mean nothing")
    parser.add_argument("--pause", type=float, default=0, help="seconds between programs")
    parser.add_argument("-o", "--output", type=pathlib.Path,
                        default=pathlib.Path("bench-results/bench.json"))
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds: expected at least 1")
    args.penstock = args.penstock.resolve()
    if args.another_penstock:
        args.another_penstock = args.another_penstock.resolve()
    if not os.access(args.penstock, os.X_OK):
        parser.error(f"{args.penstock} is missing; build it first (./scripts/bench.sh does)")
    if args.peers and not has_pipelining(args.torch_python):
        parser.error(f"--torch-python {args.torch_python} has no torch.distributed.pipelining: "
                     "./scripts/bench.sh installs PyTorch, --no-peers leaves the peers out")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    work = args.output.parent / "work"
    work.mkdir(exist_ok=True)

    def log(text):
        print(text, file=sys.stderr, flush=True)

    machine = describe_machine()
    bench = Bench(args, work.resolve())
    samples = measure(bench, args.rounds, log) if args.only in (None, "comparisons") else {}
    predictions, schedules = [], []
    if args.only in (None, "predictions"):
        predictions = measure_predictions(bench, args.rounds, log)
    if args.only in (None, "schedules"):
        schedules = measure_schedules(bench, args.rounds, log)
    memory = None
    memory_failed = False
    if "mlp" in args.models and args.only in (None, "comparisons"):
        log("memory of stash and flush: mlp")
        try:
            memory = bench.memory()
        except Failed as failure:
            log(f"failed: {failure}")
            memory_failed = True
    rows = evaluate(samples)
    document = {
        "machine": machine, "quick": args.quick, "rounds": args.rounds,
        "sizes": {model: bench.options(model) for model in args.models},
        "rows": rows, "memory": memory, "predictions": predictions, "schedules": schedules,
        "samples_per_s": samples
    }
    args.output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{machine['cpu']}, {machine['cores']} cores, commit {machine['commit']}, "
          f"{args.rounds} rounds{' (quick: ratios mean nothing)' if args.quick else ''}\n")
    if samples:
        print(table(rows, samples, memory))
    if predictions:
        print(("\n" if samples else "") + prediction_table(predictions))
    if schedules:
        print(("\n" if samples or predictions else "") + schedule_table(schedules))
    print(f"\n{args.output}")

    missing = (value is None for model in samples.values() for values in model.values()
               for value in values)
    failed = any(not row["ratios"] for row in rows) or any(missing)
    failed = failed or any(value is None for row in predictions for value in row["ratios"])
    failed = failed or any(result is None for row in schedules for result in row["pairs"])
    if failed or memory_failed:
        return 3
    missed = any(row.get("met") is False for row in rows + predictions + schedules + (memory or []))
    return 1 if missed and not args.quick else 0


if __name__ == "__main__":
    sys.exit(main())
