"""Numbers of the evaluation: medians, ratios within rounds, times to an accuracy. No input or
output, no state.

    time_to(0.88, [(0.85, 10.0), (0.89, 10.0)])      # 17.5: between the two epochs
"""

import re
import statistics


def spread(values):
    """{median, lowest, highest, values}."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values),
            "values": list(values)}


def ratios(rounds, method, base, key="measured"):
    """Method over base within each round that has both; rounds are {method: {key: value}}."""
    return [found[method][key] / found[base][key] for found in rounds
            if method in found and base in found]


def time_to(target, epochs):
    """Seconds of training until the accuracy is reached, from (accuracy, seconds) of each epoch;
    between two epochs it is taken to grow linearly, and before the first one from 0. None if it is
    not reached."""
    elapsed, before = 0.0, 0.0
    for accuracy, seconds in epochs:
        if accuracy >= target:
            part = (target - before) / (accuracy - before) if accuracy > before else 1.0
            return elapsed + max(0.0, part) * seconds
        elapsed += seconds
        before = max(before, accuracy)
    return None


def epochs_to(target, accuracies):
    """Epochs until the accuracy is reached, as time_to()."""
    return time_to(target, [(accuracy, 1.0) for accuracy in accuracies])


def seconds_to(target, evaluations, falls):
    """Seconds of training until the metric is as good as the target, from (seconds, metric) of each
    evaluation; between two of them it is taken to change linearly. That of the first one is not
    known to begin anywhere: it counts from its own time. None if it is not reached."""
    before = None
    for seconds, metric in evaluations:
        if metric <= target if falls else metric >= target:
            if before is None or before[1] == metric:
                return seconds
            part = (target - before[1]) / (metric - before[1])
            return before[0] + part * (seconds - before[0])
        if before is None or (metric < before[1] if falls else metric > before[1]):
            before = (seconds, metric)
    return None


def steps_of(seconds, step_s):
    """Optimiser steps to measure for about `seconds`: at least 6, so that a pipeline is full most
    of the time, but of steps above 3 s, which are all communication, 2."""
    if step_s <= 0:
        raise ValueError(f"expected a step above 0 s, found {step_s}")
    return max(2 if step_s > 3 else 6, round(seconds / step_s))


def implied_all_reduce(pipeline, data_parallel, ratio):
    """What the all-reduce of data parallelism reached, where a pipeline was `ratio` times as fast:
    from the plans of both (JSON), whose computation is that of the profile. None of it is taken to
    be hidden by the computation: with more hidden it was slower still. {seconds, gbps,
    nominal_gbps} on the outermost links, each of which carries 2 (n - 1) / n of the weights in a
    ring over n workers; None where computation alone takes as long, and where no pipeline was
    faster."""
    if ratio <= 1:
        return None
    stage = data_parallel["stages"][0]
    workers = stage["replicas"]
    samples = data_parallel["micro_batches"] * data_parallel["micro_batch_size"]
    step_s = samples * ratio / pipeline["throughput_samples_per_s"]
    compute_s = (stage["forward_ns"] + stage["backward_ns"]) / 1e9
    compute_s *= data_parallel["micro_batches"] / workers
    if step_s <= compute_s:
        return None
    nominal = [level["bandwidth_bytes_per_s"] for level in data_parallel["cluster"]["levels"]
               if level["count"] > 1][-1]
    carried = 2 * (workers - 1) / workers * stage["weight_bytes"]
    return {"seconds": step_s - compute_s, "gbps": 8e-9 * carried / (step_s - compute_s),
            "nominal_gbps": 8e-9 * nominal}


def of_data_parallelism(plan):
    """Of a data parallel plan (JSON): seconds of computing per step and worker, bytes of the
    weights, and seconds that a ring's bytes take on an outermost link at its full rate."""
    stage = plan["stages"][0]
    workers = stage["replicas"]
    compute_s = (stage["forward_ns"] + stage["backward_ns"]) / 1e9
    nominal = [level["bandwidth_bytes_per_s"] for level in plan["cluster"]["levels"]
               if level["count"] > 1][-1]
    return {"compute_s": compute_s * plan["micro_batches"] / workers,
            "weight_bytes": stage["weight_bytes"], "nominal_gbps": 8e-9 * nominal,
            "ring_s": 2 * (workers - 1) / workers * stage["weight_bytes"] / nominal}


def difference(entry):
    """Why a comparison of full-size models differs from the paper's, in a sentence with numbers."""
    paper = entry["reported"]["ratio"]
    ratios_found = [of["ratio"] for of in entry["syncs"].values()]
    low, high = min(ratios_found), max(ratios_found)
    ring = (f"a ring at the full {show(entry['nominal_gbps'])} Gbps takes "
            f"{show(entry['ring_s'])} s beside {show(entry['compute_s'])} s of computing")
    if paper <= 1:
        if high <= 1.005:
            return f"the same choice: {ring}"
        return f"the paper's planner found no gain; here {ring}"
    reached = entry["all_reduce"]
    if reached is None:
        return f"{ring}; the paper's gain leaves no time to its all-reduce"
    share = 100 * reached["gbps"] / entry["nominal_gbps"]
    needed = (f"the paper's gain needs one of {show(reached['seconds'])} s, "
              f"{show(reached['gbps'])} Gbps ({share:.0f} %)")
    if paper > 1.1 * high:
        return f"{ring}, which hides it; {needed}"
    if paper < low / 1.1:
        return f"{ring}; {needed}, faster than any sum here"
    hidden = ": part of it was hidden by computing" if share > 100 else ""
    return f"within the ways to sum: {ring}; {needed}{hidden}"


def with_counts(cluster, counts, speed):
    """The text of a cluster file with other counts of its levels, from the innermost on, and
    another speed of its devices. Raises ValueError if it has not as many levels, or no speed."""
    text, levels = re.subn(r"^count = \d+", "count = {}", cluster.replace("{", "{{")
                           .replace("}", "}}"), flags=re.M)
    text, speeds = re.subn(r"^speed = [\d.]+", f"speed = {speed}", text, flags=re.M)
    if levels != len(counts) or speeds != 1:
        raise ValueError(f"expected {len(counts)} levels and one speed, found {levels}, {speeds}")
    return text.format(*counts)


def show(value):
    """Three significant digits, without an exponent."""
    if value is None:
        return "-"
    for limit, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(value) >= limit:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}" if value else "0"


def show_spread(found):
    """'2.41 (2.30..2.55)', or the number alone if there is only one."""
    if found is None:
        return "-"
    text = show(found["median"])
    if len(found["values"]) > 1:
        text += f" ({show(found['lowest'])}..{show(found['highest'])})"
    return text


def show_bytes(value):
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= limit:
            return f"{show(value / limit)} {unit}"
    return f"{value:.0f} B"
