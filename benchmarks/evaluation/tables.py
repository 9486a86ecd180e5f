"""The document of an evaluation as Markdown tables. No input or output, no state.

    text = markdown(document)     # what run_evaluation.py wrote as JSON
"""

import textwrap

import formulas
import methods as catalogue
from quantities import difference, ratios, show, show_bytes, show_spread, spread


def table(head, rows):
    """Markdown; cells are texts."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def wrapped(text):
    """As lines of documents; an item of a list is indented."""
    return textwrap.fill(text, 100, subsequent_indent="  " if text.startswith("- ") else "",
                         break_long_words=False, break_on_hyphens=False)


def rounds_of(runs, model, rate, hosts):
    """[{method: run}] by round, without those that failed."""
    found = {}
    for run in runs:
        if (run["model"], run["rate"], run["hosts"]) == (model, rate, hosts):
            if "failed" not in run:
                found.setdefault(run["round"], {})[run["method"]] = run
    return [found[number] for number in sorted(found)]


def places(runs):
    """(model, rate, hosts) in the order of their first run."""
    return list(dict.fromkeys((run["model"], run["rate"], run["hosts"]) for run in runs))


def matrix(found, rate, cell):
    """Methods by models on two hosts; cell(rounds, method) is a text."""
    models = [model for model, r, hosts in places(found["runs"]) if r == rate and hosts == 2]
    rounds = {model: rounds_of(found["runs"], model, rate, 2) for model in models}
    rows = []
    for name, method in catalogue.METHODS.items():
        if any(name in by_method for own in rounds.values() for by_method in own):
            rows.append([method.title, *(cell(rounds[model], name) for model in models)])
    return table(["method", *models], rows)


def of_runs(rounds, name, value):
    """The spread of a value of a method's runs, or None."""
    own = [value(by_method[name]) for by_method in rounds if name in by_method]
    return spread(own) if own else None


def speed_cell(rounds, name):
    """Samples/s of data parallelism, the others' throughput over it."""
    if name == "dp":
        found = of_runs(rounds, name, lambda run: run["measured"])
        return f"{show(found['median'])} samples/s" if found else "-"
    over = ratios(rounds, name, "dp")
    return show_spread(spread(over)) if over else "-"


def median_cell(value, text):
    def cell(rounds, name):
        found = of_runs(rounds, name, value)
        return text(found["median"]) if found else "-"

    return cell


def plan_cell(rounds, name):
    plans = {by_method[name]["config"] for by_method in rounds if name in by_method}
    return ", ".join(sorted(plans)) or "-"


def prediction_cell(rounds, name):
    return show_spread(of_runs(rounds, name, lambda run: run["measured"] / run["predicted"]))


def largest_peak(run):
    return max(run["peak_bytes_of_ranks"], default=0)


def throughput_tables(found):
    rates = sorted({run["rate"] for run in found["runs"] if run["hosts"] == 2})
    text = []
    for rate in rates:
        text.append(f"**Throughput over data parallelism, 2 hosts, {formulas.show_rate(rate)}**")
        text.append(matrix(found, rate, speed_cell))
    for rate in rates:
        text.append(f"**Measured over predicted throughput, {formulas.show_rate(rate)}**")
        text.append(matrix(found, rate, prediction_cell))
    for rate in rates:
        text.append(f"**Plans, {formulas.show_rate(rate)}**")
        text.append(matrix(found, rate, plan_cell))
    shown = formulas.show_rate(rates[0])
    text.append(f"**Bytes per sample on all wires together, {shown}**")
    text.append(matrix(found, rates[0], median_cell(lambda run: run["wire_bytes_per_sample"],
                                                    show_bytes)))
    text.append(f"**Peak memory of the rank that has most, {shown}**")
    text.append(matrix(found, rates[0], median_cell(largest_peak, show_bytes)))
    for model, rate, hosts in places(found["runs"]):
        if hosts != 2:
            text.append(f"**{model}, {hosts} hosts, {formulas.show_rate(rate)}**")
            text.append(detailed_table(rounds_of(found["runs"], model, rate, hosts)))
    if found["skipped"]:
        text.append(skipped_text(found))
    for run in found["runs"]:
        if "failed" in run:
            text.append(f"Failed: {run['model']}, {formulas.show_rate(run['rate'])}, "
                        f"{run['method']}: {run['failed']}")
    return "\n\n".join(text)


def skipped_text(found):
    return "Skipped: " + "; ".join(
        f"{entry.get('task') or catalogue.METHODS[entry['method']].title} ({entry['why']})"
        for entry in found["skipped"]) + "."


def detailed_table(rounds):
    rows = []
    for name, method in catalogue.METHODS.items():
        if not any(name in by_method for by_method in rounds):
            continue
        over = ratios(rounds, name, "dp")
        rows.append([
            method.title, plan_cell(rounds, name),
            show_spread(of_runs(rounds, name, lambda run: run["measured"])),
            show_spread(spread(over)) if over else "-", prediction_cell(rounds, name),
            median_cell(lambda run: run["wire_bytes_per_sample"], show_bytes)(rounds, name),
            memory([by_method[name] for by_method in rounds if name in by_method])
        ])
    return table(["method", "plan", "samples/s", "over dp", "measured / predicted",
                  "bytes per sample", "peak memory per rank"], rows)


def memory(runs):
    """The median of each rank's peak, in the order of the ranks."""
    known = [run["peak_bytes_of_ranks"] for run in runs if run["peak_bytes_of_ranks"]]
    count = min((len(peaks) for peaks in known), default=0)
    medians = [spread([peaks[i] for peaks in known])["median"] for i in range(count)]
    return ", ".join(show_bytes(value) for value in medians) or "-"


def models_table(found):
    rates = sorted({run["rate"] for run in found["runs"]})
    rows = []
    for name, measured in found["models"].items():
        compute = spread([entry["compute_s"] for entry in measured])["median"]
        weights = measured[0]["weight_bytes"]
        rows.append([
            name, str(measured[0]["micro_batch"]), show_bytes(weights), f"{show(compute)} s",
            *(show(catalogue.all_reduce_share(weights, 2, rate, compute)) for rate in rates),
            {**catalogue.MODELS, **catalogue.TASKS}[name].like
        ])
    return table(["model", "samples", "weights", "computation",
                  *(f"all-reduce / computation, {formulas.show_rate(rate)}" for rate in rates),
                  "like"], rows)


def servers_table(found):
    shapes = list(dict.fromkeys((run["workers"], run["servers"]) for run in found["runs"]))
    rows = []
    for workers, helpers in shapes:
        own = [run for run in found["runs"]
               if (run["workers"], run["servers"]) == (workers, helpers)]
        rows.append([
            str(workers), str(helpers), f"{show(own[0]['predicted_s'])} s",
            show_spread(spread([run["measured_s"] for run in own])) + " s",
            show_spread(spread([run["measured_s"] / run["predicted_s"] for run in own])),
            show(spread([run["busiest_host_bytes"] / run["worker_bytes"] for run in own])["median"])
        ])
    return table(["workers n", "servers k", "formula", "measured", "measured / formula",
                  "bytes of the busiest host / formula"], rows)


def accuracy_table(found):
    target = f"{100 * found['wanted']['target']:.0f} %"
    rows = [[
        catalogue.METHODS[run["method"]].title, run["config"], show(run["samples_per_s"]),
        show(run["epochs_to_target"]),
        f"{show(run['seconds_to_target'])} s" if run["seconds_to_target"] else "not reached",
        f"{100 * run['epochs'][-1][0]:.1f} %"
    ] for run in found["runs"]]
    return table(["method", "plan", "samples/s", f"epochs to {target}", f"training to {target}",
                  "in the end"], rows)


def accuracy_gains(found):
    """(throughput, time to the target, epochs to it) of data parallelism against the other method,
    as ratios above 1 where the other one is better; None where a target is not reached."""
    runs = {run["method"]: run for run in found["runs"]}
    first, other = runs["dp"], runs["1f1b-straight"]
    times = (first["seconds_to_target"], other["seconds_to_target"])
    epochs = (first["epochs_to_target"], other["epochs_to_target"])
    return (other["samples_per_s"] / first["samples_per_s"],
            times[0] / times[1] if all(times) else None,
            epochs[0] / epochs[1] if all(epochs) else None)


def depth_table(found):
    epochs = len(found["runs"][0]["loss"])
    rows = [[
        str(run["stages"]), run["strategy"], run["weights"],
        *(show(value) for value in run["loss"]), f"{100 * run['accuracy'][-1]:.1f} %"
    ] for run in found["runs"]]
    return table(["stages", "schedule", "weights", *(f"loss, epoch {i + 1}" for i in range(epochs)),
                  "test accuracy"], rows)


def published_table(found):
    rows = []
    for entry in found["comparisons"]:
        reported = entry["reported"]
        what = (f"{reported['model']}, {reported['servers']}x{reported['gpus']} "
                f"({reported['cluster'].upper()}), over {reported['over']}")
        paper = f"{reported['ratio']:g} ({reported['where']})"
        if "skipped" in entry:
            rows.append([what, paper, reported["config"] or "-", entry["skipped"], "", "", ""])
            continue
        ours = entry["models"]["penstock"]
        rows.append([what, paper, reported["config"] or "-", show(ours["ratio"]),
                     show(ours["simulated_ratio"]), ours["config"],
                     *(f"{show(found['ratio'])} ({found['config']})" if found else "-"
                       for found in (entry["models"][name] for name in ("sosp2019", "released")))])
    text = table(["model, servers x GPUs (cluster)", "paper", "its plan", "planned", "simulated",
                  "our plan", "paper's formula", "released code's formula"], rows)
    return text + "\n\n" + baselines_table(found)


def baselines_table(found):
    """How much of a gain over data parallelism is its way of adding gradients."""
    rows = []
    for entry in found["comparisons"]:
        if "syncs" not in entry:
            continue
        reported = entry["reported"]
        reached = entry["all_reduce"]
        rows.append([f"{reported['model']}, {reported['servers']}x{reported['gpus']} "
                     f"({reported['cluster'].upper()})", f"{reported['ratio']:g}",
                     *(f"{show(of['ratio'])} ({of['config']})" for of in entry["syncs"].values()),
                     f"{show(reached['gbps'])} of {show(reached['nominal_gbps'])} Gbps"
                     if reached else "-"])
    return table(["model, servers x GPUs (cluster)", "paper", "over dp, ordered", "ring",
                  "the fastest", "the paper's all-reduce must have reached"], rows)


def chosen_over_fastest(by_method):
    """The planner's choice over the fastest other method of a round with at most as many samples
    per optimiser step as data parallelism, and that method; None without such."""
    if "auto" not in by_method or "dp" not in by_method:
        return None
    limit = by_method["dp"]["samples_per_step"]
    others = [name for name, run in by_method.items()
              if name != "auto" and run["samples_per_step"] <= limit]
    fastest = max(others, key=lambda name: by_method[name]["measured"])
    return by_method["auto"]["measured"] / by_method[fastest]["measured"], fastest


def choices_table(found):
    rows = []
    for model, rate, hosts in places(found["runs"]):
        rounds = rounds_of(found["runs"], model, rate, hosts)
        compared = [chosen_over_fastest(by_method) for by_method in rounds]
        compared = [entry for entry in compared if entry]
        if compared:
            chosen = {f"{by_method['auto']['strategy']} {by_method['auto']['config']}"
                      for by_method in rounds if "auto" in by_method}
            rivals = {catalogue.METHODS[name].title for _, name in compared}
            rows.append([model, formulas.show_rate(rate), ", ".join(sorted(chosen)),
                         ", ".join(sorted(rivals)),
                         show_spread(spread([ratio for ratio, _ in compared]))])
    return table(["task", "link", "the planner's choice", "the fastest other", "choice / other"],
                 rows)


def tasks_tables(found):
    if not found["runs"]:
        return skipped_text(found)
    return "\n\n".join([models_table(found), throughput_tables(found),
                        "**The planner's choice against the fastest other method with at most as "
                        "many samples per step**", choices_table(found)])


def metric_gains(runs):
    """(throughput, time to the target) of the planner's choice over data parallelism, from both
    runs; a time that is not known is None."""
    first, other = runs["dp"], runs["auto"]
    times = (first["seconds_to_target"], other["seconds_to_target"])
    return (other["samples_per_s"] / first["samples_per_s"],
            times[0] / times[1] if all(times) else None)


def metrics_table(found):
    rows, gains = [], []
    for name, rate in dict.fromkeys((run["task"], run["rate"]) for run in found["runs"]):
        task = catalogue.TASKS[name]
        runs = {run["method"]: run for run in found["runs"]
                if (run["task"], run["rate"]) == (name, rate)}
        for run in runs.values():
            reached = run["seconds_to_target"]
            rows.append([
                name, formulas.show_rate(rate), catalogue.METHODS[run["method"]].title,
                f"{run['strategy']} {run['config']}", show(run["samples_per_s"]),
                f"{task.metric} {task.target:g}", show(run["steps_to_target"]),
                f"{show(reached)} s" if reached else "not reached", show(run["evaluations"][-1][1])
            ])
        if "dp" in runs and "auto" in runs:
            speed, time = metric_gains(runs)
            gains.append([name, formulas.show_rate(rate), show(speed), show(time),
                          show(time / speed) if time else "-"])
    text = [table(["task", "link", "method", "plan", "samples/s", "until", "steps to it",
                   "training to it", "in the end"], rows),
            table(["task", "link", "throughput, choice / dp", "time to metric, dp / choice",
                   "time / throughput"], gains)] if rows else []
    return "\n\n".join(text + ([skipped_text(found)] if found["skipped"] else []))


def full_size_table(found):
    rows = []
    for entry in found["comparisons"]:
        reported = entry["reported"]
        rows.append([
            f"{reported['model']}, {reported['servers']}x{reported['gpus']} "
            f"({reported['cluster'].upper()})", str(reported["batch"]),
            f"{reported['ratio']:g} ({reported['config']})",
            *(f"{show(of['ratio'])} ({of['config']})" for of in entry["syncs"].values()),
            show(entry["syncs"]["ring"]["simulated_ratio"]),
            f"{show(entry['auto']['ratio'])} ({entry['auto']['strategy']} "
            f"{entry['auto']['config']})"
        ])
    text = table(["model, servers x GPUs (cluster)", "batch", "paper", "over dp, ordered", "ring",
                  "the fastest", "ring, simulated", "planner's own choice over the fastest dp"],
                 rows)
    return text + "\n\n" + differences(found)


def differences(found):
    """A sentence for each comparison of full-size models with the paper's."""
    return "\n".join(
        wrapped("- {model}, {servers}x{gpus} ({cluster}): ".format(
            **{**entry["reported"], "cluster": entry["reported"]["cluster"].upper()})
                + difference(entry) + ".") for entry in found["comparisons"])


MAKERS = {
    "throughput": ("Throughput", lambda found: models_table(found) + "\n\n" +
                   throughput_tables(found)),
    "servers": ("Summation services", servers_table),
    "accuracy": ("Time to an accuracy", lambda found: accuracy_text(found)),
    "depth": ("Depth and staleness", depth_table),
    "tasks": ("The other tasks: throughput, bytes, memory", tasks_tables),
    "metrics": ("The other tasks: time to a metric", metrics_table),
    "published": ("The published profiles", published_table),
    "full-size": ("Models in full size, estimated", full_size_table)
}


def conditions(found):
    """One line: what a part ran on."""
    machine = found["machine"]
    text = (f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_before']:.1f} before "
            f"and {found['load_after']:.1f} after, commit {machine['commit']}, {machine['date']}, "
            f"{found['rounds']} rounds, {found['seconds'] / 60:.1f} minutes")
    return wrapped(text + (". **Tiny sizes (--quick): the numbers mean nothing.**"
                           if found["quick"] else "."))


def markdown(document):
    text = ["# Results"]
    for name, (title, maker) in MAKERS.items():
        if name not in document["results"]:
            continue
        found = document["results"][name]
        why = found.get("failed") or (found["skipped"] if isinstance(found.get("skipped"), str)
                                      else None)
        text += [f"## {title}", conditions(found), f"Skipped: {why}." if why else maker(found)]
    return "\n\n".join(text) + "\n"


def accuracy_text(found):
    throughput, time, epochs = accuracy_gains(found)
    words = f"1F1B with stashing over data parallelism: {show(throughput)} in throughput"
    if time is not None:
        words += (f", {show(time)} in time to the accuracy, {show(epochs)} in epochs to it "
                  f"(time / throughput: {show(time / throughput)}, target 0.8 to 1.2)")
    return accuracy_table(found) + "\n\n" + words + "."
