#!/usr/bin/env python3
"""What being watched costs a training: pairs of runs, one of them with scrapes and two logs.

    benchmarks/operating/scrapes.py PENSTOCK [--pairs N] [--scrapes N] [--steps N]

Each pair trains the same plan with the same seed, in turns. The watched run has --metrics,
--log-format json, --health-file and --run-folder; --scrapes requests to /metrics are spread over
it. Losses must be equal. Prints the ratio of throughputs and of processor times, and what the
server's own thread took for each scrape, which other programs on the machine do not change.
"""

import argparse
import json
import re
import resource
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path


def server_seconds(process):
    """On a processor, of the server's thread; None: it is not there."""
    for task in Path(f"/proc/{process}/task").iterdir():
        if (task / "comm").read_text().startswith("MHD"):
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    return None


def train(arguments, folder, watched):
    command = [
        arguments.penstock, "train", "--model", "mlp", "--width", str(arguments.width),
        "--data", "synthetic", "--train-samples", "3200", "--batch-size", "64",
        "--epochs", "100000", "--steps", str(arguments.steps), "--no-eval",
        "--strategy", "1f1b-flush", "--workers", "2", "--json",
        "--profile-cache", folder + "/profiles",
    ]  # fmt: skip
    if watched:
        run = tempfile.mkdtemp(dir=folder)
        command += ["--metrics", "0", "--log-format", "json", "--health-file", run + "/health",
                    "--run-folder", run + "/run"]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = Path(folder) / "log"
    with log.open("w") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
        scrapes = 0
        url = server = None
        while watched and process.poll() is None and scrapes < arguments.scrapes:
            if url is None:
                found = re.search(r"metrics at (http\S+)\"", log.read_text())
                url = found and found.group(1)
                time.sleep(0.01)
                continue
            try:
                text = urllib.request.urlopen(url).read().decode()
            except OSError:
                break
            if 'phase="training"} 1' not in text:
                time.sleep(0.02)
                continue
            scrapes += 1
            if scrapes % 50 == 0:
                server = server_seconds(process.pid)
            time.sleep(arguments.seconds / arguments.scrapes)
        out = process.communicate()[0]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        raise SystemExit(log.read_text())
    result = json.loads(out)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    each = 1e6 * server / (scrapes // 50 * 50) if server else float("nan")
    return result["losses"], result["throughput_samples_per_s"], cpu, scrapes, each


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("penstock")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--scrapes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=6, help="over which scrapes are spread")
    arguments = parser.parse_args()
    speeds, times = [], []
    with tempfile.TemporaryDirectory() as folder:
        train(arguments, folder, False)  # measures the profile
        for pair in range(arguments.pairs):
            order = (False, True) if pair % 2 == 0 else (True, False)
            runs = {watched: train(arguments, folder, watched) for watched in order}
            assert runs[False][0] == runs[True][0], "other losses"
            speeds.append(runs[True][1] / runs[False][1])
            times.append(runs[True][2] / runs[False][2])
            print(f"pair {pair + 1}: {runs[True][3]} scrapes, speed x{speeds[-1]:.4f}, "
                  f"processor time x{times[-1]:.4f}, {runs[True][4]:.0f} us of the server's thread "
                  f"for each, {runs[True][2]:.1f} s of the process", flush=True)  # fmt: skip
    for name, values in (("speed", speeds), ("processor time", times)):
        print(f"{name}: median x{statistics.median(values):.4f}, "
              f"{min(values):.4f} to {max(values):.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
