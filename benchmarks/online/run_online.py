#!/usr/bin/env python3
"""Measures `penstock stream`: speed of two stages, the rate that is sustained, overload, overhead,
what is learned under each weight policy, and eight simulated stages. Writes results as JSON, and
beside them tables (Markdown) and plots (SVG). Parts that an earlier run left in the file and that
are not measured anew stay.

Needs a built penstock; standard library only. Exit code: 0 done, 2 wrong usage, 3 a part failed.
README.md beside this file explains every part.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "evaluation"), str(HERE.parent)]

import online_tables  # noqa: E402
import parts  # noqa: E402
from machine import REPOSITORY, describe_machine  # noqa: E402
from streams import Failed, Tool  # noqa: E402


def parse(words=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=REPOSITORY / "build/release/penstock",
                        type=pathlib.Path, help="the binary to measure")
    parser.add_argument("--only", default=",".join(parts.ALL), metavar="PART,...",
                        help="some of: " + ",".join(parts.ALL))
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs (default 3)")
    parser.add_argument("--seconds", type=float, default=2.0,
                        help="how long a throughput is measured (default 2)")
    parser.add_argument("--minutes", type=float, default=10.0,
                        help="sustain: length of the long run (default 10; 2 on a loaded machine)")
    parser.add_argument("--share", type=float, default=0.95,
                        help="sustain: rate of the long run over the highest one (default 0.95)")
    parser.add_argument("--long-runs", type=int, default=1, metavar="N",
                        help="sustain: at most so many long runs, each at 0.9 of the rate of the "
                        "one before, until 0.1 %% of the frames at most are late or dropped "
                        "(default 1)")
    parser.add_argument("--frames", type=int, default=3000,
                        help="quality: frames of the stream (default 3000)")
    parser.add_argument("--seeds", type=int, default=3, help="quality: scenes (default 3)")
    parser.add_argument("--quick", action="store_true",
                        help="tiny sizes: shows that everything runs")
    parser.add_argument("-o", "--output", type=pathlib.Path,
                        default=pathlib.Path("bench-results/online/results.json"),
                        help="results (default bench-results/online/results.json)")
    parser.add_argument("--render", action="store_true",
                        help="measure nothing: write tables and plots of the results anew")
    args = parser.parse_args(words)
    args.only = args.only.split(",")
    unknown = [name for name in args.only if name not in parts.ALL]
    if unknown:
        parser.error(f"--only: no part '{unknown[0]}'; there are {', '.join(parts.ALL)}")
    if (min(args.rounds, args.frames, args.seeds, args.long_runs) < 1 or
            min(args.seconds, args.minutes) <= 0):
        parser.error("expected positive --rounds, --frames, --seeds, --long-runs, --seconds and "
                     "--minutes")
    if not 0 < args.share <= 1:
        parser.error("expected --share above 0 and at most 1")
    if args.render and not args.output.is_file():
        parser.error(f"there is no {args.output} to render")
    args.penstock = args.penstock.resolve()
    if not args.render and not os.access(args.penstock, os.X_OK):
        parser.error(f"{args.penstock} is missing; build it first (./scripts/bench.sh does)")
    return args


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    path.with_suffix(".md").write_text(online_tables.markdown(document["results"]))
    for name, text in online_tables.pictures(document["results"]).items():
        (path.parent / name).write_text(text)


def run_part(bench, name):
    bench.log(name)
    machine, began = describe_machine(), time.monotonic()
    try:
        found = parts.ALL[name](bench)
    except Failed as failure:
        bench.log(f"failed: {failure}")
        found = {"failed": str(failure)[:400]}
    args = bench.args
    return {**found, "machine": machine, "load_after": os.getloadavg()[0],
            "took_s": time.monotonic() - began, "quick": args.quick,
            "options": {key: getattr(args, key) for key in
                        ("rounds", "seconds", "minutes", "share", "long_runs", "frames", "seeds")}}


def main():
    args = parse()
    results = json.loads(args.output.read_text())["results"] if args.output.exists() else {}
    document = {"results": results}
    if args.render:
        write(args.output, document)
        return 0

    def log(text):
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        bench = parts.Bench(args, Tool(args.penstock, folder), log)
        for name in args.only:
            results[name] = run_part(bench, name)
            # After every part: what was measured stays if a later one is interrupted.
            write(args.output, document)
    print(args.output.with_suffix(".md").read_text())
    return 3 if any("failed" in results[name] for name in args.only) else 0


if __name__ == "__main__":
    sys.exit(main())
