#!/usr/bin/env python3
"""Training under random faults: ranks are killed (SIGKILL) and stopped (SIGSTOP) at random times,
by seed. `penstock launch` starts the job again each time. Checked after every fault: it is noticed
in time and the job starts again; after every job: exit code 0, the weights of a training that
nothing disturbed, byte for byte, and no process left.

    run_faults.py --penstock build/release/penstock --faults 200 --seed 1 --json faults.json

Standard library only.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

RANKS = 3
POLL_S = 0.01


class Wrong(Exception):
    """Something did not happen as it must."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--penstock", required=True, type=pathlib.Path)
    parser.add_argument("--faults", type=int, default=6)
    parser.add_argument("--faults-per-job", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--silence", type=float, default=1.5,
                        help="train --silence: seconds after which a stopped rank is lost")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--slack", type=float, default=3,
                        help="seconds that a busy machine may add to the stated times")
    parser.add_argument("--restart-limit", type=float, default=60,
                        help="seconds from a fault to the next start")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    return parser.parse_args()


def train_words(folder, options):
    return ["train", "--model", "mlp", "--width", "64", "--data", "synthetic",
            "--train-samples", "512", "--test-samples", "64", "--lr", "0.01", "--batch-size", "32",
            "--profile", folder / "profile.json", "--strategy", "gpipe", "--workers", RANKS,
            "--micro-batches", "4", "--epochs", options.epochs, "--no-eval",
            "--silence", options.silence]


def run(words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=300, **more)


def final_weights(folder):
    """The newest checkpoint's weights, by the name that `latest` gives."""
    name = (folder / "latest").read_text().split("\n")[0]
    return name, (folder / name / "weights.pt").read_bytes()


def state_of(pid):
    """A letter as in ps; empty when there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def ranks_of(launcher):
    """The processes that a launcher has started, by their rank."""
    found = {}
    try:
        children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    except OSError:
        return found
    for pid in children:
        try:
            variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(b"RANK="):
                found[int(variable[5:])] = int(pid)
    return found


class Output:
    """What a launcher has said so far, from a place in it on."""

    def __init__(self, path):
        self.path = path

    def size(self):
        return self.path.stat().st_size

    def since(self, place):
        with open(self.path, "rb") as file:
            file.seek(place)
            return file.read().decode(errors="replace")


class Job:
    """One training."""

    def __init__(self, options, folder, number):
        self.options = options
        self.saved = folder / f"saved-{number}"
        self.seen = set()
        train = train_words(folder, options) + ["--checkpoint", self.saved]
        launch = [options.penstock, "launch", "-n", RANKS, "--grace", "1", "--max-restarts", "1000"]
        self.error = folder / f"job-{number}.err"
        with open(self.error, "w") as error:
            self.launcher = subprocess.Popen(
                [str(w) for w in launch + ["--"] + train], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=error, start_new_session=True)
        self.output = Output(self.error)

    def is_over(self):
        return self.launcher.poll() is not None

    def ranks(self):
        found = ranks_of(self.launcher.pid)
        self.seen.update(found.values())
        return found

    def wait(self, what, condition, limit_s):
        """The seconds until the condition holds; None when the job ends before."""
        begin = time.monotonic()
        while not condition():
            if self.is_over() and not condition():
                return None
            if time.monotonic() - begin > limit_s:
                raise Wrong(f"{what}: not within {limit_s:g} s; the job said: "
                            f"{self.output.since(0)[-2000:]}")
            time.sleep(POLL_S)
        return time.monotonic() - begin

    def end(self):
        if self.launcher.poll() is None:
            self.launcher.kill()
        self.launcher.wait()


def noticed(job, place, pattern):
    return lambda: re.search(pattern, job.output.since(place)) is not None


def one_fault(job, rng, options):
    """Makes a fault and waits for the next start; None when the job ended before it."""
    started = job.output.size()
    kind = rng.choice(["kill", "stop"])
    begun = job.wait("start", lambda: len(job.ranks()) == RANKS, options.restart_limit)
    # A rank may be killed at any time, also before it is connected. One that is stopped is noticed
    # by its silence, which counts from the connections on.
    if begun is not None and kind != "kill":
        begun = job.wait("training", noticed(job, job.place, r"epoch \d+"), options.restart_limit)
    if begun is None:
        return None
    time.sleep(rng.uniform(0, 3 if kind == "kill" else 1))
    rank = rng.randrange(RANKS)
    pid = job.ranks().get(rank)
    if pid is None or job.is_over():
        return None
    place = job.output.size()
    try:
        os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
    except ProcessLookupError:
        return None
    limit = options.slack + (0 if kind == "kill" else 1.25 * options.silence)
    pattern = r"was killed by signal 9" if kind == "kill" else r"has not answered"
    begin = time.monotonic()
    seen = job.wait(f"{kind} of rank {rank} noticed", noticed(job, place, pattern), limit)
    if seen is None:
        return None
    again = job.wait(f"next start after {kind} of rank {rank}",
                     noticed(job, place, r"restart \d+ of"), options.restart_limit)
    if again is None:
        raise Wrong(f"the job ended after {kind} of rank {rank}: {job.output.since(started)}")
    job.place = job.output.size()
    return {"kind": kind, "rank": rank, "noticed_s": seen,
            "restart_s": time.monotonic() - begin}


def one_job(number, count, rng, options, folder, expected):
    job = Job(options, folder, number)
    job.place = 0
    faults = []
    try:
        while len(faults) < count and not job.is_over():
            fault = one_fault(job, rng, options)
            if fault:
                faults.append(fault)
        job.wait("end", job.is_over, 300)
        if job.launcher.returncode != 0:
            raise Wrong(f"exit code {job.launcher.returncode}: {job.output.since(0)[-2000:]}")
        if final_weights(job.saved) != expected:
            raise Wrong(f"job {number}: other weights than without faults")
        left = [pid for pid in job.seen if state_of(pid) not in ("", "Z", "X")]
        if left:
            raise Wrong(f"job {number}: processes {left} are left running")
        if list(job.saved.glob(".tmp-*")):
            raise Wrong(f"job {number}: temporary files are left: {list(job.saved.glob('.tmp-*'))}")
    finally:
        job.end()
    return faults


def summary(faults):
    result = {}
    by_kind = collections.defaultdict(list)
    for fault in faults:
        by_kind[fault["kind"]].append(fault)
    for kind, of_kind in sorted(by_kind.items()):
        result[kind] = {"count": len(of_kind)}
        for key in ("noticed_s", "restart_s"):
            values = [fault[key] for fault in of_kind]
            result[kind][key] = {"median": statistics.median(values), "most": max(values)}
    return result


def all_faults(options, folder):
    rng = random.Random(options.seed)
    done = run([options.penstock, "profile", "--model", "mlp", "--width", "64", "--batch-size", "8",
                "--samples", "1", "-o", folder / "profile.json"])
    if done.returncode != 0:
        raise Wrong(f"profile: {done.stderr}")
    begin = time.monotonic()
    done = run([options.penstock, *train_words(folder, options),
                "--checkpoint", folder / "undisturbed"])
    if done.returncode != 0:
        raise Wrong(f"the undisturbed training: {done.stderr}")
    print(f"undisturbed: {time.monotonic() - begin:.1f} s in one process", flush=True)
    expected = final_weights(folder / "undisturbed")
    faults = []
    jobs = 0
    while len(faults) < options.faults:
        count = min(options.faults_per_job, options.faults - len(faults))
        of_job = one_job(jobs, count, rng, options, folder, expected)
        jobs += 1
        faults += of_job
        print(f"job {jobs}: {len(of_job)} faults, {len(faults)} so far, the weights are equal",
              flush=True)
        if jobs > 3 * options.faults + 3:
            raise Wrong(f"{jobs} jobs ended before {options.faults} faults: raise --epochs")
    return {"seed": options.seed, "jobs": jobs, "silence_s": options.silence,
            "summary": summary(faults), "faults": faults}


def main():
    options = arguments()
    options.penstock = options.penstock.resolve()
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as name:
        folder = pathlib.Path(name)
        try:
            result = all_faults(options, folder)
        except Wrong as wrong:
            print(f"FAILED (seed {options.seed}): {wrong}", file=sys.stderr)
            return 1
    for kind, values in result["summary"].items():
        noticed, again = values["noticed_s"], values["restart_s"]
        print(f"{kind}: {values['count']} faults; noticed after {noticed['median']:.2f} s (median),"
              f" {noticed['most']:.2f} s at most; started again after {again['median']:.2f} s, "
              f"{again['most']:.2f} s at most")
    if options.json:
        import machine
        result["machine"] = machine.describe_machine()
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
