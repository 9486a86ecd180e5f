"""What a measurement says about the machine it ran on."""

import datetime
import os
import pathlib
import platform
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def describe_machine():
    cpu = "unknown"
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    commit = subprocess.run(["git", "-C", REPOSITORY, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True)
    return {
        "cpu": cpu, "cores": os.cpu_count(), "load_before": os.getloadavg()[0],
        "kernel": platform.release(), "python": platform.python_version(),
        "commit": commit.stdout.strip() or "none",
        "date": datetime.datetime.now().isoformat(timespec="seconds")
    }
