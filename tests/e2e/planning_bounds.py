#!/usr/bin/env python3
"""Whether `penstock plan` keeps to its limits: a table of plans, and exit 1 where one did not.

    planning_bounds.py build/release/penstock              # a seeded choice, about five minutes
    planning_bounds.py build/release/penstock --plans 2000 # more of them
    planning_bounds.py build/release/penstock --all        # all there are

Profiles are those of the zoo and of the test models from PyTorch (analytic), two that are measured
on this machine, made models with more cuts and layers than can be tried, and those named by
--profile. Clusters are those of examples/clusters, made large ones, and threads of this machine.
Each plan is made under every limit of --limits, in a process whose address space is limited. It
fails if a plan

- takes more than its limit and 2 s, or more memory than its budget and 200 MB
- ends in any other way than with a plan or with the answer that there is none
- is slower than that of a shorter limit by more than --worse; without that option such plans are
  only listed

What takes too long is tried once more, since machines do other things, too.

    planning_bounds.py build/release/penstock --against-names 200  # profiles, clusters and limits

makes other plans: "auto" and every strategy by its name, within the same time. It fails if auto is
slower than one of them by more than 0.5 %, but for those of NEVER_PICKED.

A row of the table: profile, cluster, strategy, limit, seconds, MB at the peak, samples/s, gap.
"""
import argparse
import itertools
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ZOO = ["mlp", "tied_mlp", "lenet5", "vgg_small", "alexnet", "vgg16", "resnet18", "resnet50",
       "inception_v3", "partime", "gpt", "awd_lm", "gnmt8", "gnmt16", "s2vt"]
STRATEGIES = ("auto serial dp mp hybrid gpipe 1f1b 2bw 1f1b-flush eager-1f1b interleaved "
              "interleaved-zb zb-h1 zb-h2 zb-auto zb-v v-half v-min zb-auto-v dualpipe-v dualpipe "
              "chimera compare").split()
NEVER_PICKED = {"2bw": "it changes how weights are kept"}
AS_FAST = 0.995
SECONDS_MORE = 2.0
BYTES_MORE = 200_000_000
ADDRESSES_MORE = 1 << 30  # libraries and stacks, which are not all used


def layer(name, inputs, chance):
    return {"name": name, "kind": "test", "inputs": inputs or [["@0", 0]],
            "forward_ns": chance.randint(100_000, 2_000_000),
            "backward_ns": chance.randint(200_000, 4_000_000), "backward_weight_ns": 100_000,
            "accumulate_ns": 1_000, "step_ns": 2_000, "forward_spread_ns": 0,
            "backward_spread_ns": 0, "output_bytes": [chance.randint(10_000, 4_000_000)],
            "weight_bytes": chance.randint(1_000, 4_000_000),
            "stash_bytes": chance.randint(10_000, 4_000_000)}


def write_profile(path, layers):
    path.write_text(json.dumps({
        "format": "penstock-profile", "version": 1, "model": path.stem, "device": "v100",
        "source": "analytic", "precision": "float32", "batch_size": 8, "samples": 0,
        "copy_bandwidth_bytes_per_s": 240_000_000_000, "num_inputs": 1, "layers": layers,
        "outputs": [[layers[-1]["name"], 0]]}))


def made_profiles(folder):
    """Grids, chains and chains side by side."""
    chance = random.Random(3)
    for side in (8, 20):
        layers = []
        for k in range(side * side):
            inputs = [[f"l{k - 1}", 0]] if k % side else []
            inputs += [[f"l{k - side}", 0]] if k >= side else []
            layers.append(layer(f"l{k}", inputs, chance))
        write_profile(folder / f"grid{side}.json", layers)
    for length in (1_000, 5_000):
        write_profile(folder / f"chain{length}.json",
                      [layer(f"l{k}", [[f"l{k - 1}", 0]] if k else [], chance)
                       for k in range(length)])
    layers = [layer(f"l{y}_{x}", [[f"l{y - 1}_{x}", 0]] if y else [], chance)
              for y in range(40) for x in range(8)]
    layers.append(layer("end", [[f"l39_{x}", 0] for x in range(8)], chance))
    write_profile(folder / "side_by_side.json", layers)


def made_clusters(folder):
    for name, levels in {"flat64": [64], "two256": [8, 32], "three1024": [8, 16, 8],
                         "flat10000": [10_000]}.items():
        text = ""
        for k, count in enumerate(levels):
            text += (f'[[level]]\nname = "level{k}"\ncount = {count}\n'
                     f'bandwidth = "{(10, 40, 80)[len(levels) - 1 - k]}Gbps"\nlatency = "20us"\n')
        text += '[device]\nname = "V100"\nmemory = "16GB"\nspeed = 1.0\n'
        (folder / f"{name}.toml").write_text(text)


def analytic_profiles(penstock, folder):
    """Without libtorch there are none."""
    if not (penstock.parent / "penstock-train").exists():
        return
    models = [(name, name) for name in ZOO]
    models += [(str(path), path.stem) for path in
               sorted((ROOT / "tests/data/imported").glob("*.pt2"))]
    for model, name in models:
        subprocess.run([penstock, "profile", "--model", model, "--batch-size",
                        "64" if name in ZOO else "4", "--analytic", "--device", "v100", "-o",
                        folder / f"{name}.json"], capture_output=True, check=False)


def measured_profiles(penstock, folder):
    """They know more than analytic ones: what each backward pass takes."""
    if not (penstock.parent / "penstock-train").exists():
        return
    for model in ("mlp", "lenet5"):
        subprocess.run([penstock, "profile", "--model", model, "--batch-size", "4", "--samples",
                        "1", "-o", folder / f"measured_{model}.json"], capture_output=True,
                       check=False)


def run(command, address_bytes, folder):
    """Wall seconds, peak bytes, exit code, output."""
    with open(folder / "out", "w+") as out, open(folder / "err", "w+") as err:
        begin = time.monotonic()
        process = subprocess.Popen(
            command, stdout=out, stderr=err,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (address_bytes,) * 2))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begin
        out.seek(0)
        err.seek(0)
        return seconds, usage.ru_maxrss * 1024, process.returncode, out.read(), err.read()


def offences(limit, budget, seconds, peak, code, error):
    if code not in (0, 1):
        yield f"exit {code}: {error.strip()[-200:]}"
    if limit > 0 and seconds > limit + SECONDS_MORE:
        yield f"{seconds - limit:.1f} s more than its limit"
    if peak > budget + BYTES_MORE:
        yield f"{(peak - budget) / 1e6:.0f} MB more than its budget"


def name_of(cluster):
    return cluster.stem if isinstance(cluster, pathlib.Path) else f"{cluster} threads"


def plan_once(options, case, limit, folder):
    profile, cluster, strategy, *samples = case
    where = ["--cluster", cluster] if isinstance(cluster, pathlib.Path) else ["--workers", cluster]
    command = [options.penstock, "plan", "--profile", profile, *where, "--json",
               "--time-limit", f"{round(limit * 1000)}ms", "--memory-budget",
               str(options.budget)]
    command += ["--mini-batch", str(samples[0])] if samples and samples[0] else []
    command += ["--compare"] if strategy == "compare" else ["--strategy", strategy]
    for _ in range(2):
        seconds, peak, code, out, error = run(command, options.budget + ADDRESSES_MORE, folder)
        if seconds <= limit + SECONDS_MORE:
            break
    plan = json.loads(out) if code == 0 else {}
    rate = plan.get("throughput_samples_per_s", 0)
    if samples and samples[0]:
        strategy += f" of {samples[0]}"
    row = [profile.stem, name_of(cluster), strategy, f"{limit:g}", f"{seconds:.2f}",
           f"{peak / 1e6:.0f}", f"{rate:.5g}" if plan else "none",
           f"{plan.get('optimality_gap', 0):.3f}" if plan else "-"]
    print("\t".join(row), flush=True)
    return rate, list(offences(limit, options.budget, seconds, peak, code, error))


def slower_than_names(options, cases, limits, folder):
    """Where auto is slower than a strategy by its name."""
    for k, (profile, cluster) in enumerate(cases):
        limit = limits[k % len(limits)]
        left_out = {"auto", "compare", *NEVER_PICKED}
        if any(layer.get("ties") for layer in json.loads(profile.read_text())["layers"]):
            left_out.add("1f1b")  # auto keeps to strategies that flush
        names = [name for name in STRATEGIES if name not in left_out]
        auto, _ = plan_once(options, (profile, cluster, "auto"), limit, folder)
        for name in names:
            rate, _ = plan_once(options, (profile, cluster, name), limit, folder)
            if auto < AS_FAST * rate:
                yield (f"{profile.stem} {name_of(cluster)} {limit:g} s: auto {auto:.5g} samples/s, "
                       f"{name} {rate:.5g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--plans", type=int, default=80, help="how many, all limits counted")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limits", default="0.5,5", help="seconds, ascending")
    parser.add_argument("--budget", type=int, default=1 << 30, help="bytes")
    parser.add_argument("--against-names", type=int, metavar="CASES")
    parser.add_argument("--worse", type=float, help="as a share")
    parser.add_argument("--profile", type=pathlib.Path, action="append", default=[])
    options = parser.parse_args()
    limits = [float(text) for text in options.limits.split(",")]
    found, slower = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        analytic_profiles(options.penstock, folder)
        measured_profiles(options.penstock, folder)
        made_profiles(folder)
        made_clusters(folder)
        profiles = sorted(folder.glob("*.json")) + options.profile
        clusters = sorted((ROOT / "examples/clusters").glob("*.toml")) + sorted(
            folder.glob("*.toml")) + ["2", "64"]
        if options.against_names:
            pairs = list(itertools.product(profiles, clusters))
            random.Random(options.seed).shuffle(pairs)
            pairs = [pairs[k % len(pairs)] for k in range(options.against_names)]
            found = list(slower_than_names(options, pairs, limits, folder))
            print("\n".join([f"{len(pairs)} cases, {len(found)} where auto is slower", *found]))
            return 1 if found else 0
        # Few samples per step: fewer than there are workers.
        cases = list(itertools.product(profiles, clusters, STRATEGIES, (None, None, 64)))
        random.Random(options.seed).shuffle(cases)
        if not options.all:
            cases = cases[:max(1, options.plans // len(limits))]
        print("profile\tcluster\tstrategy\tlimit\tseconds\tMB\tsamples/s\tgap")
        for case in cases:
            best = 0
            for limit in limits:
                rate, wrong = plan_once(options, case, limit, folder)
                title = f"{case[0].stem} {name_of(case[1])} {case[2]} {limit:g} s: "
                if rate < best * (1 - (options.worse or 0.005)):
                    slower.append(f"{title}{rate:.5g} samples/s, {best:.5g} within less time")
                best = max(best, rate)
                found += [title + text for text in wrong]
    if options.worse is not None:
        found += slower
        slower = []
    plans = len(cases) * len(limits)
    print("\n".join([f"{plans} plans, {len(found)} beyond their limits", *found]))
    if slower:
        print("\n".join([f"{len(slower)} slower than with less time", *slower]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
