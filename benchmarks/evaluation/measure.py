"""The experiments: what each runs, and the plain values that it returns for tables and plots.

    found = throughput(bench)      # bench: experiments.Bench of the network laboratory
    found["runs"]                  # one dictionary per model, rate, method and round
"""

import json
import os
import pathlib
import re
import subprocess
import threading

import formulas
import methods as catalogue
import quantities
from experiments import (Failed, cluster_file, job_link, server_variables, workers_of)
from netlab import Lab, LabError, Link


class PeakMemory:
    """The largest resident memory of the ranks that a laboratory starts meanwhile, in bytes and in
    the order of their start; looked up four times a second, so the very end may be missed. Linux
    keeps the peak itself (VmHWM)."""

    def __init__(self, lab):
        self.lab = lab
        self.first = len(lab.started)
        self.peaks = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def watch(self):
        while not self.ended.wait(0.25):
            for rank in self.lab.started[self.first:]:
                try:
                    text = pathlib.Path(f"/proc/{rank.process.pid}/status").read_text()
                except OSError:
                    continue
                found = re.search(r"VmHWM:\s+(\d+) kB", text)
                if found:
                    peak = int(found.group(1)) * 1024
                    self.peaks[rank.name] = max(peak, self.peaks.get(rank.name, 0))

    def of_ranks(self):
        return list(self.peaks.values())


def help_text(bench):
    if not hasattr(bench, "train_options"):
        bench.train_options = subprocess.run([bench.args.penstock, "train", "--help"],
                                             capture_output=True, text=True).stdout
    return bench.train_options


def make_plan(bench, profile, cluster, method, name):
    path = bench.folder / f"{name}.plan.json"
    plan = bench.penstock("plan", "--profile", profile, "--cluster", cluster, *method.plan, "-o",
                          path)
    return plan, path


def planned(bench, lab, model, method, plan, path, seconds, env=None, servers=0):
    """Trains by a plan for about that long. What every experiment wants to know of a run."""
    batch = plan["micro_batch_size"] * plan["micro_batches"]
    steps = quantities.steps_of(seconds, batch / plan["throughput_samples_per_s"])
    warmup = 1 if steps < 8 else 2
    options = catalogue.train_options(method, help_text(bench))
    # What flushes takes part in a step with all its micro-batches; the plan has their number.
    command = bench.train(model.options, batch, steps + warmup, "--plan", path, *options,
                          warmup=warmup)
    command[command.index("--data") + 1] = model.data
    hosts = list(range(workers_of(plan) + servers))
    with PeakMemory(lab) as memory:
        report, grown = bench.job(lab, hosts, command, env,
                                  seconds=60 + 20 * seconds + 5 * steps * batch /
                                  plan["throughput_samples_per_s"])
    samples = batch * (steps + warmup)
    return {
        "config": plan["config"], "strategy": plan["strategy"], "weights": plan.get("weights"),
        "layers": [stage["layers"] for stage in plan["stages"]], "samples_per_step": batch,
        "steps": steps, "predicted": plan["throughput_samples_per_s"],
        "measured": report["throughput_samples_per_s"],
        "wire_bytes_per_sample": sum(host.sent for host in grown) / samples,
        "tensor_bytes_per_sample": sum(report["bytes_sent"]) / samples,
        "peak_bytes_of_ranks": memory.of_ranks(),
        "predicted_memory_bytes": [stage["memory_bytes"] for stage in plan["stages"]],
        "idle_share": report.get("idle_share")
    }


def computing_seconds(profile):
    """Of one micro-batch on one worker."""
    layers = json.loads(pathlib.Path(profile).read_text())["layers"]
    return sum(layer["forward_ns"] + layer["backward_ns"] for layer in layers) / 1e9


def throughput(bench):
    """Every method on two hosts, for all models and rates. Methods take turns within a round, and
    another one begins each round."""
    args = bench.args
    chosen = [catalogue.METHODS[name] for name in args.methods]
    runs, skipped, models = [], [], {}
    for method in chosen:
        why = catalogue.missing(method, help_text(bench))
        if why:
            skipped.append({"method": method.name, "why": why})
    able = [method for method in chosen if not catalogue.missing(method, help_text(bench))]
    for number in range(args.rounds):
        for model in (catalogue.MODELS[name] for name in args.models):
            profile, weights = bench.profile(model.options, model.micro_batch)
            compute = computing_seconds(profile)
            models.setdefault(model.name, []).append(
                {"weight_bytes": weights, "compute_s": compute, "micro_batch": model.micro_batch})
            for rate in args.rates:
                for hosts in (2, 3):
                    here = [m for m in able if (m.hosts or 2) == hosts]
                    if hosts == 3:  # what the three-worker plans are compared with
                        if not here or model.name != args.models[0] or rate != min(args.rates):
                            continue
                        here += [m for m in able if m.name in ("dp", "1f1b-straight",
                                                                 "1f1b-planned")]
                    runs += round_of(bench, model, profile, rate, hosts, here, number)
    return {"runs": runs, "skipped": skipped, "models": models}


def round_of(bench, model, profile, rate, hosts, chosen, number):
    found = []
    with Lab([Link(rate)] * hosts) as lab:
        cluster = cluster_file(bench, hosts, job_link(bench, lab))
        start = number % len(chosen)
        for method in chosen[start:] + chosen[:start]:
            where = {"model": model.name, "rate": rate, "hosts": hosts, "method": method.name,
                     "round": number}
            plan, path = make_plan(bench, profile, cluster, method, method.name)
            try:
                run = planned(bench, lab, model, method, plan, path, bench.args.seconds)
            except Failed as failure:
                bench.log(f"    failed: {failure}")
                found.append({**where, "failed": str(failure).splitlines()[0][:200]})
                continue
            found.append({**where, **run})
            bench.log(f"    {model.name}, {formulas.show_rate(rate)}, {hosts} hosts, {method.name} "
                      f"{run['config']}: {run['measured']:.0f} samples/s, predicted "
                      f"{run['predicted']:.0f}")
    return found


def servers(bench):
    """The summation service of BytePS: data parallel steps of 4 workers with 0, 2 and 4 hosts that
    only add, and of 2 workers with 0 and 2, against the formula. One sample per worker, so that a
    step is nearly all communication; the computation is subtracted."""
    args = bench.args
    rate = min(args.rates)
    model = catalogue.Model("mlp", ("--model", "mlp", "--width", "256" if args.quick else "2048"),
                            1, "")
    profile, weights = bench.profile(model.options, 1)
    method = catalogue.Method("summation", "BytePS", "OSDI 2020", (), ("--sync", "summation"))
    shapes = [(2, 0), (2, 2)] if args.quick else [(2, 0), (2, 1), (2, 2), (4, 0), (4, 2), (4, 4)]
    found = []
    for number in range(args.rounds):
        start = number % len(shapes)
        for workers, helpers in shapes[start:] + shapes[:start]:
            expected = formulas.synchronisation("summation", workers, helpers, weights)
            plan_path = bench.data_parallel(profile, workers)
            steps = 2
            command = bench.train(model.options, workers, steps + 1, "--plan", plan_path,
                                  *method.train, warmup=1)
            with Lab([Link(rate)] * (workers + helpers)) as lab:
                report, grown = bench.job(lab, list(range(workers + helpers)), command,
                                          server_variables(helpers), seconds=120)
            own = max(sum(worker["measured"][key]
                          for key in ("forward_ns", "backward_ns", "step_ns"))
                      for worker in report["workers"]) / 1e9
            step = workers / report["throughput_samples_per_s"]
            found.append({
                "workers": workers, "servers": helpers, "round": number, "rate": rate,
                "weight_bytes": weights, "predicted_s": expected.seconds(rate / 8),
                "step_s": step, "computation_s": own, "measured_s": step - own,
                "worker_bytes": expected.worker_bytes,
                "busiest_host_bytes": max(host.sent for host in grown) / (steps + 1)
            })
            bench.log(f"    {workers} workers, {helpers} servers: {step - own:.3f} s, predicted "
                      f"{found[-1]['predicted_s']:.3f} s")
    return {"runs": found}


# Of the run to an accuracy. The learning rate falls to zero, and both methods have the same.
ACCURACY = {"target": 0.88, "width": 512, "depth": 3, "batch": 128, "epochs": 5, "lr": 0.03}
ACCURACY_METHODS = ("dp", "1f1b-straight")


def fashion_mnist(bench):
    """Why there is no data set, or None."""
    folder = bench.args.data_folder
    probe = subprocess.run(
        [bench.args.penstock, "train", "--model", "mlp", "--width", "8", "--strategy", "serial",
         "--train-samples", "64", "--test-samples", "16", "--json",
         *(("--data-folder", folder) if folder else ())],
        capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if probe.returncode == 0:
        return None
    return probe.stderr.strip().splitlines()[-1] if probe.stderr.strip() else "no data set"


def accuracy(bench):
    """Time to an accuracy on Fashion-MNIST, on two hosts with the slowest links, where the model
    has wide dense layers: data parallelism against 1F1B with weight stashing."""
    args = bench.args
    why = fashion_mnist(bench)
    if why:
        return {"skipped": why}
    wanted = dict(ACCURACY)
    if args.quick:
        wanted.update(target=0.3, width=64, epochs=2, samples=2560)
    rate = min(args.rates)
    model = catalogue.Model("mlp", ("--model", "mlp", "--width", str(wanted["width"]), "--depth",
                                    str(wanted["depth"])), wanted["batch"], "")
    found = []
    with Lab([Link(rate)] * 2) as lab:
        cluster = cluster_file(bench, 2, job_link(bench, lab))
        for name in ACCURACY_METHODS:
            method = catalogue.METHODS[name]
            # The same samples per optimiser step for both: dp has half of them on each worker.
            share = wanted["batch"] // (2 if name == "dp" else 1)
            profile, _ = bench.profile(model.options, share)
            plan, path = make_plan(bench, profile, cluster, method, f"accuracy-{name}")
            batch = plan["micro_batch_size"] * plan["micro_batches"]
            if batch != wanted["batch"]:
                raise Failed(f"{name}: {batch} samples per step, expected {wanted['batch']}")
            command = [
                args.penstock, "train", *model.options, "--plan", path, "--epochs",
                wanted["epochs"], "--batch-size", batch, "--lr", wanted["lr"], "--lr-schedule",
                "linear", "--threads", 1, "--seed", 1, "--json",
                *(("--data-folder", args.data_folder) if args.data_folder else ()),
                *(("--train-samples", wanted["samples"]) if "samples" in wanted else ())
            ]
            report, _ = bench.job(lab, [0, 1], command, seconds=1800)
            epochs = [(epoch["test_accuracy"], epoch["train_ns"] / 1e9)
                      for epoch in report["epochs"]]
            run = {
                "method": name, "config": plan["config"], "layers": [s["layers"] for s in
                                                                    plan["stages"]],
                "epochs": epochs, "samples_per_s": report["throughput_samples_per_s"],
                "predicted": plan["throughput_samples_per_s"],
                "seconds_to_target": quantities.time_to(wanted["target"], epochs),
                "epochs_to_target": quantities.epochs_to(wanted["target"],
                                                         [value for value, _ in epochs])
            }
            found.append(run)
            bench.log(f"    {name}: {run['samples_per_s']:.0f} samples/s, "
                      f"{100 * epochs[-1][0]:.1f} % after {sum(s for _, s in epochs):.0f} s")
    return {"wanted": wanted, "rate": rate, "runs": found}


# Of the runs that show what staleness does: 1 to 4 stages, threads of one process.
DEPTH = {"width": 256, "depth": 4, "batch": 64, "epochs": 4, "lr": 0.05}
DEPTH_POLICIES = ("1f1b", "2bw", "1f1b-flush")


def depth(bench):
    """Loss and accuracy per epoch at pipeline depths 1 to 4: with d stages, stage s uses weights
    that are d - 1 - s optimiser steps old (stashing); 2BW delays all by one; a flush by none. Runs
    in one process, because only the order of updates matters; throughput is of no interest here.
    """
    args = bench.args
    why = fashion_mnist(bench)
    if why:
        return {"skipped": why}
    wanted = dict(DEPTH)
    samples = ()
    if args.quick:
        wanted.update(width=32, epochs=2)
        samples = ("--train-samples", 1280)
    found = []
    for stages in (1, 2) if args.quick else (1, 2, 3, 4):
        for strategy in DEPTH_POLICIES:
            if stages == 1 and strategy != "1f1b":
                continue  # the same as 1f1b
            report = bench.penstock(
                "train", "--model", "mlp", "--width", wanted["width"], "--depth",
                wanted["depth"], "--strategy", *(("serial",) if stages == 1 else (strategy,)),
                "--workers", stages, "--batch-size", wanted["batch"], "--epochs",
                wanted["epochs"], "--lr", wanted["lr"], "--seed", 1, *samples,
                *(("--data-folder", args.data_folder) if args.data_folder else ()))
            found.append({
                "stages": stages, "strategy": strategy if stages > 1 else "serial",
                "config": report["config"], "weights": report["weights"],
                "loss": [epoch["loss"] for epoch in report["epochs"]],
                "accuracy": [epoch["test_accuracy"] for epoch in report["epochs"]]
            })
            bench.log(f"    {stages} stages, {found[-1]['strategy']}: loss "
                      f"{found[-1]['loss'][-1]:.3f}, {100 * found[-1]['accuracy'][-1]:.1f} %")
    return {"wanted": wanted, "runs": found}


ALL = {
    "throughput": throughput, "servers": servers, "accuracy": accuracy, "depth": depth
}
NEEDS_HOSTS = ("throughput", "servers", "accuracy")
ERRORS = (Failed, LabError, OSError, subprocess.SubprocessError)
