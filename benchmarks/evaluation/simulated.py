"""What planner and simulator say of the papers' clusters, beside what the papers measured there:
for the layer profiles that PipeDream's authors published, and for the full-size models with
estimated layer times.

    found = full_size(bench)       # bench: experiments.Bench of the network laboratory
    found["comparisons"]           # one dictionary per row of the paper's table 1
"""

import pathlib

import papers
import quantities

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
SYNCS = ("ordered", "ring", "auto")
# The published profiles have batches of up to twice the samples that the paper trained with.
NO_LIMIT = ("--memory-limit", "1000GB")


def cluster_of(bench, cluster, servers, gpus, speed):
    """A cluster of the PipeDream paper with other counts and another speed of its devices. Cluster
    C has one GPU per server, which is no level of its own."""
    text = (REPOSITORY / f"examples/clusters/cluster-{cluster}.toml").read_text()
    path = bench.folder / f"cluster-{cluster}-{servers}x{gpus}-{speed}.toml"
    counts = (servers,) if cluster == "c" and gpus == 1 else (gpus, servers)
    path.write_text(quantities.with_counts(text, counts, speed))
    return path


def published(bench):
    """Plans and simulations for the layer profiles that PipeDream's authors published, beside what
    their paper measured."""
    folder = bench.args.profiles
    if folder is None:
        return {"skipped": "no --profiles FOLDER"}
    found = []
    for reported in papers.REPORTED:
        profile = folder / f"{reported.model}.graph.txt"
        if not profile.exists():
            bench.log(f"    {reported.title}: skipped, there is no {profile.name}")
            found.append({"reported": reported.__dict__, "skipped": f"no {profile.name}"})
            continue
        cluster = cluster_of(bench, reported.cluster, reported.servers, reported.gpus,
                             reported.speed)
        entry = {"reported": reported.__dict__, "models": {}}
        for cost_model in ("penstock", "sosp2019", "released"):
            # Data parallelism is one of PipeDream's plans, whose methods without a pipeline mean
            # nothing under the other cost models.
            entry["models"][cost_model] = None
            if cost_model == "penstock" or reported.over == "dp":
                entry["models"][cost_model], _ = compared(bench, profile, cluster, cost_model,
                                                          reported.over)
        if reported.over == "dp":
            entry["syncs"] = {"ordered": entry["models"]["penstock"]}
            for sync in ("ring", "auto"):
                entry["syncs"][sync], plans = compared(bench, profile, cluster, "penstock", "dp",
                                                       sync)
            entry["all_reduce"] = quantities.implied_all_reduce(*plans, reported.ratio)
        found.append(entry)
        ours = entry["models"]["penstock"]
        bench.log(f"    {reported.title} over {reported.over}: {ours['ratio']:.2f} planned, "
                  f"{ours['simulated_ratio']:.2f} simulated ({ours['config']}), paper "
                  f"{reported.ratio:g}")
    return {"comparisons": found}


def compared(bench, profile, cluster, cost_model, over, sync="ordered"):
    """The best plan that PipeDream's planner may choose, over another method's, and both plans:
    throughputs under the default cost model, the slowest parts' times under the others."""
    plans = {strategy: priced(bench, profile, cluster, strategy, sync, cost_model)
             for strategy in ("1f1b", "dp", over)}
    key = "planned" if cost_model == "penstock" else "slowest_part"
    best = max((plans[name] for name in ("1f1b", "dp")), key=lambda plan: plan[key])
    other = plans[over]
    return ({"config": best["config"], "other": other["config"], "ratio": best[key] / other[key],
             "simulated_ratio": best["simulated"] / other["simulated"]},
            (best["plan"], other["plan"]))


def priced(bench, profile, cluster, strategy, sync, cost_model="penstock", options=NO_LIMIT):
    """Planned and simulated throughput. Baselines use all workers."""
    path = bench.folder / f"{profile.stem}-{strategy}-{cost_model}.json"
    workers = ("--all-workers",) if strategy in ("dp", "mp") else ()
    plan = bench.penstock("plan", "--profile", profile, "--cluster", cluster, "--strategy",
                          strategy, "--cost-model", cost_model, "--sync", sync,
                          "--recompute", "never", *options, *workers, "-o", path)
    ran = bench.penstock("simulate", "--plan", path, "--mini-batches", 64)
    return {"config": plan["config"], "strategy": plan["strategy"], "plan": plan,
            "planned": plan["throughput_samples_per_s"],
            "slowest_part": 1e9 / plan["bottleneck_ns"],
            "simulated": ran["throughput_samples_per_s"]}


def analytic_profile(bench, row):
    """A file with layer times that are estimated from the operations and the device's figures."""
    path = bench.folder / f"{row.model}-{row.device}-{row.batch}.json"
    if not path.exists():
        bench.penstock("profile", "--analytic", "--device", row.device, "--model", row.model,
                       "--batch-size", row.batch, "-o", path)
    return path


def full_size(bench):
    """The models of the paper's table 1 in their full size, with estimated layer times, its batch
    sizes and its clusters: the best of PipeDream's plans and the planner's free choice over data
    parallelism that sums in three ways."""
    found = []
    for row in papers.FULL_SIZE[::13] if bench.args.quick else papers.FULL_SIZE:
        profile = analytic_profile(bench, row)
        cluster = cluster_of(bench, row.cluster, row.servers, row.gpus, 1.0)
        dp = {sync: priced(bench, profile, cluster, "dp", sync, options=()) for sync in SYNCS}
        pipelines = {sync: priced(bench, profile, cluster, "1f1b", sync, options=())
                     for sync in SYNCS}
        # As many samples per optimiser step as data parallelism has.
        limit = ("--mini-batch", row.batch * row.servers * row.gpus)
        auto = priced(bench, profile, cluster, "auto", "auto", options=limit)
        entry = {
            "reported": row.__dict__,
            "syncs": {sync: over_dp(pipelines[sync], dp[sync]) for sync in SYNCS},
            "auto": {"strategy": auto["strategy"], "config": auto["config"],
                     "ratio": auto["planned"] / dp["auto"]["planned"]},
            **quantities.of_data_parallelism(dp["ring"]["plan"]),
            "all_reduce": quantities.implied_all_reduce(pipelines["ring"]["plan"],
                                                        dp["ring"]["plan"], row.ratio)
        }
        found.append(entry)
        ring = entry["syncs"]["ring"]
        bench.log(f"    {row.title}: {ring['ratio']:.2f} over a ring ({ring['config']}), "
                  f"{entry['syncs']['ordered']['ratio']:.2f} over ordered sums, paper "
                  f"{row.ratio:g}")
    return {"comparisons": found}


def over_dp(pipeline, dp):
    """PipeDream's choice over data parallelism, which is one of its plans, and what the pipeline
    alone reaches."""
    best = max((pipeline, dp), key=lambda plan: plan["planned"])
    return {"config": best["config"], "ratio": best["planned"] / dp["planned"],
            "simulated_ratio": best["simulated"] / dp["simulated"],
            "pipeline": pipeline["config"], "pipeline_ratio": pipeline["planned"] / dp["planned"]}


ALL = {"published": published, "full-size": full_size}
