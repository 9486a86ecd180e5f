"""Tables (Markdown) and plots (SVG) of what run_online.py measured. No input or output."""

import statistics

import plots
from parts import is_calm, used
from quantities import show


def span(values):
    """'1.82 (1.79..1.90)': the median, the lowest and the highest."""
    middle = show(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({show(min(values))}..{show(max(values))})"


def ms(ns):
    return f"{show(ns / 1e6)} ms"


def medians(rounds, which):
    """The median time of each stage of "one" or "two"."""
    return [statistics.median(times) for times in zip(*(r[which]["stage_ns"] for r in rounds))]


def calm_of(rounds):
    return f"{sum(map(is_calm, rounds))} of {len(rounds)}"


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join(lines + [f"| {' | '.join(map(str, row))} |" for row in rows])


def scaling(part):
    rows = []
    for case in part["cases"]:
        rounds = used(case["rounds"])
        rows.append((case["model"], case["size"],
                     " + ".join(show(t / 1e6) for t in medians(rounds, "two")) + " ms",
                     show(statistics.median(r["one"]["fps"] for r in rounds)),
                     show(statistics.median(r["two"]["fps"] for r in rounds)),
                     span([r["ratio"] for r in rounds]),
                     span([r["apart"] for r in rounds]) if "apart" in rounds[0] else "-",
                     show(rounds[0]["two"]["predicted_fps"] / rounds[0]["one"]["predicted_fps"]),
                     calm_of(case["rounds"])))
    return table(("network", "frame", "stages compute", "1 stage, frames/s", "2 stages, frames/s",
                  "ratio", "two programs at once", "planned", "calm rounds"), rows)


def simulated(part):
    rows = [(case["model"], case["depth"], case["size"], show(case["fps"]),
             f"{case['fps'] / case['ideal_fps']:.3f}",
             f"{case['allowed_fps'] / case['ideal_fps']:.3f}",
             f"{case['fps'] / case['allowed_fps']:.3f}",
             f"{case['fps'] / case['slowest_fps']:.3f}") for case in part["cases"]]
    return table(("network", "convolutions", "frame", "frames/s", "of the ideal",
                  "the layers allow", "of what they allow", "of the slowest stage"), rows)


def sustain(part):
    if part["rate"] is None:
        return f"No rate was sustained; {show(part['best_fps'])} frames/s at most."
    run, memory = part["run"], part["memory"]
    rows = [("best, frames as fast as they are taken", f"{show(part['best_fps'])} frames/s"),
            ("highest rate of the short runs", f"{show(part['rate'])} frames/s"),
            *[("a long run before", f"{before['asked_fps']} frames/s: {before['processed']} "
               f"processed, {before['dropped']} dropped, {before['misses']} late")
              for before in part.get("long_runs", [])[:-1]],
            ("rate of the long run", f"{part['asked_fps']} frames/s"),
            ("frames, dropped, late", f"{run['processed']}, {run['dropped']}, "
             f"{run['deadline_misses']} ({run['deadline_misses'] / run['processed']:.3%})"),
            ("latency: median, 99 %, at most", ", ".join(
                ms(run[f"latency_{key}_ns"]) for key in ("p50", "p99", "max"))),
            ("(stages + queue) / rate", ms(part["bound_s"] * 1e9))]
    if memory:
        rows += [("resident memory, first and last third", f"{memory['rss_first_bytes'] / 1e6:.2f} "
                  f"and {memory['rss_last_bytes'] / 1e6:.2f} MB"),
                 ("page faults per frame", f"{memory['faults_per_frame']:.3f}")]
    return table(("long run", "measured"), rows)


def overload(part):
    rounds = used(part["rounds"])
    rows = [("rate of the source", span([r["rate"] for r in rounds]) + " frames/s"),
            ("best, frames as fast as they are taken", span([r["best_fps"] for r in rounds])),
            ("learned from, frames/s", span([r["fps"] for r in rounds])),
            ("ratio within a round", span([r["ratio"] for r in rounds])),
            ("dropped", f"{sum(r['dropped'] for r in rounds)} of "
             f"{sum(r['frames_in'] for r in rounds)}"),
            ("latency at most", span([r["latency_max_ns"] / 1e6 for r in rounds]) + " ms"),
            ("latency of 99 %", span([r["latency_p99_ns"] / 1e6 for r in rounds]) + " ms"),
            ("(stages + queue) / rate learned", span([r["bound_s"] * 1e3 for r in rounds]) + " ms"),
            ("calm rounds", calm_of(part["rounds"]))]
    return table(("overload", "measured"), rows)


def overhead(part):
    rows = []
    for case in part["cases"]:
        for stages, which in ((1, "one"), (2, "two")):
            runs = [r[which] for r in used(case["rounds"])]
            rows.append((case["size"], stages, span([1e6 / r["fps"] for r in runs]) + " us",
                         span([max(r["stage_ns"]) / 1e3 for r in runs]) + " us",
                         span([r["overhead_ns"] / 1e3 for r in runs]) + " us",
                         calm_of(case["rounds"])))
    return table(("frame", "stages", "time per frame", "slowest stage computes", "overhead",
                  "calm rounds"), rows)


def quality(part):
    rows = []
    for entry in part["chosen"]:
        if entry["lr"] is None:
            rows.append((entry["stages"], entry["method"], "-", "-", "every one diverged", "-"))
            continue
        accuracy = [100 * value for value in entry["accuracy"]]
        loss = [value for value in entry["loss"] if value is not None]
        rows.append((entry["stages"], entry["method"], f"{100 * entry['seen']:.0f} %", entry["lr"],
                     span(accuracy) + " %", span(loss) if loss else "diverged"))
    return table(("stages", "method", "frames seen", "learning rate", "right", "loss"), rows)


TABLES = {"scaling": scaling, "simulated": simulated, "sustain": sustain, "overload": overload,
          "overhead": overhead, "quality": quality}


def conditions(part):
    machine = part["machine"]
    return (f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_before']:.1f} before "
            f"and {part['load_after']:.1f} after, commit {machine['commit']}, {machine['date']}, "
            f"{part['took_s'] / 60:.1f} minutes{', tiny sizes' if part['quick'] else ''}.")


def markdown(results):
    text = ["# penstock stream, measured"]
    for name, write in TABLES.items():
        if name in results:
            part = results[name]
            body = f"Failed: {part['failed']}" if "failed" in part else write(part)
            text.append(f"## {name}\n\n{body}\n\n{conditions(part)}")
    return "\n\n".join(text) + "\n"


def pictures(results):
    """{file name: SVG text}."""
    found = {}
    cases = results.get("scaling", {}).get("cases", [])
    if cases:
        series = {}
        for case in cases:
            rounds = used(case["rounds"])
            series.setdefault(case["model"], []).append(
                (max(medians(rounds, "two")) / 1e6, statistics.median(r["ratio"] for r in rounds)))
        found["online-scaling.svg"] = plots.lines(
            "Two stages against one, two cores", "times the frames per second",
            "milliseconds that the slower stage computes per frame",
            {name: sorted(points) for name, points in series.items()},
            results["scaling"]["target"])
    cases = results.get("simulated", {}).get("cases", [])
    if cases:
        found["online-simulated.svg"] = plots.bars(
            "Eight stages, simulated", "share of eight times one worker",
            [case["model"] for case in cases], {
                "throughput": [case["fps"] / case["ideal_fps"] for case in cases],
                "what the layers allow": [case["allowed_fps"] / case["ideal_fps"]
                                          for case in cases]
            })
    samples = results.get("sustain", {}).get("samples", [])
    if samples:
        found["online-memory.svg"] = plots.lines(
            "Resident memory of a stream", "MB", "seconds",
            {"resident": [(s["seconds"], s["rss_bytes"] / 1e6) for s in samples]})
    chosen = [e for e in results.get("quality", {}).get("chosen", []) if e["lr"] is not None]
    if chosen:
        series = {}
        for entry in chosen:
            series.setdefault(entry["method"], []).append(
                (entry["stages"], 100 * statistics.median(entry["accuracy"])))
        one = series.get("sequential", [])[:1]
        found["online-quality.svg"] = plots.lines(
            "Labels right, over all frames learned from", "%", "stages; rate of the stream over "
            "that of one worker",
            {name: (one if name != "sequential" and one and one[0][0] == 1 else []) + points
             for name, points in series.items()})
    return found
