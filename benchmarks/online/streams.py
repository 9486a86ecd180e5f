"""Runs `penstock stream` and reads what it prints; watches its memory from outside."""

import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import time


class Failed(RuntimeError):
    """A command did not end as expected; the text says which one and why."""


# PARTIME's networks: the basic one, and one with three times as much of each property.
MODELS = {
    "basic": {"width": 16, "depth": 10, "kernel": 5},
    "layers x3": {"width": 16, "depth": 30, "kernel": 5},
    "features x3": {"width": 48, "depth": 10, "kernel": 5},
    "kernel x3": {"width": 16, "depth": 10, "kernel": 15},
}


def model_options(model):
    return [word for key in ("width", "depth", "kernel") for word in (f"--{key}", str(model[key]))]


class Tool:
    """The program to measure, and a folder for what it writes."""

    def __init__(self, penstock, folder):
        self.penstock, self.folder = str(penstock), pathlib.Path(folder)
        self.plans = 0

    def call(self, *words):
        """Standard output."""
        done = subprocess.run([self.penstock, *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"penstock {' '.join(map(str, words))}: exit code {done.returncode}: "
                         f"{done.stderr.strip()[-300:]}")
        return done.stdout

    def stream(self, *words):
        """The run's JSON, and `others`: the share of all cores that other programs used."""
        before, began = used_s(), time.monotonic()
        run = json.loads(self.call("stream", "--json", *words))
        own, whole = (b - a for a, b in zip(before, used_s()))
        capacity = (time.monotonic() - began) * os.cpu_count()
        return {**run, "others": max(0.0, whole - own) / capacity}

    def at_once(self, count, *words):
        """So many of the same run beside each other: the sum of their rates, and `others`."""
        command = [self.penstock, "stream", "--json", *map(str, words)]
        before, began = used_s(), time.monotonic()
        children = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     text=True) for _ in range(count)]
        outputs = [child.communicate()[0] for child in children]
        if any(child.returncode != 0 for child in children):
            raise Failed(f"{' '.join(command)}: exit code {children[0].returncode}")
        own, whole = (b - a for a, b in zip(before, used_s()))
        capacity = (time.monotonic() - began) * os.cpu_count()
        return {"fps": sum(json.loads(output)["fps"] for output in outputs),
                "others": max(0.0, whole - own) / capacity}

    def plan(self, stages, *words):
        """The file of the plan that `penstock stream` makes; it saves it with the weights. Planning
        once lets runs that are compared use the same split."""
        self.plans += 1
        folder = self.folder / f"plan-{self.plans}"
        how = ["--strategy", "serial"] if stages == 1 else ["--workers", stages]
        self.stream(*words, *how, "--frames", 2, "--checkpoint", folder)
        saved = next(folder.glob("step-*/plan.json"))
        path = self.folder / f"plan-{self.plans}.json"
        path.write_text(saved.read_text())
        shutil.rmtree(folder)
        return path

    def with_weights(self, plan, weights):
        """A copy of the plan under another weight policy."""
        document = {**json.loads(plan.read_text()), "weights": weights}
        path = plan.with_name(f"{plan.stem}-{weights}.json")
        path.write_text(json.dumps(document))
        return path

    def watched(self, every_s, *words):
        """(the run's JSON, [{seconds, rss_bytes, faults}, ...] of the process that learns)."""
        command = [self.penstock, "stream", "--json", *map(str, words)]
        began, samples = time.monotonic(), []
        with open(self.folder / "watched.err", "w+") as errors:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            try:
                while child.poll() is None:
                    sample = memory_of(learner(child.pid))
                    if sample:
                        samples.append({"seconds": time.monotonic() - began, **sample})
                    time.sleep(every_s)
                out = child.stdout.read()
            finally:
                if child.poll() is None:
                    child.terminate()
                    child.wait()
            if child.returncode != 0:
                errors.seek(0)
                raise Failed(f"{' '.join(command)}: exit code {child.returncode}: "
                             f"{errors.read().strip()[-300:]}")
        return json.loads(out), samples


def used_s():
    """Seconds of processor time: of this process's ended children, and of the whole machine."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open("/proc/stat") as file:
        fields = [int(word) for word in file.readline().split()[1:9]]
    idle = fields[3] + fields[4]
    return own.ru_utime + own.ru_stime, (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def learner(pid):
    """The process that learns: the program itself or the one that it started."""
    try:
        tasks = pathlib.Path(f"/proc/{pid}/task")
        children = [word for task in tasks.iterdir()
                    for word in (task / "children").read_text().split()]
        return int(children[0]) if children else pid
    except (OSError, ValueError):
        return pid


def memory_of(pid):
    """Resident memory and the page faults so far; None when the process has ended."""
    try:
        # Behind the name, which may hold blanks: fields from the third on.
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return {"rss_bytes": int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
            "faults": int(fields[7]) + int(fields[9])}


def after_warm_up(samples, warm_up_s, fps):
    """Growth of resident memory and page faults per frame, behind the warm-up; None where too
    little is left. Growth is the median of the last third minus that of the first third."""
    kept = [s for s in samples if s["seconds"] >= warm_up_s]
    if len(kept) < 3 or fps <= 0:
        return None
    third = max(1, len(kept) // 3)
    first, last = ([s["rss_bytes"] for s in part] for part in (kept[:third], kept[-third:]))
    seconds = kept[-1]["seconds"] - kept[0]["seconds"]
    return {"rss_first_bytes": statistics.median(first), "rss_last_bytes": statistics.median(last),
            "rss_growth_bytes": statistics.median(last) - statistics.median(first),
            "rss_peak_bytes": max(s["rss_bytes"] for s in kept), "seconds": seconds,
            "faults_per_frame": (kept[-1]["faults"] - kept[0]["faults"]) / (seconds * fps)}


def stage_ns(stage):
    """What a stage computes per frame."""
    return stage["forward_ns"] + stage["backward_ns"] + stage["step_ns"]


def slowest_ns(run):
    return max(stage_ns(stage) for stage in run["stages"])


def overhead_ns(run):
    """Of a tick: the time per frame minus what the slowest stage computes."""
    return 1e9 / run["fps"] - slowest_ns(run)


def bound_s(run, queue):
    """The latency that a pipeline of these stages should keep: a tick for every stage and every
    frame that may wait."""
    return (len(run["stages"]) + queue) / run["fps"]


def short(run):
    """What of a run's JSON is kept among results."""
    keys = ("frames_in", "processed", "dropped", "fps", "predicted_fps", "latency_p50_ns",
            "latency_p99_ns", "latency_max_ns", "deadline_ns", "deadline_misses", "loss",
            "accuracy", "elapsed_ns", "replans", "stages")
    return {key: run[key] for key in keys}
