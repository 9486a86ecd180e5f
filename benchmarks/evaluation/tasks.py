"""The papers' other tasks on two emulated hosts: translation, a language model, captions of clips.

    found = throughput(bench)      # every method; bench: experiments.Bench of the laboratory
    found = metrics(bench)         # time to a metric: data parallelism and the planner's choice
"""

import dataclasses
import json

import formulas
import measure
import methods as catalogue
import quantities
from experiments import Failed, cluster_file, job_link, workers_of
from netlab import Lab, Link


def folder_of(bench, task):
    """The folder with the task's tokens, and None, or None and why there is none. It is that of
    --tokens, otherwise what `penstock data` makes of installed packages."""
    path = bench.folder / task.folder
    if bench.args.tokens is not None:
        path = bench.args.tokens / task.folder
    elif not path.exists():
        try:
            bench.penstock("data", *task.data, "-o", path)
        except Failed as failure:
            return None, str(failure).strip().splitlines()[-1][:200]
    if not (path / "manifest.json").exists():
        return None, f"no {path}/manifest.json"
    return path, None


def prepared(bench):
    """[(task, folder, options of its model)] and [{task, why}] of what is left out."""
    able, skipped = [], []
    for task in (catalogue.TASKS[name] for name in bench.args.tasks):
        folder, why = folder_of(bench, task)
        if folder is None:
            skipped.append({"task": task.name, "why": why})
            bench.log(f"    {task.name}: skipped, {why}")
            continue
        able.append((task, folder, task.model(json.loads((folder / "manifest.json").read_text()))))
    return able, skipped


def for_task(method, task):
    """The method with a plan that knows the state which the task's optimiser keeps. The planner's
    choice has at most as many samples per optimiser step as data parallelism."""
    limit = ("--mini-batch", str(task.batch)) if method.name == "auto" else ()
    return dataclasses.replace(method, plan=(*method.plan, *limit, "--optimizer", task.optimizer))


def throughput(bench):
    """Every method on two hosts, for all tasks and rates. Micro-batches have the same size for all;
    methods take turns within a round, and another one begins each round."""
    args = bench.args
    able, skipped = prepared(bench)
    chosen = [catalogue.METHODS[name] for name in args.methods if name in catalogue.TASK_METHODS]
    runs, models = [], {}
    for number in range(args.rounds):
        for task, folder, options in able:
            share = task.batch // 2  # so that data parallelism has the task's batch
            model = catalogue.Model(task.name, options, share, task.like, str(folder))
            profile, weights = bench.profile(options, share)
            models.setdefault(task.name, []).append(
                {"weight_bytes": weights, "compute_s": measure.computing_seconds(profile),
                 "micro_batch": share})
            for rate in args.rates:
                runs += measure.round_of(bench, model, profile, rate, 2,
                                         [for_task(method, task) for method in chosen], number)
    return {"runs": runs, "skipped": skipped, "models": models}


# Of the runs to a metric: (name, options of `penstock plan`, shares of the batch to look at). The
# planner looks at the whole and at halves, which flush twice as often.
PREDICT = catalogue.METHODS["predict"].plan
CHOICES = (("dp", catalogue.METHODS["dp"].plan, (2,)), ("auto", (), (1, 2)),
           ("predict", PREDICT, (1,)))


def steps_alike(bench, task, profiles, cluster, choices):
    """Plans with the task's samples per optimiser step, the fastest by its prediction for each of
    the choices; `profiles` by the share of the batch. {name: (plan, file)}."""
    plans = {}
    for name, strategy, parts in choices:
        for part in parts:
            path = bench.folder / f"{task.name}-{name}-{part}.plan.json"
            plan = bench.penstock("plan", "--profile", profiles[part], "--cluster", cluster,
                                  *strategy, "--mini-batch", task.batch, "--optimizer",
                                  task.optimizer, "-o", path)
            alike = plan["micro_batch_size"] * plan["micro_batches"] == task.batch
            speed = plan["throughput_samples_per_s"]
            if alike and (name not in plans or
                          speed > plans[name][0]["throughput_samples_per_s"]):
                plans[name] = (plan, path)
    if len(plans) < len(choices):
        raise Failed(f"{task.name}: no plans with {task.batch} samples per step: {list(plans)}")
    return plans


def trained(bench, lab, task, folder, options, plan, path):
    """Trains by a plan until the metric is reached; what there is to say of that."""
    args = bench.args
    steps, every = (6, 3) if args.quick else (task.steps, task.every)
    samples = task.test_samples // 10 if args.quick else task.test_samples
    command = [
        args.penstock, "train", *options, "--data", folder, "--plan", path, "--batch-size",
        task.batch, *task.learn, "--steps", steps, "--epochs", 100, "--eval-every", every,
        "--metric", task.metric, "--target", task.target, "--test-samples", samples, "--threads", 1,
        "--seed", 1, "--json"
    ]
    report, _ = bench.job(lab, list(range(workers_of(plan))), command, seconds=1800)
    found = [(entry["train_s"], entry["metric"]) for entry in report["eval"]]
    return {
        "task": task.name, "config": plan["config"], "strategy": plan["strategy"],
        "weights": plan.get("weights"), "layers": [stage["layers"] for stage in plan["stages"]],
        "samples_per_s": report["throughput_samples_per_s"],
        "predicted": plan["throughput_samples_per_s"], "evaluations": found,
        "steps": [entry["step"] for entry in report["eval"]],
        "seconds_to_target": quantities.seconds_to(task.target, found, task.falls),
        "steps_to_target": quantities.seconds_to(
            task.target, [(entry["step"], entry["metric"]) for entry in report["eval"]],
            task.falls)
    }


def metrics(bench):
    """Time to a metric on two hosts: data parallelism and the planner's choice, and a pipeline with
    predicted weights at the lowest rate; with the same samples, seed and rate of learning."""
    able, skipped = prepared(bench)
    runs = []
    for task, folder, options in able:
        profiles = {part: bench.profile(options, task.batch // part)[0] for part in (1, 2)}
        for rate in bench.args.rates:
            with Lab([Link(rate)] * 2) as lab:
                cluster = cluster_file(bench, 2, job_link(bench, lab))
                choices = CHOICES if rate == min(bench.args.rates) else CHOICES[:2]
                plans = steps_alike(bench, task, profiles, cluster, choices)
                for name, (plan, path) in plans.items():
                    if name == "auto" and plan["strategy"] == "dp":
                        bench.log(f"    {task.name}: the planner chooses data parallelism")
                        runs.append({**runs[-1], "method": "auto"})
                        continue
                    run = trained(bench, lab, task, folder, options, plan, path)
                    runs.append({"method": name, "rate": rate, **run})
                    bench.log(f"    {task.name}, {formulas.show_rate(rate)}, {name} "
                              f"{run['strategy']} {run['config']}: {run['samples_per_s']:.0f} "
                              f"samples/s, {task.metric} {task.target:g} after "
                              f"{quantities.show(run['seconds_to_target'])} s, "
                              f"{quantities.show(run['steps_to_target'])} steps; last "
                              f"{run['evaluations'][-1][1]:.3f}")
    return {"runs": runs, "skipped": skipped}


ALL = {"tasks": throughput, "metrics": metrics}
NEEDS_HOSTS = tuple(ALL)
