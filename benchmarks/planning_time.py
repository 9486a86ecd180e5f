#!/usr/bin/env python3
"""Time and memory in which a build of `penstock plan` finds plans as good as those of another one.

    planning_time.py OLD NEW --cases 120   # a seeded choice of the table of planning_bounds.py

OLD prints the time of its search in a line "searched N ns" on standard error; NEW says in `search`
of its JSON when it had each plan. Per case, with the same limit for both and medians of --repeat:

- OLD: how long its search took, to its end
- the plan of OLD, priced by NEW, which may know more of it. One that does not fit the memory then
  is no aim, and the case is left out.
- NEW: when it had a plan as fast
- NEW again, with --share of OLD's time as its limit: its time, and whether the plan is as fast
- the peaks of resident memory of both, also beyond that of `--help`

Prints a row per case and the geometric means. Sums are `ordered`, all that OLD tries unless told
otherwise.
"""
import argparse
import itertools
import json
import math
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from machine import REPOSITORY, describe_machine

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
import planning_bounds  # noqa: E402  (its folder is no package)

# Kinds that flush are predicted by two steps while they are searched.
AS_FAST = 0.999


def run(command, folder):
    """Exit code, peak bytes, what it printed, what it said."""
    peak = folder / "peak"
    done = subprocess.run(["/usr/bin/time", "-f", "%M", "-o", peak, *map(str, command)],
                          capture_output=True, text=True, check=False)
    return done.returncode, int(peak.read_text().split()[-1]) * 1024, done.stdout, done.stderr


def words_of(case, limit):
    profile, cluster, strategy = case
    words = ["plan", "--profile", profile, "--cluster", cluster, "--sync", "ordered", "--json",
             "--time-limit", f"{max(1000, round(limit * 1e6))}us" if limit < 1 else f"{limit:g}s"]
    return words + (["--compare"] if strategy == "compare" else ["--strategy", strategy])


def old_once(options, case, folder):
    """Seconds, peak bytes, and whether it ended with a plan, which lies in old.json."""
    code, peak, _, said = run([options.old, *words_of(case, options.limit), "-o",
                               folder / "old.json"], folder)
    found = re.search(r"searched (\d+) ns", said)
    return (int(found[1]) / 1e9, peak, True) if code == 0 and found else (0, peak, False)


def aim_of(options, case, folder):
    """Samples/s of OLD's plan as NEW sees it; nothing where it does not fit."""
    code, _, out, _ = run([options.new, "plan", "--profile", case[0], "--cluster", case[1],
                           "--price", folder / "old.json", "--json"], folder)
    if code != 0:
        return None
    plan = json.loads(out)
    limited = [stage["memory_bytes"] for stage in plan["stages"]]
    device = plan["cluster"]["device"]["memory_bytes"]
    no_room = any(note.startswith("Warning:") for note in plan.get("notes", []))
    return None if no_room or (device and max(limited) > device) else plan[
        "throughput_samples_per_s"]


def new_once(options, case, aim, limit, folder):
    """Seconds to a plan as fast as the aim (or nothing) and of all, peak bytes, samples/s."""
    code, peak, out, _ = run([options.new, *words_of(case, limit)], folder)
    if code != 0:
        return None, 0, peak, 0
    plan = json.loads(out)
    search, rate = plan["search"], plan["throughput_samples_per_s"]
    times = [one["after_s"] for one in search["improvements"]
             if one["throughput_samples_per_s"] >= AS_FAST * aim]
    after = times[0] if times else search["found_after_s"] if rate >= AS_FAST * aim else None
    return after, search["searched_s"], peak, rate


def case_row(options, case, folder):
    """Nothing where OLD has no plan, or one that is no aim."""
    olds = [old_once(options, case, folder) for _ in range(options.repeat)]
    if not all(good for _, _, good in olds):
        return None
    aim = aim_of(options, case, folder)
    if aim is None:
        return None
    seconds = statistics.median(one[0] for one in olds)
    news = [new_once(options, case, aim, options.limit, folder) for _ in range(options.repeat)]
    short = [new_once(options, case, aim, options.share * seconds, folder)
             for _ in range(options.repeat)]
    afters = [one[0] for one in news if one[0] is not None]
    return {"profile": case[0].stem, "cluster": case[1].stem, "strategy": case[2],
            "old_s": seconds, "old_peak": statistics.median(one[1] for one in olds), "aim": aim,
            "after_s": statistics.median(afters) if len(afters) == len(news) else None,
            "whole_s": statistics.median(one[1] for one in news),
            "peak": statistics.median(one[2] for one in news),
            "samples_per_s": statistics.median(one[3] for one in news),
            "short_s": statistics.median(one[1] for one in short),
            "short_as_fast": statistics.median(one[3] for one in short) >= AS_FAST * aim}


def text_of(row):
    after = f"{row['after_s']:.4f}" if row["after_s"] is not None else "never"
    return "\t".join([row["profile"], row["cluster"], row["strategy"], f"{row['old_s']:.4f}",
                      f"{row['old_peak'] / 1e6:.0f}", f"{row['aim']:.5g}", after,
                      f"{row['whole_s']:.4f}", f"{row['peak'] / 1e6:.0f}",
                      f"{row['samples_per_s']:.5g}", f"{row['short_s']:.4f}",
                      "as fast" if row["short_as_fast"] else "slower"])


def geometric_mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def summary(rows, starts):
    reached = [row for row in rows if row["after_s"]]
    ended = [row for row in rows if row["whole_s"] > 0]
    lines = [f"{len(rows)} cases, {len(reached)} with a plan as fast",
             "time to it: a factor of "
             f"{geometric_mean([r['old_s'] / r['after_s'] for r in reached]):.2f}"
             f" ({geometric_mean([r['old_s'] / r['whole_s'] for r in ended]):.2f} to the end)"]
    short = [row for row in rows if row["short_as_fast"]]
    lines.append(f"with the shorter limit: {len(short)} as fast, a factor of "
                 f"{geometric_mean([r['old_s'] / r['short_s'] for r in short]):.2f}")
    lines.append(f"peaks: {geometric_mean([r['peak'] / r['old_peak'] for r in rows]):.2f}, beyond "
                 "that of --help: " + format(geometric_mean(
                     [max(r["peak"] - starts["new"], 1e5) / max(r["old_peak"] - starts["old"], 1e5)
                      for r in rows]), ".2f"))
    for name in sorted({row["strategy"] for row in reached}):
        of = [r["old_s"] / r["after_s"] for r in reached if r["strategy"] == name]
        lines.append(f"  {name}: {geometric_mean(of):.2f} of {len(of)}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("new", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--limit", type=float, default=5, help="seconds")
    parser.add_argument("--share", type=float, default=1 / 3)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no case begins later")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default="planning_time.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "input").mkdir()
        planning_bounds.analytic_profiles(options.new, folder / "input")
        planning_bounds.made_profiles(folder / "input")
        planning_bounds.made_clusters(folder / "input")
        starts = {which: run([program, "--help"], folder)[1]
                  for which, program in (("old", options.old), ("new", options.new))}
        clusters = (sorted((REPOSITORY / "examples/clusters").glob("*.toml"))
                    + sorted((folder / "input").glob("*.toml")))
        cases = list(itertools.product(sorted((folder / "input").glob("*.json")), clusters,
                                       planning_bounds.STRATEGIES))
        random.Random(options.seed).shuffle(cases)
        rows = []
        begin = time.monotonic()
        for case in cases[:options.cases]:
            if time.monotonic() - begin > options.seconds:
                break
            row = case_row(options, case, folder)
            if row:
                rows.append(row)
                print(text_of(row), flush=True)
    options.output.write_text(json.dumps({"machine": describe_machine(), "starts": starts,
                                          "rows": rows}, indent=1))
    print(summary(rows, starts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
