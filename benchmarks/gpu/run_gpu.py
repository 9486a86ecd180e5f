#!/usr/bin/env python3
"""Penstock on a GPU: one worker against PyTorch, two workers on one card against one, streams
without and with CUDA graphs, what was predicted, and the accuracy in each precision. Programs take
turns, round by round. Prints a table; -o writes all numbers as JSON. With --device cpu the same on
one thread of the CPU, without what is about GPUs alone.

Needs a GPU, a build for CUDA and a Python whose PyTorch is one for CUDA, unless the device is the
CPU. Exit code: 0 done, 2 wrong usage, 3 a run failed.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from machine import REPOSITORY, describe_machine  # noqa: E402

MODELS = ("mlp", "vgg_small", "resnet18", "resnet50", "gpt2")
PRECISIONS = ("float32", "tf32", "bfloat16")
HOWS = ("eager", "compile", "graphs")
BATCH = {"mlp": 128, "vgg_small": 64, "resnet18": 64, "resnet50": 64, "gpt2": 8}
ZOO = {"mlp": ["mlp"], "vgg_small": ["vgg_small"],
       "resnet18": ["resnet18", "--input", "3x32x32", "--classes", "10"],
       "resnet50": ["resnet50"]}
#: PARTIME's networks: layers, features, side of the kernels
STREAMS = {"basic": (10, 16, 5), "layers": (30, 16, 5), "features": (10, 48, 5),
           "kernel": (10, 16, 15)}
WARMUP = 15  # as in peer.py
EPOCHS = 100000


def describe_gpu():
    words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return "unknown"


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def names(of):
        def read(text):
            chosen = [name for name in text.split(",") if name]
            for name in chosen:
                if name not in of:
                    raise argparse.ArgumentTypeError(f"no '{name}'; there are {', '.join(of)}")
            return chosen
        return read

    parser.add_argument("--models", type=names(MODELS), default=list(MODELS), metavar="NAME,...",
                        help=f"some of {', '.join(MODELS)}")
    parser.add_argument("--precisions", type=names(PRECISIONS), default=list(PRECISIONS),
                        metavar="NAME,...", help=f"some of {', '.join(PRECISIONS)}")
    parser.add_argument("--against", type=names(HOWS), default=list(HOWS), metavar="HOW,...",
                        help="of PyTorch, some of eager, compile, graphs (torch.compile with "
                             "mode='reduce-overhead'); empty: nothing")
    parser.add_argument("--pairs", type=names(MODELS), default=list(MODELS), metavar="NAME,...",
                        help="models of which two workers on one card are compared with one")
    parser.add_argument("--streams", type=names(STREAMS), default=list(STREAMS), metavar="NAME,...",
                        help="PARTIME's networks that learn from a stream, with and without "
                             "graphs: " + ", ".join(STREAMS))
    parser.add_argument("--accuracy-epochs", type=int, default=5, metavar="N",
                        help="epochs of vgg_small on Fashion-MNIST in each precision; 0: none")
    parser.add_argument("--fashion-mnist", type=pathlib.Path, metavar="FOLDER",
                        default=pathlib.Path("/usr/share/datasets/fashion-mnist"),
                        help="its four IDX files; without them no accuracy is measured")
    parser.add_argument("--stream-size", default="160x120")
    parser.add_argument("--stream-frames", type=int, default=1000)
    parser.add_argument("--penstock", type=pathlib.Path,
                        default=REPOSITORY / "build/release-torch/penstock")
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch for CUDA")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--data", type=pathlib.Path, help="keep samples and programs here")
    parser.add_argument("--options", default="", help="more options for penstock train")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    if min(args.rounds, args.steps, args.stream_frames) < 1:
        parser.error("expected positive --rounds, --steps and --stream-frames")
    args.on_gpu = args.device != "cpu"
    if not args.on_gpu:
        args.streams = []
        args.pairs = []
        args.against = [how for how in args.against if how != "graphs"]
        args.precisions = [name for name in args.precisions if name != "tf32"]
    args.penstock = args.penstock.resolve()
    if "/" in args.python:  # it may be a link of a virtual environment
        args.python = os.path.abspath(args.python)
    return args


class Runs:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.results = []
        self.failed = False
        self.machine, self.gpu = describe_machine(), describe_gpu()

    def call(self, *words):
        words = [str(word) for word in words]
        print("$ " + " ".join(words), file=sys.stderr, flush=True)
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=HERE)
        if done.returncode != 0:
            self.failed = True
            print(done.stderr[-1500:], file=sys.stderr, flush=True)
        return done

    def write(self):
        missing = [name for name in self.args.models
                   if not (self.folder / name / "data.npz").exists()]
        if missing and self.call(self.args.python, HERE / "peer.py", "write", self.folder,
                                 *missing).returncode != 0:
            raise SystemExit(3)

    def add(self, name, precision, who, found):
        keys = ("samples_per_s", "final_loss", "peak_memory_bytes", "predicted", "error", "torch")
        row = {"model": name, "precision": precision, "who": who,
               **{key: found[key] for key in keys if key in found}}
        self.results.append(row)
        self.save()
        text = f"{row['samples_per_s']:.1f} samples/s" if "samples_per_s" in row else row["error"]
        print(f"  {name} {precision} {who}: {text}", file=sys.stderr, flush=True)

    def save(self):
        """After every run: what was measured stays when the rest is interrupted."""
        if not self.args.output:
            return
        self.args.output.parent.mkdir(parents=True, exist_ok=True)
        self.args.output.write_text(json.dumps(
            {"machine": self.machine, "gpu": self.gpu,
             "arguments": {k: str(v) for k, v in vars(self.args).items()},
             "runs": self.results}, indent=1) + "\n")

    def peers(self, name):
        cases = [f"{name}:{precision}:{how}" for precision in self.args.precisions
                 for how in self.args.against]
        if not cases:
            return
        done = self.call(self.args.python, HERE / "peer.py", "steps", self.folder, self.args.steps,
                         self.args.device, *cases)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                found = json.loads(line)
                _, precision, how = found["case"].split(":")
                self.failed |= "error" in found
                self.add(name, precision, how, found)

    def model(self, name):
        return ["--model", *ZOO.get(name, [str(self.folder / name / "program.pt2")])]

    def profile(self, name, precision, *options):
        """A profile of this round, which the run after it is planned and predicted from."""
        file = self.folder / name / f"profile.{precision}{''.join(options)}.json"
        self.call(self.args.penstock, "profile", *self.model(name), "--batch-size", BATCH[name],
                  "--precision", precision, "--device", self.args.device, "--concurrency", 1,
                  *options, "-o", file)
        return ["--profile", file]

    def penstock(self, name, precision, who, *options):
        own = self.folder / name
        done = self.call(
            self.args.penstock, "train", *self.model(name), "--data", own / "data.npz",
            "--test-share", 0, "--batch-size", BATCH[name], "--precision", precision,
            "--device", self.args.device, "--lr", "1e-3", "--momentum", 0.9, "--no-eval",
            "--warmup-steps", WARMUP, "--steps", WARMUP + self.args.steps, "--epochs", EPOCHS,
            "--json", *options, *self.args.options.split())
        if done.returncode != 0:
            self.add(name, precision, who, {"error": done.stderr.strip()[-300:]})
            return
        run = json.loads(done.stdout)
        self.add(name, precision, who, {
            "samples_per_s": run["throughput_samples_per_s"],
            "predicted": run["predicted_throughput_samples_per_s"],
            "final_loss": run["final_loss"],
            "peak_memory_bytes": max(one["peak_memory_bytes"] for one in run["devices"])
            if run["devices"] else 0})

    def both(self, name, precision):
        self.penstock(name, precision, "penstock", "--strategy", "serial",
                      *self.profile(name, precision))
        if not self.args.on_gpu:
            return
        self.penstock(name, precision, "graphs on", "--strategy", "serial", "--cuda-graphs",
                      *self.profile(name, precision, "--cuda-graphs"))

    def stream(self, name, who, *options):
        depth, width, kernel = STREAMS[name]
        done = self.call(
            self.args.penstock, "stream", "--size", self.args.stream_size, "--frames",
            self.args.stream_frames, "--depth", depth, "--width", width, "--kernel", kernel,
            "--workers", 1, "--device", self.args.device, "--json", *options)
        if done.returncode != 0:
            self.add(name, "stream", who, {"error": done.stderr.strip()[-300:]})
            return
        run = json.loads(done.stdout)
        self.add(name, "stream", who, {"samples_per_s": run["fps"],
                                       "predicted": run["predicted_fps"],
                                       "final_loss": run["loss"]})

    def accuracy(self, seed):
        folder = self.args.fashion_mnist.resolve()
        if self.args.accuracy_epochs < 1 or not folder.is_dir():
            return
        for precision in self.args.precisions:
            done = self.call(
                self.args.penstock, "train", "--model", "vgg_small", "--data", "idx",
                "--data-folder", folder, "--strategy", "serial", "--device", self.args.device,
                "--precision", precision, "--epochs", self.args.accuracy_epochs, "--batch-size", 64,
                "--lr", 0.05, "--momentum", 0.9, "--seed", seed, "--json")
            if done.returncode != 0:
                self.add("vgg_small", precision, "accuracy", {"error": done.stderr.strip()[-300:]})
                continue
            run = json.loads(done.stdout)
            self.results.append({
                "model": "vgg_small", "precision": precision, "who": "accuracy",
                "accuracy": run["test_accuracy"],
                "peak_memory_bytes": max([one["peak_memory_bytes"] for one in run["devices"]] or
                                         [0])})
            self.save()

    def round(self, number):
        self.accuracy(number + 1)
        for name in self.args.streams:
            both = [("without graphs", []), ("with graphs", ["--cuda-graphs"])]
            for who, options in both if number % 2 == 0 else both[::-1]:
                self.stream(name, who, *options)
        for name in self.args.models:
            parts = [lambda: self.peers(name)]
            for precision in self.args.precisions:
                parts.append(lambda precision=precision: self.both(name, precision))
            if name in self.args.pairs:
                precision = self.args.precisions[0]
                both = ["--micro-batches", 4]
                parts.append(lambda: self.penstock(name, precision, "one worker, 4 micro-batches",
                                                   "--strategy", "serial", *both))
                parts.append(lambda: self.penstock(name, precision, "two workers, 4 micro-batches",
                                                   "--strategy", "1f1b-flush", "--workers", 2,
                                                   *both))
            for part in parts if number % 2 == 0 else parts[::-1]:
                part()

    def rates(self, name, precision, who):
        return [row["samples_per_s"] for row in self.results
                if (row["model"], row["precision"], row["who"]) == (name, precision, who)
                and "samples_per_s" in row]

    def ratio(self, name, precision, who, other):
        pairs = list(zip(self.rates(name, precision, who), self.rates(name, precision, other)))
        if not pairs:
            return f"{'-':>22}"
        ratios = sorted(a / b for a, b in pairs)
        return f"{statistics.median(ratios):8.3f} ({ratios[0]:.3f}-{ratios[-1]:.3f})"

    def line(self, name, precision, who):
        rates = self.rates(name, precision, who)
        if not rates:
            return
        predicted = [row["samples_per_s"] / row["predicted"] for row in self.results
                     if (row["model"], row["precision"], row["who"]) == (name, precision, who)
                     and row.get("predicted")]
        label = "graphs" if who in ("graphs on", "with graphs") else ""
        print(f"{name:10} {precision:9} {label:9} {statistics.median(rates):10.1f} "
              f"{statistics.median(predicted) if predicted else 0:11.3f} "
              + " ".join(self.ratio(name, precision, who, how) for how in self.args.against
                         if precision != "stream"))

    def table(self):
        print(f"{'model':10} {'precision':9} {'':9} {'samples/s':>10} {'/ predicted':>11} "
              + " ".join(f"{'/ ' + how:>22}" for how in self.args.against))
        for name in self.args.models:
            for precision in self.args.precisions:
                for who in ("penstock", "graphs on"):
                    self.line(name, precision, who)
        if self.args.pairs:
            print("\ntwo workers on one card / one worker, both with 4 micro-batches per step")
        for name in self.args.pairs:
            precision = self.args.precisions[0]
            print(f"{name:10} {precision:9} " + self.ratio(
                name, precision, "two workers, 4 micro-batches", "one worker, 4 micro-batches"))
        accuracies = [row for row in self.results if "accuracy" in row]
        if accuracies:
            print(f"\nvgg_small on Fashion-MNIST, {self.args.accuracy_epochs} epochs: accuracy in "
                  "each round, peak memory")
        for precision in self.args.precisions:
            rows = [row for row in accuracies if row["precision"] == precision]
            if rows:
                print(f"{'':10} {precision:9} "
                      + " ".join(f"{100 * row['accuracy']:.2f} %" for row in rows)
                      + f"  {rows[0]['peak_memory_bytes'] / 1e6:.0f} MB")
        if self.args.streams:
            print(f"\nstreams of {self.args.stream_size}, one stage: frames/s, / predicted; with "
                  "graphs / without")
        for name in self.args.streams:
            self.line(name, "stream", "without graphs")
            self.line(name, "stream", "with graphs")
            print(" " * 43 + self.ratio(name, "stream", "with graphs", "without graphs"))


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as temporary:
        runs = Runs(args, (args.data or pathlib.Path(temporary)).resolve())
        runs.write()
        for number in range(args.rounds):
            runs.round(number)
        runs.table()
    return 3 if runs.failed else 0


if __name__ == "__main__":
    sys.exit(main())
