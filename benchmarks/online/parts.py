"""The experiments: each takes a Bench and returns what goes into results.json."""

import json
import math
import statistics

from streams import (MODELS, after_warm_up, bound_s, model_options, overhead_ns, short,
                     stage_ns)

QUEUE = 2  # the command's default
# No rate that is learned with may become infinite in long runs.
SAFE = ["--lr", "0.0003"]
SCALING_SIZES = {
    "basic": ["40x30", "80x60", "160x120"],
    "layers x3": ["24x18", "40x30", "80x60"],
    "features x3": ["24x18", "40x30", "56x42"],
    "kernel x3": ["24x18", "40x30", "56x42"],
}
MOST_MISSES = 0.001
# Share of all cores that other programs may use in a calm round.
MOST_OTHERS = 0.08
# A long run that misses too many frames is followed by one at so much of its rate.
SLOWER = 0.9
QUALITY = {"width": 8, "depth": 10, "kernel": 3}
RATES = (0.003, 0.01, 0.03, 0.1)
CHOOSING_SEEDS = (1, 2)
POLICIES = ("current", "latest", "stash")


class Bench:

    def __init__(self, args, tool, log):
        self.args, self.tool, self.log = args, tool, log


def is_calm(round_):
    return round_["others"] <= MOST_OTHERS


def calm_rounds(measure, wanted):
    """Rounds until so many of them were calm: other programs used little of the machine. Gives up
    after twice as many; all rounds are kept."""
    rounds = []
    while len(rounds) < 2 * wanted and sum(map(is_calm, rounds)) < wanted:
        rounds.append(measure())
    return rounds


def used(rounds):
    """The calm rounds; all of them where none was calm."""
    return [r for r in rounds if is_calm(r)] or rounds


def pairs(bench, model, size, seconds, wanted):
    """Rounds of one stage, of two, and of two programs of one stage each, with a plan for each;
    long enough for fifty frames, so that filling the pipeline does not count."""
    tool, common = bench.tool, [*model_options(model), *SAFE, "--size", size]
    plans = {stages: tool.plan(stages, *common) for stages in (1, 2)}
    alone = json.loads(plans[1].read_text())["throughput_samples_per_s"]
    seconds = max(seconds, min(10, 50 / alone))

    def measure():
        runs = {}
        for stages, plan in plans.items():
            run = tool.stream(*common, "--plan", plan, "--seconds", seconds)
            runs[stages] = {"fps": run["fps"], "predicted_fps": run["predicted_fps"],
                            "stage_ns": [stage_ns(stage) for stage in run["stages"]],
                            "overhead_ns": overhead_ns(run), "others": run["others"]}
        # What the cores give to programs that have nothing to do with each other.
        both = tool.at_once(2, *common, "--plan", plans[1], "--seconds", seconds)
        return {"one": runs[1], "two": runs[2], "ratio": runs[2]["fps"] / runs[1]["fps"],
                "apart": both["fps"] / runs[1]["fps"],
                "others": max(both["others"], *(run["others"] for run in runs.values()))}

    return calm_rounds(measure, wanted)


def scaling(bench):
    quick = bench.args.quick
    models = {"basic": MODELS["basic"]} if quick else MODELS
    found = []
    for name, model in models.items():
        for size in ["16x12"] if quick else SCALING_SIZES[name]:
            rounds = pairs(bench, model, size, 0.5 if quick else bench.args.seconds,
                           1 if quick else bench.args.rounds)
            bench.log(f"  {name} {size}: {statistics.median(r['ratio'] for r in used(rounds)):.2f} "
                      f"({len(used(rounds))} of {len(rounds)} rounds)")
            found.append({"model": name, **model, "size": size, "rounds": rounds})
    return {"cases": found, "target": 1.8}


def smallest_maximum(times, stages):
    """The least possible time of the slowest of so many groups of neighbours."""
    sums = [0]
    for time in times:
        sums.append(sums[-1] + time)
    best = [0] + [math.inf] * len(times)
    for _ in range(stages):
        best = [0] + [min(max(best[cut], sums[end] - sums[cut]) for cut in range(end))
                      for end in range(1, len(times) + 1)]
    return best[-1]


def simulated(bench):
    """Eight workers with a core each exist in the simulator only."""
    workers, tool = 8, bench.tool
    cases = [("basic", MODELS["basic"], "80x60"), ("layers x3", MODELS["layers x3"], "80x60"),
             ("features x3", MODELS["features x3"], "80x60"),
             ("kernel x3", MODELS["kernel x3"], "80x60"),
             ("layers x4", {**MODELS["basic"], "depth": 40}, "80x60")]
    if bench.args.quick:
        cases = [("basic", MODELS["basic"], "16x12")]
    found = []
    for name, model, size in cases:
        width, height = size.split("x")
        profile, plan = tool.folder / "simulated-profile.json", tool.folder / "simulated-plan.json"
        tool.call("profile", "--model", "partime", *model_options(model), "--batch-size", 1,
                  "--input", f"3x{height}x{width}", "--concurrency", 1, "-o", profile)
        tool.call("plan", "--profile", profile, "--workers", workers, "--strategy", "online",
                  "--straight", "--weights", "current", "--micro-batches", 1, "-o", plan)
        run = json.loads(tool.call("simulate", "--plan", plan, "--mini-batches", 2000, "--json"))
        layers = json.loads(profile.read_text())["layers"]
        times = [layer["forward_ns"] + layer["backward_ns"] + layer["step_ns"] for layer in layers]
        planned = json.loads(plan.read_text())
        stages = [stage_ns(stage) for stage in planned["stages"]]
        ideal = workers / sum(times) * 1e9
        found.append({
            "model": name, **model, "size": size, "fps": run["throughput_samples_per_s"],
            "ideal_fps": ideal, "slowest_fps": 1e9 / max(stages), "stage_ns": stages,
            "allowed_fps": 1e9 / smallest_maximum(times, workers), "layers": len(times)
        })
        bench.log(f"  {name}: {found[-1]['fps'] / ideal:.3f} of the ideal")
    return {"cases": found, "workers": workers, "target": 0.95}


def free_run(bench, common, seconds):
    return bench.tool.stream(*common, "--seconds", seconds)


def is_sustained(run):
    return run["dropped"] == 0 and run["deadline_misses"] <= MOST_MISSES * run["processed"]


def highest_rate(probe, low, high, steps):
    """Bisects between a rate that is sustained and one that is not; `probe(rate)` says which. Falls
    below `low` if that one fails, and gives None at a sixteenth of it."""
    floor = low / 16
    while not probe(low):
        low, high = low / 2, low
        if low < floor:
            return None
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if probe(middle) else (low, middle)
    return low


def case_of(bench, stages=2):
    """The stream of `sustain` and `overload`: the basic network on 80x60, planned once."""
    size = "16x12" if bench.args.quick else "80x60"
    common = [*model_options(MODELS["basic"]), *SAFE, "--size", size]
    plan = bench.tool.plan(stages, *common)
    return [*common, "--plan", plan], size


def find_rate(bench, common, tries):
    quick = bench.args.quick
    seconds = 0.5 if quick else 4
    best = max(free_run(bench, common, seconds)["fps"] for _ in range(1 if quick else 3))

    def probe(rate):
        # What fails beside other programs is tried again.
        for _ in range(3):
            run = bench.tool.stream(*common, "--source-fps", round(rate, 2), "--seconds", seconds)
            tries.append({"rate": rate, "dropped": run["dropped"], "processed": run["processed"],
                          "misses": run["deadline_misses"], "others": run["others"],
                          "sustained": is_sustained(run)})
            if tries[-1]["sustained"] or is_calm(run):
                break
        return tries[-1]["sustained"]

    return best, highest_rate(probe, 0.6 * best, 1.1 * best, 2 if quick else 5)


def sustain(bench):
    """The highest rate in short runs, then long runs below it, each slower than the one before,
    until one has few enough late and dropped frames."""
    common, size = case_of(bench)
    tries = []
    best, rate = find_rate(bench, common, tries)
    if rate is None:
        return {"size": size, "best_fps": best, "tries": tries, "rate": None}
    seconds = 3 if bench.args.quick else 60 * bench.args.minutes
    asked = round(rate * bench.args.share, 2)
    bench.log(f"  {rate:.1f} frames/s in short runs, {best:.1f} at most")
    long_runs = []
    while True:
        bench.log(f"  {asked} for {seconds:g} s")
        run, samples = bench.tool.watched(0.2 if bench.args.quick else 1, *common, "--source-fps",
                                          asked, "--seconds", seconds)
        missed = run["deadline_misses"] + run["dropped"]
        long_runs.append({"asked_fps": asked, "processed": run["processed"],
                          "dropped": run["dropped"], "misses": run["deadline_misses"]})
        if missed <= MOST_MISSES * run["frames_in"] or len(long_runs) >= bench.args.long_runs:
            break
        asked = round(asked * SLOWER, 2)
    warm_up = 1 if bench.args.quick else min(20, seconds / 4)
    return {"size": size, "best_fps": best, "tries": tries, "rate": rate, "asked_fps": asked,
            "share": bench.args.share, "run": short(run), "long_runs": long_runs,
            "memory": after_warm_up(samples, warm_up, run["fps"]),
            "samples": samples[::max(1, len(samples) // 120)],
            "bound_s": (len(run["stages"]) + QUEUE) / asked}


def overload(bench):
    """A stream of twice the best rate and an unlimited one take turns."""
    common, size = case_of(bench)
    quick = bench.args.quick
    seconds = 0.5 if quick else 2 * bench.args.seconds

    def measure():
        best = free_run(bench, common, seconds)
        rate = 2 * best["fps"]
        run = bench.tool.stream(*common, "--source-fps", round(rate, 2), "--seconds", seconds)
        return {"best_fps": best["fps"], "rate": rate, **short(run), "bound_s": bound_s(run, QUEUE),
                "ratio": run["fps"] / best["fps"], "others": max(best["others"], run["others"])}

    rounds = calm_rounds(measure, 1 if quick else bench.args.rounds)
    return {"size": size, "rounds": rounds}


def overhead(bench):
    """Frames so small that the rest shows: time per frame minus what the slowest stage computes."""
    found = []
    quick = bench.args.quick
    for size in ["8x8"] if quick else ["8x8", "16x12", "32x24"]:
        rounds = pairs(bench, {"width": 8, "depth": 10, "kernel": 3}, size,
                       0.5 if quick else bench.args.seconds, 1 if quick else bench.args.rounds)
        found.append({"size": size, "rounds": rounds})
    return {"cases": found, "target_ns": 50_000}


def best_rate_of(runs):
    """The learning rate whose worst run has the most right; rates that diverged in any run do not
    count."""
    worst = {}
    for run in runs:
        found = -1 if run["loss"] is None else run["accuracy"]
        worst[run["lr"]] = min(found, worst.get(run["lr"], 1))
    best = max(worst, key=worst.get)
    return best if worst[best] >= 0 else None


def dropping(tool, words, frames, stages, pace):
    """A learner that can take one frame in so many. Its own rate changes with what else runs on the
    machine: the stream's is adapted until the share is within a fifth of that, in five runs at
    most; the closest one counts."""
    tried = []
    for _ in range(5):
        fps = stages * pace["fps"]
        run = tool.stream(*words, "--source-fps", round(fps, 1), "--seconds",
                          round(frames / fps, 3))
        share = stages * run["processed"] / max(1, run["frames_in"])
        pace["fps"] *= min(2.0, max(0.5, share))
        tried.append((abs(math.log(max(share, 1e-3))), run))
        if 0.8 <= share <= 1.2:
            break
    return min(tried, key=lambda entry: entry[0])[1]


def quality(bench):
    """What is learned from N frames of a stream at the rate of S stages. A pipeline of S stages
    gets every frame, without regard to time, because S stages on cores of their own would keep that
    rate. One sequential learner gets the same stream in real time, so fast that it can take one
    frame in S; its queue drops the others."""
    tool, quick = bench.tool, bench.args.quick
    frames = 200 if quick else bench.args.frames
    depths = (2,) if quick else (1, 2, 4, 8)
    rates = RATES[:2] if quick else RATES
    seeds = range(11, 12) if quick else range(11, 11 + bench.args.seeds)
    common = [*model_options(QUALITY), "--size", "32x24"]
    serial = tool.plan(1, *common)
    alone = tool.stream(*common, "--plan", serial, "--frames", frames, "--lr", 0.001)["fps"]
    runs, pace = [], {"fps": alone}

    def learn(method, stages, plan, lr, seed):
        words = [*common, "--plan", plan, "--lr", lr, "--seed", seed]
        if method == "sequential" and stages > 1:
            run = dropping(tool, words, frames, stages, pace)
        else:
            run = tool.stream(*words, "--frames", frames)
        runs.append({"method": method, "stages": stages, "lr": lr, "seed": seed,
                     "loss": run["loss"], "accuracy": run["accuracy"],
                     "processed": run["processed"], "frames_in": run["frames_in"]})
        return runs[-1]

    chosen = []
    for stages in depths:
        methods = {"sequential": serial}
        if stages > 1:
            plan = tool.plan(stages, *common)
            methods.update({policy: tool.with_weights(plan, policy) for policy in POLICIES})
        for method, plan in methods.items():
            lr = best_rate_of([learn(method, stages, plan, lr, seed)
                               for lr in rates for seed in CHOOSING_SEEDS])
            if lr is None:
                chosen.append({"method": method, "stages": stages, "lr": None})
                continue
            measured = [learn(method, stages, plan, lr, seed) for seed in seeds]
            chosen.append({
                "method": method, "stages": stages, "lr": lr,
                "accuracy": [run["accuracy"] for run in measured],
                "loss": [run["loss"] for run in measured],
                "seen": statistics.mean(run["processed"] / max(1, run["frames_in"])
                                        for run in measured)
            })
            bench.log(f"  {stages} stages, {method}: {statistics.mean(chosen[-1]['accuracy']):.4f} "
                      f"at {lr}")
    return {"frames": frames, "size": "32x24", **QUALITY, "rates": rates, "seeds": list(seeds),
            "serial_fps": alone, "chosen": chosen, "runs": runs}


ALL = {"scaling": scaling, "sustain": sustain, "overload": overload, "quality": quality,
       "overhead": overhead, "simulated": simulated}
