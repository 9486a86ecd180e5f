#!/usr/bin/env python3
"""What importing costs: a step of an imported model against eager PyTorch (parts resnet18 and
gpt2, one thread, through penstock.Trainer), an imported ResNet-50 against the one that comes with
penstock (part resnet50), and Trainer.fit with a DataLoader against `penstock train`, two workers,
same program, plan and samples (parts fit-resnet18 and fit-gpt2). Pairs of runs, one after the
other, each a process of its own; the order changes from pair to pair.

Needs a Python with PyTorch, and penstock's build for it. Exit code: 0 done, 2 wrong usage, 3 a run
failed.
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

PARTS = ("resnet18", "gpt2", "resnet50", "fit-resnet18", "fit-gpt2")
WARMUP = 2  # steps, as in one_side.py


class Failed(Exception):
    pass


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...",
                        help="some of: " + ",".join(PARTS))
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release-wheel",
                        help="a build with the wheel's libtorch")
    parser.add_argument("--python", default=sys.executable, help="a Python with that PyTorch")
    parser.add_argument("--rounds", type=int, default=5, help="pairs (default 5)")
    parser.add_argument("--steps", type=int, default=7, help="steps of a run (default 7)")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="results as JSON")
    args = parser.parse_args()
    args.only = args.only.split(",")
    args.build = args.build.resolve()
    unknown = [part for part in args.only if part not in PARTS + ("tiny", "fit-tiny")]
    if unknown:
        parser.error(f"--only: no part '{unknown[0]}'; there are {', '.join(PARTS)}")
    if min(args.rounds, args.steps) < 1:
        parser.error("expected positive --rounds and --steps")
    return args


def run(args, *words):
    environment = {**os.environ, "PYTHONPATH": str(args.build / "python"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=HERE,
                          env=environment, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def pairs(args, first, second):
    """The two sides' results, round by round; `second` goes first in every other round."""
    results = []
    for number in range(args.rounds):
        one, other = (first, second) if number % 2 == 0 else (second, first)
        pair = (one(), other())
        results.append(pair if number % 2 == 0 else pair[::-1])
        print(".", end="", flush=True, file=sys.stderr)
    return results


def against_eager(args, name):
    def side(which):
        return lambda: run(args, args.python, HERE / "one_side.py", name, which, args.steps)

    found = pairs(args, side("penstock"), side("eager"))
    ours, eager = found[0]
    if any(abs(a - b) > 1e-4 * abs(b) for a, b in zip(ours["losses"], eager["losses"])):
        raise Failed(f"{name}: other losses: {ours['losses']}, eager {eager['losses']}")
    return {"ratios": [a["seconds"] / b["seconds"] for a, b in found],
            "seconds": [[a["seconds"], b["seconds"]] for a, b in found],
            "faults": [statistics.median(a["faults"] for a, _ in found),
                       statistics.median(b["faults"] for _, b in found)]}


EXPORT = "import sys, torch, penstock, models; torch.manual_seed(1); penstock.export(" \
         "models.resnet50(), torch.randn(2, 3, 224, 224), sys.argv[1]); print('{}')"


def against_the_zoo(args):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "resnet50.pt2"
        run(args, args.python, "-c", EXPORT, program)

        def side(model):
            return lambda: run(
                args, args.build / "penstock", "train", "--model", model, "--data", "synthetic",
                "--train-samples", 64, "--batch-size", 4, "--strategy", "serial", "--steps",
                args.steps, "--warmup-steps", 1, "--no-eval", "--lr", "1e-4", "--json")

        found = pairs(args, side(program), side("resnet50"))
    rate = "throughput_samples_per_s"
    memory = "peak_memory_bytes"
    return {"ratios": [b[rate] / a[rate] for a, b in found],
            "seconds": [[4 / a[rate], 4 / b[rate]] for a, b in found],
            "memory": [a[memory] / b[memory] for a, b in found]}


def against_the_command(args, model):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        steps = WARMUP + args.steps
        batch = run(args, args.python, HERE / "one_side.py", folder, "write", steps, model)["batch"]

        def fit():
            return run(args, args.python, HERE / "one_side.py", folder, "epoch", batch)

        def command():
            found = run(args, args.build / "penstock", "train", "--model", folder / "program.pt2",
                        "--data", folder / "data.npz", "--test-share", 0,
                        "--plan", folder / "plan.json", "--batch-size", batch,
                        "--lr", "1e-4", "--momentum", 0, "--warmup-steps", WARMUP,
                        "--no-shuffle", "--no-eval", "--json")
            return {"seconds": batch / found["throughput_samples_per_s"],
                    "losses": found["losses"]}

        found = pairs(args, fit, command)
    for ours, other in found:
        if ours["losses"] != other["losses"]:
            raise Failed(f"{model}: other losses: fit {ours['losses']}, "
                         f"the command {other['losses']}")
    return {"ratios": [a["seconds"] / b["seconds"] for a, b in found],
            "seconds": [[a["seconds"], b["seconds"]] for a, b in found]}


def part_of(args, name):
    if name == "resnet50":
        return against_the_zoo(args)
    if name.startswith("fit-"):
        return against_the_command(args, name.removeprefix("fit-"))
    return against_eager(args, name)


def line(name, part):
    ratios = sorted(part["ratios"])
    return (f"{name:12} {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}), "
            f"{len(ratios)} pairs")


def main():
    args = parse()
    results = {"machine": describe_machine(), "parts": {}}
    try:
        for name in args.only:
            part = part_of(args, name)
            results["parts"][name] = part
            print("\r" + line(name, part), flush=True)
    except Failed as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 3
    finally:
        if args.output:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
