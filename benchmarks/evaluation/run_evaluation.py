#!/usr/bin/env python3
"""Repeats the evaluation of the papers that Penstock's methods come from: throughput, bytes,
memory, time to an accuracy and staleness on hosts that are network namespaces of this machine, and
the published layer profiles and the full-size models in planner and simulator. Writes
results.json, results.md and plots (SVG). Parts that an earlier run left in the folder and that are
not measured anew stay.

Needs root, iproute2 and a built penstock; Fashion-MNIST for two parts; nothing but penstock for the
last. Exit code: 0 done, 2 wrong
usage, 3 a part failed, 77 skipped because this machine cannot have such a network. Standard library
only; README.md beside this file explains every part.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "netlab"), str(HERE.parent)]

import experiments  # noqa: E402
import formulas  # noqa: E402
import measure  # noqa: E402
import methods as catalogue  # noqa: E402
import netlab  # noqa: E402
import plots  # noqa: E402
import simulated  # noqa: E402
import tables  # noqa: E402
import tasks  # noqa: E402
from machine import REPOSITORY, describe_machine  # noqa: E402
from quantities import ratios, spread  # noqa: E402

SKIPPED = 77
PARTS = {**measure.ALL, **tasks.ALL, **simulated.ALL}
NEEDS_HOSTS = (*measure.NEEDS_HOSTS, *tasks.NEEDS_HOSTS)
QUICK_MODELS, QUICK_TASKS = ["mlp"], ["captions"]
QUICK_METHODS = ["dp", "mp", "gpipe-2", "1f1b-straight", "auto", "asp"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=REPOSITORY / "build/release/penstock",
                        type=pathlib.Path, help="the binary to measure")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS),
                        metavar="PART", help="some of: " + ", ".join(PARTS))
    parser.add_argument("--models", nargs="+", choices=list(catalogue.MODELS), metavar="MODEL",
                        help="some of: " + ", ".join(catalogue.MODELS))
    parser.add_argument("--tasks", nargs="+", choices=list(catalogue.TASKS), metavar="TASK",
                        help="some of: " + ", ".join(catalogue.TASKS))
    parser.add_argument("--tokens", type=pathlib.Path, metavar="FOLDER",
                        help="folder with their tokens in help, book and emoji (default: made by "
                        "penstock data of installed packages)")
    parser.add_argument("--methods", nargs="+", choices=list(catalogue.METHODS), metavar="METHOD",
                        help="some of: " + ", ".join(catalogue.METHODS))
    parser.add_argument("--rates", nargs="+", default=["200Mbps", "1Gbps"],
                        help="of every host's link (default 200Mbps 1Gbps)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5,
                        help="how long a throughput is measured (default 1.5)")
    parser.add_argument("--profiles", type=pathlib.Path,
                        help="folder with PipeDream's published vgg16.graph.txt, "
                        "resnet50.graph.txt, gnmt8.graph.txt; without it that part is skipped")
    parser.add_argument("--data-folder", type=pathlib.Path,
                        help="Fashion-MNIST (default: Debian's dataset-fashion-mnist)")
    parser.add_argument("--quick", action="store_true",
                        help="tiny sizes: shows that everything runs")
    parser.add_argument("-o", "--output", type=pathlib.Path,
                        default=pathlib.Path("bench-results/evaluation"),
                        help="folder for results (default bench-results/evaluation)")
    parser.add_argument("--render", type=pathlib.Path, metavar="RESULTS",
                        help="measure nothing: write tables and plots of this results.json")
    args = parser.parse_args()
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("expected --rounds of at least 1 and positive --seconds")
    try:
        args.rates = [formulas.parse_rate(text) for text in args.rates]
    except ValueError as error:
        parser.error(f"--rates: {error}")
    args.models = args.models or (QUICK_MODELS if args.quick else list(catalogue.MODELS))
    args.tasks = args.tasks or (QUICK_TASKS if args.quick else list(catalogue.TASKS))
    args.methods = args.methods or (QUICK_METHODS if args.quick else list(catalogue.METHODS))
    if args.quick:
        args.rounds, args.seconds, args.rates = 1, 0.2, args.rates[:1]
    args.penstock = args.penstock.resolve()
    if not args.render and not os.access(args.penstock, os.X_OK):
        parser.error(f"{args.penstock} is missing; build it first (./scripts/bench.sh does)")
    return args


def over_dp(runs, name):
    """{file name: SVG text}, a picture for each rate."""
    found = {}
    for rate in sorted({run["rate"] for run in runs}):
        models = [model for model, r, hosts in tables.places(runs) if r == rate and hosts == 2]
        series = {}
        for key, method in catalogue.METHODS.items():
            over = [ratios(tables.rounds_of(runs, model, rate, 2), key, "dp") for model in models]
            if key != "dp" and any(over):
                series[method.title] = [spread(values)["median"] if values else None
                                        for values in over]
        if series:
            shown = formulas.show_rate(rate)
            found[f"{name}-{shown}.svg"] = plots.bars(
                f"Throughput over data parallelism, 2 hosts, {shown}", "times data parallelism",
                models, series)
    return found


def towards_metrics(runs):
    """{file name: SVG text}, a picture for each task."""
    found = {}
    for name in dict.fromkeys(run["task"] for run in runs):
        task = catalogue.TASKS[name]
        series = {}
        for run in runs:
            if run["task"] == name:
                method = catalogue.METHODS[run["method"]].title.removeprefix("PipeDream, ")
                series[f"{method}, {formulas.show_rate(run['rate'])}"] = run["evaluations"]
        found[f"metric-{name}.svg"] = plots.lines(
            f"{task.title}, 2 hosts", task.metric, "seconds of training", series, task.target)
    return found


def learning(results):
    """{file name: SVG text} of the parts that train on images."""
    found = {}
    reached = results.get("accuracy", {})
    if "runs" in reached:
        series = {}
        for run in reached["runs"]:
            elapsed, line = 0.0, []
            for accuracy, seconds in run["epochs"]:
                elapsed += seconds
                line.append((elapsed, 100 * accuracy))
            series[catalogue.METHODS[run["method"]].title] = line
        found["accuracy.svg"] = plots.lines(
            f"Fashion-MNIST, 2 hosts, {formulas.show_rate(reached['rate'])}", "test accuracy, %",
            "seconds of training", series, 100 * reached["wanted"]["target"])
    depth = results.get("depth", {})
    if "runs" in depth:
        series = {
            f"{run['stages']} x {run['strategy']}": list(enumerate(run["loss"], start=1))
            for run in depth["runs"] if run["strategy"] != "1f1b-flush"
        }
        found["depth.svg"] = plots.lines("Training loss by stages and schedule", "loss", "epoch",
                                         series)
    return found


def simulations(results):
    """{file name: SVG text} of planner and simulator beside the papers."""
    found = {}
    compared = [entry for entry in results.get("published", {}).get("comparisons", [])
                if "models" in entry and entry["reported"]["over"] == "dp"]
    if compared:
        names = ["{model}\n{servers}x{gpus} {cluster}".format(**entry["reported"])
                 for entry in compared]
        found["published.svg"] = plots.bars(
            "PipeDream's plan over data parallelism, published V100 profiles",
            "times data parallelism", names, {
                "paper, table 1": [entry["reported"]["ratio"] for entry in compared],
                "Penstock, simulated": [entry["models"]["penstock"]["simulated_ratio"]
                                        for entry in compared]
            })
    full = results.get("full-size", {}).get("comparisons", [])
    if full:
        found["full-size.svg"] = plots.bars(
            "PipeDream's plan over data parallelism, full-size models, estimated times",
            "times data parallelism", [
                "{model}\n{servers}x{gpus} {cluster}".format(**entry["reported"]) for entry in full
            ], {
                "paper, table 1": [entry["reported"]["ratio"] for entry in full],
                **{f"dp sums: {sync}": [entry["syncs"][sync]["ratio"] for entry in full]
                   for sync in simulated.SYNCS}
            })
    return found


def pictures(results):
    """{file name: SVG text}."""
    found = {}
    for part in ("throughput", "tasks"):
        found.update(over_dp(results.get(part, {}).get("runs", []), part))
    found.update(towards_metrics(results.get("metrics", {}).get("runs", [])))
    return {**found, **learning(results), **simulations(results)}


def write(folder, document):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(document, indent=1, default=str) + "\n")
    (folder / "results.md").write_text(tables.markdown(document))
    for name, text in pictures(document["results"]).items():
        (folder / name).write_text(text)


def run_part(bench, name):
    """What a part returns, or why it failed, and under which conditions it ran."""
    bench.log(name)
    machine, began = describe_machine(), time.monotonic()
    try:
        found = PARTS[name](bench)
    except measure.ERRORS as failure:
        bench.log(f"failed: {failure}")
        found = {"failed": str(failure).splitlines()[0][:300]}
    args = bench.args
    return {**found, "machine": machine, "load_after": os.getloadavg()[0],
            "seconds": time.monotonic() - began, "rounds": args.rounds, "quick": args.quick}


def earlier(folder):
    """{part: results} of an earlier run into the same folder."""
    path = folder / "results.json"
    return json.loads(path.read_text())["results"] if path.exists() else {}


def main():
    args = parse()
    if args.render:
        write(args.output, json.loads(args.render.read_text()))
        return 0

    def log(text):
        print(text, file=sys.stderr, flush=True)

    netlab.exit_on_signals()
    if any(name in NEEDS_HOSTS for name in args.only) and not netlab.prepare(log):
        return SKIPPED
    work = netlab.make_folder()
    document = {"command": sys.argv[1:], "results": earlier(args.output)}
    bench = experiments.Bench(args, work, log)
    try:
        for name in args.only:
            document["results"][name] = run_part(bench, name)
            # After every part: what was measured stays if a later one is interrupted.
            write(args.output, document)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print((args.output / "results.md").read_text())
    print(f"{args.output}/results.json")
    return 3 if any("failed" in document["results"][name] for name in args.only) else 0


if __name__ == "__main__":
    sys.exit(main())
