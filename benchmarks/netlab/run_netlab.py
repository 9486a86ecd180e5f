#!/usr/bin/env python3
"""Measures training over a network with known limits: hosts are network namespaces of this machine,
links have a rate. Every experiment predicts first and measures then; one table, one JSON.

Needs root, iproute2, and a built penstock. Exit code: 0 all targets met, 1 some missed, 2 wrong
usage, 3 a program failed, 77 skipped because this machine cannot have such a network. Standard
library only; README.md beside this file explains every row.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import experiments  # noqa: E402
import formulas  # noqa: E402
import netlab  # noqa: E402
from machine import REPOSITORY, describe_machine  # noqa: E402

SKIPPED = 77


def number(value):
    if value is None:
        return ""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / {'G': 1e9, 'M': 1e6, 'k': 1e3}[unit]:.3f}{unit}"
    return f"{value:.4g}"


def table(rows):
    width = max([len(row["what"]) for row in rows] + [4])
    lines = [
        f"{'experiment':11} {'what':{width}} {'unit':10} {'predicted':>9} {'measured':>9} "
        f"{'ratio':>6} {'lowest':>6} {'highest':>7} {'target':>10}"
    ]
    for row in rows:
        start = f"{row['experiment']:11} {row['what']:{width}} "
        if row["verdict"] in ("SKIPPED", "FAILED"):
            lines.append(f"{start}{row['verdict']}: {row['why']}")
            continue
        # Without a prediction the measured values are what the target is about.
        ratios = [f"{row[key]:.3f}" for key in ("median", "lowest", "highest")]
        if row["predicted"] is None:
            ratios = [" ", number(row["lowest"]), number(row["highest"])]
        target = formulas.show_target(*row["target"])
        lines.append(f"{start}{row['unit']:10} {number(row['predicted']):>9} "
                     f"{number(row['measured']):>9} {ratios[0]:>6} {ratios[1]:>6} {ratios[2]:>7} "
                     f"{target:>10}  {row['verdict']}")
    return "\n".join(lines)


def main():
    names = list(experiments.ALL)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=REPOSITORY / "build/release/penstock",
                        type=pathlib.Path, help="the binary to measure")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="EXPERIMENT",
                        help="some of: " + ", ".join(names))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", nargs="+", default=["200Mbps", "1Gbps"],
                        help="of every host's link (default 200Mbps 1Gbps)")
    parser.add_argument("--hosts", nargs="+", type=int, default=[2, 4],
                        help="numbers of hosts that train (default 2 4)")
    parser.add_argument("--servers", nargs="+", type=int, default=[1, 2, 4],
                        help="numbers of CPU servers, for methods that use them (default 1 2 4)")
    parser.add_argument("--methods", nargs="+", choices=list(experiments.METHODS),
                        default=list(experiments.METHODS), metavar="METHOD",
                        help="how gradients are summed, some of: " + ", ".join(experiments.METHODS))
    parser.add_argument("--torch-python", default="/usr/bin/python3",
                        help="a Python that has torch, for the peers")
    parser.add_argument("--congestion", default=netlab.CONGESTION, metavar="NAME",
                        help="TCP's congestion control on all hosts "
                             f"(default {netlab.CONGESTION}), as the kernel names it")
    parser.add_argument("--quick", action="store_true",
                        help="tiny sizes: shows that everything runs; only bytes are judged")
    parser.add_argument("-o", "--output", type=pathlib.Path,
                        default=pathlib.Path("bench-results/netlab.json"))
    args = parser.parse_args()
    if args.rounds < 1 or min(args.hosts) < 2 or max(args.hosts) > 32:
        parser.error("expected --rounds of at least 1 and --hosts from 2 to 32")
    try:
        args.rates = [formulas.parse_rate(text) for text in args.rates]
    except ValueError as error:
        parser.error(f"--rates: {error}")
    args.penstock = args.penstock.resolve()
    if not os.access(args.penstock, os.X_OK):
        parser.error(f"{args.penstock} is missing; build it first (./scripts/bench.sh does)")

    def log(text):
        print(text, file=sys.stderr, flush=True)

    if not args.congestion.isalnum():
        parser.error(f"--congestion: expected a name such as cubic, found '{args.congestion}'")
    netlab.Lab.congestion = args.congestion
    netlab.exit_on_signals()
    if not netlab.prepare(log):
        return SKIPPED
    args.output.parent.mkdir(parents=True, exist_ok=True)
    work = netlab.make_folder()
    machine = describe_machine()
    bench = experiments.Bench(args, work, log)
    began = time.monotonic()
    try:
        for name in args.only:
            try:
                experiments.ALL[name](bench)
            except (experiments.Failed, netlab.LabError) as failure:
                log(f"failed: {failure}")
                bench.failed(name, str(failure))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    document = {
        "machine": machine, "quick": args.quick, "rounds": args.rounds,
        "rates_bits_per_s": args.rates, "congestion": args.congestion,
        "seconds": time.monotonic() - began,
        "rows": bench.rows, "details": bench.details
    }
    args.output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_before']:.1f} before, "
          f"commit {machine['commit']}, {args.rounds} rounds, {args.congestion}"
          f"{' (quick: only bytes are judged)' if args.quick else ''}\n")
    print(table(bench.rows))
    print(f"\n{args.output}")
    verdicts = {row["verdict"] for row in bench.rows}
    return 3 if "FAILED" in verdicts else 1 if "MISSED" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
