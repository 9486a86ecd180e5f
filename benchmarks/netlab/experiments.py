"""The experiments of the network laboratory: what each predicts, runs and compares.

    bench = Bench(args, folder, log)
    ALL["bytes"](bench)
    bench.rows        # one dictionary per line of the table
"""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

import formulas
from netlab import Lab, Link, wait_all
from rounds import rounds

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
BYTES_ERROR = 0.03
SENT_AGAIN = 0.002  # of a host's segments; a run in which TCP repeated more is done again
ATTEMPTS = 4
LINK_ERROR = 0.05
START_S = 60  # more than a job needs for its start on a busy machine


class Failed(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Method:
    """How replicas sum gradients. `formula` is a name of formulas.synchronisation()."""

    name: str
    formula: str
    options: tuple[str, ...]  # of penstock train
    takes_servers: bool = False
    share: float = 1.0  # of the gradients' bytes in float32 that travel

    def shapes(self, hosts, servers):
        """(workers, CPU servers) to measure."""
        counts = [0] + ([k for k in servers if k > 0] if self.takes_servers else [])
        return [(n, k) for n in hosts for k in counts]


# Measured as soon as the binary has them, see Bench.has_method(). Without an option `train` takes
# the fastest of them by prediction.
METHODS = {
    method.name: method
    for method in (
        Method("ordered", "ordered", ("--sync", "ordered")),
        Method("bfloat16", "ordered", ("--sync", "ordered", "--sync-precision", "bfloat16"),
               share=0.5),
        Method("ring", "ring", ("--sync", "ring")),
        Method("parameter-server", "parameter-server", ("--sync", "parameter-server"), True),
        Method("summation", "summation", ("--sync", "summation"), True),
    )
}


def server_variables(servers):
    """What tells the ranks of a job that its last `servers` ranks are CPU servers."""
    return {"PENSTOCK_SERVERS": servers} if servers else {}


class Bench:
    def __init__(self, args, folder, log):
        self.args = args
        self.folder = folder
        self.log = log
        self.rows = []
        self.details = {}
        self.port = 29500
        self.train_help = None

    # --- rows ---

    def row(self, experiment, what, unit, predicted, values, low=None, high=None, every=False,
            ratios=None, exact=False):
        """A line of the table. Its ratios are measured over predicted values, or the values
        themselves where nothing is predicted. `every`: each ratio has to be within the target, not
        only the median. Only `exact` rows are judged with --quick."""
        ratios = ratios or [value / predicted if predicted else value for value in values]
        numbers = formulas.summary(ratios)
        if self.args.quick and not exact:
            low = high = None
        judged = ratios if every else [numbers["median"]]
        verdicts = {formulas.verdict(ratio, low, high) for ratio in judged}
        row = {
            "experiment": experiment, "what": what, "unit": unit, "predicted": predicted,
            "measured": formulas.summary(values)["median"], "values": values, "ratios": ratios,
            **numbers, "target": [low, high],
            "verdict": "MISSED" if "MISSED" in verdicts else verdicts.pop()
        }
        self.rows.append(row)
        self.log(f"  {what}: {row['measured']:.5g} {unit}, {row['verdict']}")
        return row

    def without_numbers(self, verdict, experiment, what, why):
        self.rows.append({"experiment": experiment, "what": what, "verdict": verdict, "why": why})

    def failed(self, experiment, why):
        self.without_numbers("FAILED", experiment, "", why.splitlines()[0][:200])

    def skipped(self, experiment, what, why):
        self.log(f"  {what}: skipped, {why}")
        self.without_numbers("SKIPPED", experiment, what, why)

    # --- programs ---

    def penstock(self, *arguments):
        """Runs a command on this machine, outside of the laboratory; returns its JSON."""
        command = [str(word) for word in (self.args.penstock, *arguments, "--json")]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=300)
        if done.returncode != 0:
            raise Failed(f"exit code {done.returncode}: {' '.join(command)}: {done.stderr[-2000:]}")
        return json.loads(done.stdout)

    def has_method(self, method):
        return not method.options or any(self.offers(word, method.name)
                                         for word in method.options if word.startswith("--"))

    def offers(self, option, value=""):
        """Whether `train --help` knows the option, and names the value beside it."""
        if self.train_help is None:
            self.train_help = subprocess.run([self.args.penstock, "train", "--help"],
                                             capture_output=True, text=True).stdout
        lines = [line for line in self.train_help.splitlines() if option in line]
        return any(value in line for line in lines)

    def job(self, lab, hosts, command, env=None, seconds=60, launcher="ranks"):
        """Runs a job on the hosts; returns the JSON that rank 0 prints last, and by how much the
        counters of every host have grown."""
        self.port += 2
        before = lab.counters()
        if launcher == "mpirun":
            ranks = [lab.start_mpirun(hosts, command, {
                "MASTER_ADDR": lab.address(hosts[0]), "PENSTOCK_LISTEN": self.port, **(env or {})
            })]
        else:
            ranks = lab.start_ranks(hosts, command, self.port, env)
        if not wait_all(ranks, START_S + seconds):
            words = " ".join(map(str, command))
            texts = [f"{rank.name}: exit code {rank.code}: {rank.stderr().strip()[-600:]}"
                     for rank in ranks]
            raise Failed(f"a job failed: {words}\n" + "\n".join(texts))
        after = lab.counters()
        lines = ranks[0].stdout().strip().splitlines()
        try:
            report = json.loads(lines[-1])
        except (IndexError, ValueError):
            raise Failed(f"no JSON from {command[0]}: {ranks[0].stdout()[-300:]}")
        grown = [
            dataclasses.replace(
                end, **{field.name: getattr(end, field.name) - getattr(begin, field.name)
                        for field in dataclasses.fields(end)})
            for begin, end in zip(before, after)
        ]
        return report, grown

    def profile(self, model, micro_batch, concurrency=2):
        """A file with the measured times of a model, and the bytes of its weights."""
        name = "-".join(map(str, model)).replace("--", "")
        path = self.folder / f"{name}.{micro_batch}.{concurrency}.json"
        samples = ("--samples", 3) if self.args.quick else ()
        self.penstock("profile", *model, "--batch-size", micro_batch, "--threads", 1,
                      "--concurrency", concurrency, *samples, "-o", path)
        layers = json.loads(path.read_text())["layers"]
        return path, sum(layer["weight_bytes"] for layer in layers)

    def data_parallel(self, profile, workers):
        """A plan: without one, a job measures its links first, and that counts on the wire."""
        path = self.folder / f"dp.{workers}.{pathlib.Path(profile).name}"
        if not path.exists():
            self.penstock("plan", "--profile", profile, "--strategy", "dp", "--workers", workers,
                          "--bandwidth", "1Gbps", "--all-workers", "-o", path)
        return path

    def train(self, model, batch, steps, *options, warmup=0):
        """The command of one rank; one pass over random samples."""
        return [
            self.args.penstock, "train", *model, "--data", "synthetic", "--train-samples",
            batch * steps, "--batch-size", batch, "--warmup-steps", warmup, "--threads", 1, "--lr",
            0.001, "--seed", 1, "--no-eval", "--json", *options
        ]


def measure_link(bench, lab, mode="send", seconds=1.0):
    """Bytes per second and latency between hosts 0 and 1, by plain sockets."""
    count = int(lab.links[0].up_bits_per_s / 8 * seconds)
    bench.port += 2
    probe = [sys.executable, HERE / "link_probe.py"]
    receiver = lab.start(1, [*probe, "receive", bench.port])
    sender = lab.start(0, [*probe, mode, lab.address(1), bench.port, count])
    if not wait_all([sender, receiver], START_S):
        raise Failed(f"link_probe.py: {sender.stderr()[-300:]} {receiver.stderr()[-300:]}")
    report = json.loads(sender.stdout())
    return count / report["seconds"], report["latency_s"]


def links(bench):
    """What a link carries, one way and both ways at the same time."""
    for rate in bench.args.rates:
        values = {"send": [], "both": []}
        with Lab([Link(rate)] * 2) as lab:
            for _ in range(bench.args.rounds):
                for mode in values:
                    speed, latency = measure_link(bench, lab, mode, 0.2 if bench.args.quick else 1)
                    values[mode].append(speed)
        for mode, title in (("send", "one way"), ("both", "both ways, each")):
            bench.row("links", f"{title}, {formulas.show_rate(rate)}", "bytes/s", rate / 8,
                      values[mode], 1 - LINK_ERROR, 1 + LINK_ERROR)


def quiet_job(bench, lab, hosts, command, **job):
    """Like bench.job(). What TCP sends again, after a loss or a late answer, is not part of a
    method's bytes: such a run is repeated, and the quietest one counts."""
    def repeated(run):
        return max(host.sent_again / max(host.segments, 1) for host in run[1])

    runs = []
    while not runs or (repeated(runs[-1]) > SENT_AGAIN and len(runs) < ATTEMPTS):
        runs.append(bench.job(lab, hosts, command, **job))
    return min(runs, key=repeated)


def bytes_per_step(bench, lab, hosts, command_of_steps, steps, **job):
    """Per host (sent, received) and per rank bytes of one step: the difference between a long and a
    short run, so that start and end cancel."""
    reports, grown = [], []
    for count in steps:
        report, counters = quiet_job(bench, lab, hosts, command_of_steps(count), **job)
        reports.append(report)
        grown.append(counters)
    more = steps[1] - steps[0]
    per_host = [((b.sent - a.sent) / more, (b.received - a.received) / more)
                for a, b in zip(*grown)]
    per_rank = [(b - a) / more for a, b in zip(reports[0]["bytes_sent"], reports[1]["bytes_sent"])]
    return per_host, per_rank


def bytes_on_wires(bench):
    """Data parallel training: bytes per step and interface against the formulas."""
    model = ("--model", "mlp", "--width", 256 if bench.args.quick else 1024)
    micro_batch, steps = 8, (2, 8)
    profile, weights = bench.profile(model, micro_batch)
    rate = max(bench.args.rates)

    def measure(what, hosts, workers, servers, expected, options, unit="bytes/step", **job):
        batch = micro_batch * workers

        def command(count):
            return bench.train(model, batch, count, "--plan",
                               bench.data_parallel(profile, workers), *options)

        with Lab([Link(rate)] * (max(hosts) + 1)) as lab:
            per_host, per_rank = bytes_per_step(bench, lab, hosts, command, steps,
                                                env=server_variables(servers), **job)
        machines = max(hosts) + 1 - servers
        of_workers = [value for pair in per_host[:machines] for value in pair]
        bench.row("bytes", what, unit, expected.worker_bytes, of_workers, 1 - BYTES_ERROR,
                  1 + BYTES_ERROR, every=True, exact=True)
        if servers:
            of_servers = [value for pair in per_host[machines:] for value in pair]
            bench.row("bytes", f"{what}: servers", unit, expected.server_bytes, of_servers,
                      1 - BYTES_ERROR, 1 + BYTES_ERROR, every=True, exact=True)
        bench.details[f"bytes, {what}"] = {
            "weight_bytes": weights, "sent_and_received_per_host": per_host,
            "tensor_bytes_sent_per_rank": per_rank
        }

    for method in (METHODS[name] for name in bench.args.methods):
        if not bench.has_method(method):
            bench.skipped("bytes", method.name,
                          f"this penstock has no `train {' '.join(method.options)}`")
            continue
        for n, k in method.shapes(bench.args.hosts, bench.args.servers):
            expected = formulas.synchronisation(method.formula, n, k, method.share * weights)
            helpers = f", {k} servers" if k else ""
            measure(f"{method.name}, {n} hosts{helpers}", list(range(n + k)), n, k, expected,
                    method.options)
    n = max(bench.args.hosts)
    expected = formulas.synchronisation("ordered", n, 0, weights)
    what = f"ordered, {n} hosts, by mpirun"
    ordered = METHODS["ordered"].options
    if shutil.which("mpirun"):
        measure(what, list(range(n)), n, 0, expected, ordered, launcher="mpirun")
    else:
        bench.skipped("bytes", what, "there is no program 'mpirun' (Debian package openmpi-bin)")
    measure("ordered, 2 hosts with 2 ranks each", [0, 0, 1, 1], 4, 0,
            formulas.direct_exchange(2, 2, weights), ordered)
    for k in [0] + [k for k in bench.args.servers if k > 0]:
        helpers = f", {k} servers" if k else ""
        measure(f"hierarchical, 2 hosts with 2 ranks each{helpers}",
                [0, 0, 1, 1] + list(range(2, 2 + k)), 4, k,
                formulas.synchronisation("summation", 2, k, weights),
                ("--sync", "hierarchical"))


# Models whose best split depends on the network: (options, samples per micro-batch, all numbers of
# hosts or two only). The mlp has large weights and small activations, vgg_small the reverse.
STRATEGY_MODELS = [
    (("--model", "mlp", "--width", 1024), 64, True),
    (("--model", "vgg_small"), 32, False),
]
# The first is the planner's choice; pipelines have one worker per stage.
STRATEGIES = {"auto": (), "dp": (), "1f1b": ("--straight",)}
GAIN_ERROR = 0.15
TIE = 0.97  # the planner's choice may be this much slower than another one


def job_link(bench, lab):
    """The links between the hosts as a job measures them before it plans: all of them at the same
    time, in both directions, and what sums take from computing."""
    report, _ = bench.job(lab, list(range(len(lab.links))),
                          [bench.args.penstock, "probe", "--json", "--seconds", 0.9])
    return report["link_between_hosts"]


def cluster_file(bench, hosts, link, speed=1.0):
    """`link` as job_link() says; `speed` is that of all hosts, relative to the profile."""
    path = bench.folder / "cluster.toml"
    path.write_text(f"""[[level]]
name = "network"
count = {hosts}
bandwidth = "{link['bytes_per_s'] / 1e6:.1f}MB/s"
latency = "{max(1, round(link['latency_ns'] / 1e3))}us"
processor_time_per_gb = "{link.get('processor_ns_per_gb', 0) / 1e6:.0f}ms"

[device]
speed = {speed:.4f}
""")
    return path


def workers_of(plan):
    """How many workers a plan uses; virtual stages share them."""
    stages = plan["stages"]
    sizes = [stage["replicas"] * stage.get("tensor", 1) for stage in stages]
    placed = [stage["first_worker"] + size for stage, size in zip(stages, sizes)
              if stage.get("first_worker", -1) >= 0]
    if plan.get("hosts"):
        return (max(plan["hosts"]) + 1) * stages[0].get("tensor", 1)
    return max(placed) if placed else sum(sizes)


def planned_run(bench, lab, model, plan_path, seconds, hosts=None):
    """Trains by a plan for about that long; returns samples per second, and the time of the
    workers' computation over what the profile says."""
    plan = json.loads(plan_path.read_text())
    batch = plan["micro_batch_size"] * plan["micro_batches"]
    steps = max(4, round(seconds * plan["throughput_samples_per_s"] / batch))
    warmup = max(1, min(steps // 4, 4))
    report, _ = bench.job(lab, (hosts or list(range(workers_of(plan))))[:workers_of(plan)],
                          bench.train(model, batch, steps + warmup, "--plan", plan_path,
                                      warmup=warmup), seconds=20 * seconds)
    times = {
        kind: sum(worker[kind][key] for worker in report["workers"]
                  for key in ("forward_ns", "backward_ns", "step_ns"))
        for kind in ("measured", "predicted")
    }
    return report["throughput_samples_per_s"], times["measured"] / times["predicted"]


def strategies(bench):
    """Does the planner choose what is fastest on a network, and is it right about the gain?"""
    seconds = 0.3 if bench.args.quick else 1.5
    rounds = 1 if bench.args.quick else bench.args.rounds
    for model, micro_batch, all_hosts in STRATEGY_MODELS:
        all_hosts = all_hosts and not bench.args.quick
        for hosts in bench.args.hosts if all_hosts else bench.args.hosts[:1]:
            # Rounds are the outer loop, so that all rates see the same drift of the machine.
            results = {rate: [] for rate in bench.args.rates}
            for number in range(rounds):
                profile, _ = bench.profile(model, micro_batch, hosts)
                for rate in bench.args.rates:
                    with Lab([Link(rate)] * hosts) as lab:
                        results[rate].append(strategy_round(bench, lab, model, profile, number,
                                                            seconds))
            for rate, rows in results.items():
                # Where hosts share cores, times of computation depend on who computes when.
                strategy_rows(bench, f"{model[1]}, {hosts} hosts, {formulas.show_rate(rate)}", rows,
                              judged=hosts <= os.cpu_count())


def strategy_round(bench, lab, model, profile, number, seconds):
    """name -> what was planned, predicted and measured; strategies take turns, and another one
    begins each round. `repriced` is the prediction for the same plan with the computation as it was
    measured in this run, so that what is left of an error is the network's and the schedule's."""
    hosts = len(lab.links)
    link = job_link(bench, lab)
    bench.log(f"    {link}")
    cluster = cluster_file(bench, hosts, link)
    found, paths = {}, {}
    for name, options in STRATEGIES.items():
        paths[name] = bench.folder / f"{name}.plan.json"
        plan = bench.penstock("plan", "--profile", profile, "--cluster", cluster, "--strategy",
                              name, *options, "-o", paths[name])
        found[name] = {"plan": f"{plan['strategy']} {plan['config']}",
                       "layers": [stage["layers"] for stage in plan["stages"]],
                       "predicted": plan["throughput_samples_per_s"]}
        if name == "auto":
            found[name]["alternatives"] = {
                other["strategy"]: other["throughput_samples_per_s"]
                for other in plan["alternatives"]
            }
    names = list(STRATEGIES)
    start = number % len(names)
    for name in names[start:] + names[:start]:
        entry = found[name]
        entry["measured"], computation = planned_run(bench, lab, model, paths[name], seconds)
        cluster = cluster_file(bench, hosts, link, 1 / computation)
        entry["computation_over_profile"] = computation
        entry["repriced"] = bench.penstock("plan", "--profile", profile, "--cluster", cluster,
                                           "--price", paths[name])["throughput_samples_per_s"]
        cluster = cluster_file(bench, hosts, {**link, "processor_ns_per_gb": 0})
        entry["sums_take_nothing"] = bench.penstock(
            "plan", "--profile", profile, "--cluster", cluster, "--price",
            paths[name])["throughput_samples_per_s"]
        bench.log(f"    {name}: {entry['plan']}, measured {entry['measured']:.0f}, predicted "
                  f"{entry['predicted']:.0f} samples/s, with computation x {computation:.2f} "
                  f"{entry['repriced']:.0f}")
    return found


def strategy_rows(bench, where, rounds, judged):
    """`judged`: whether targets apply."""
    low, high = (1 - GAIN_ERROR, 1 + GAIN_ERROR) if judged else (None, None)
    for name in STRATEGIES:
        plans = sorted({found[name]["plan"] for found in rounds})
        bench.row("strategies", f"{where}: {name} ({', '.join(plans)})", "samples/s",
                  formulas.summary([found[name]["predicted"] for found in rounds])["median"],
                  [found[name]["measured"] for found in rounds],
                  ratios=[found[name]["measured"] / found[name]["predicted"] for found in rounds])
    free = [found["dp"]["sums_take_nothing"] for found in rounds]
    measured = [found["dp"]["measured"] for found in rounds]
    bench.row("strategies", f"{where}: dp, if sums took nothing from computing", "samples/s",
              formulas.summary(free)["median"], measured,
              ratios=[a / b for a, b in zip(measured, free)])
    bench.row("strategies", f"{where}: all, predicted with the computation measured", "ratio", None,
              [found[name]["measured"] / found[name]["repriced"]
               for found in rounds for name in STRATEGIES], low, high)
    others = list(STRATEGIES)[1:]
    fastest = [
        found["auto"]["measured"] / max(found[name]["measured"] for name in others)
        for found in rounds
    ]
    bench.row("strategies", f"{where}: auto / fastest other", "ratio", None, fastest,
              low=TIE if judged else None)
    for name in others:
        measured = [found["auto"]["measured"] / found[name]["measured"] for found in rounds]
        predicted = [found["auto"]["predicted"] / found[name]["predicted"] for found in rounds]
        bench.row("strategies", f"{where}: auto / {name}", "ratio",
                  formulas.summary(predicted)["median"], measured, low, high,
                  ratios=[a / b for a, b in zip(measured, predicted)])
    bench.details[f"strategies, {where}"] = rounds


PRECISIONS = ("float32", "bfloat16", "float16")


def precisions(bench):
    """Data parallelism with gradients in every precision: what half of the bytes brings."""
    if not bench.offers("--sync-precision"):
        bench.skipped("precisions", "all", "this penstock has no `train --sync-precision`")
        return
    model, micro_batch, _ = STRATEGY_MODELS[0]
    for hosts in bench.args.hosts[:1] if bench.args.quick else bench.args.hosts:
        for rate in bench.args.rates:
            rounds = []
            for number in range(1 if bench.args.quick else bench.args.rounds):
                profile, _ = bench.profile(model, micro_batch, hosts)
                with Lab([Link(rate)] * hosts) as lab:
                    rounds.append(precision_round(bench, lab, model, profile, number))
            precision_rows(bench, f"{model[1]}, {hosts} hosts, {formulas.show_rate(rate)}", rounds)


def precision_round(bench, lab, model, profile, number):
    """name -> predicted and measured samples per second; they take turns, and another one begins
    each round."""
    cluster = cluster_file(bench, len(lab.links), job_link(bench, lab))
    found = {}
    start = number % len(PRECISIONS)
    for name in PRECISIONS[start:] + PRECISIONS[:start]:
        path = bench.folder / f"{name}.plan.json"
        plan = bench.penstock("plan", "--profile", profile, "--cluster", cluster, "--strategy",
                              "dp", "--all-workers", "--sync-precision", name, "-o", path)
        measured, _ = planned_run(bench, lab, model, path, 0.3 if bench.args.quick else 3.0)
        found[name] = {"predicted": plan["throughput_samples_per_s"], "measured": measured}
        bench.log(f"    {name}: measured {measured:.0f}, predicted "
                  f"{found[name]['predicted']:.0f} samples/s")
    return found


def precision_rows(bench, where, rounds):
    for name in PRECISIONS:
        bench.row("precisions", f"{where}: dp in {name}", "samples/s",
                  formulas.summary([found[name]["predicted"] for found in rounds])["median"],
                  [found[name]["measured"] for found in rounds],
                  ratios=[found[name]["measured"] / found[name]["predicted"] for found in rounds])
    for name in PRECISIONS[1:]:
        measured = [found[name]["measured"] / found["float32"]["measured"] for found in rounds]
        predicted = [found[name]["predicted"] / found["float32"]["predicted"] for found in rounds]
        bench.row("precisions", f"{where}: {name} / float32", "ratio",
                  formulas.summary(predicted)["median"], measured,
                  ratios=[a / b for a, b in zip(measured, predicted)])
    bench.details[f"precisions, {where}"] = rounds


def computation_of(report):
    """Seconds of a step that the slower worker computes, which has one micro-batch."""
    return max(sum(worker["measured"][key] for key in ("forward_ns", "backward_ns", "step_ns"))
               for worker in report["workers"]) / 1e9


def take_turns(bench, hosts, rate, model, batch, steps, variants):
    """name -> samples per second of data parallelism, round by round; `variants`: name -> options.
    `hosts`: where each rank is."""
    found = {name: [] for name in variants}
    with Lab([Link(rate)] * (max(hosts) + 1)) as lab:
        for _ in range(1 if bench.args.quick else bench.args.rounds):
            for name, options in variants.items():
                command = bench.train(model, batch, steps, "--strategy", "dp", "--workers",
                                      len(hosts), *options, warmup=2)
                report, _ = bench.job(lab, hosts, command, seconds=120)
                found[name].append(report["throughput_samples_per_s"])
    return found


# Options, and how many times as long as communication computation takes.
OVERLAP_MODELS = [(("--model", "mlp", "--width", 1024), 1),
                  (("--model", "mlp", "--width", 1024, "--depth", 8), 1),
                  (("--model", "mlp", "--width", 1024, "--depth", 8), 2)]
OVERLAP_TARGET = 1.2
OVERLAP_RATE = 200e6


def overlap(bench):
    """What it brings that gradients travel while the workers compute. One after the other takes the
    time of the computation, measured on links without a limit, and that of the communication,
    measured with one sample per worker."""
    quick = bench.args.quick
    for model, times in OVERLAP_MODELS[:1] if quick else OVERLAP_MODELS:
        plan = bench.data_parallel(bench.profile(model, 64)[0], 2)
        with Lab([Link(OVERLAP_RATE)] * 2) as lab:

            def step(batch, rate, *options):
                """Seconds of one step, and of these the slower worker's computation."""
                for host in (0, 1):
                    lab.limit(host, Link(rate))
                command = bench.train(model, batch, 4 if quick else 7, "--plan", plan,
                                      *options, warmup=2)
                report, _ = bench.job(lab, [0, 1], command, seconds=120)
                return batch / report["throughput_samples_per_s"], computation_of(report)

            def communication():
                seconds, own = step(2, OVERLAP_RATE)
                return seconds - own

            def computation(batch):
                return step(batch, None)[1]

            some = 256 if quick else 2048
            batch = round(some * times * communication() / computation(some) / 64) * 64
            batch = max(batch, 64)
            steps = []
            for _ in range(1 if quick else bench.args.rounds):
                steps.append({
                    "overlap": step(batch, OVERLAP_RATE)[0],
                    "waits": step(batch, OVERLAP_RATE, "--clip-norm", "inf")[0],
                    "computation": computation(batch), "communication": communication()
                })
        words = f"{' '.join(str(word) for word in model[1:])}, {batch} samples"
        bench.details[f"overlap, {words}"] = steps
        bench.row("overlap", f"{words}: computation / communication", "ratio", None,
                  [step["computation"] / step["communication"] for step in steps])
        bench.row("overlap", f"{words}: one after the other / overlap", "ratio", None,
                  [(step["computation"] + step["communication"]) / step["overlap"]
                   for step in steps], low=OVERLAP_TARGET if times == 1 else None)
        bench.row("overlap", f"{words}: wait for all gradients / early start", "ratio", None,
                  [step["waits"] / step["overlap"] for step in steps])


def machines(bench):
    """Two hosts with two ranks each: adding inside the host first, against the other methods."""
    model = ("--model", "mlp", "--width", 256 if bench.args.quick else 1024)
    names = ("ordered", "ring", "hierarchical")
    found = take_turns(bench, [0, 0, 1, 1], 100e6, model, 64, 4 if bench.args.quick else 10,
                       {name: ("--sync", name) for name in names})
    for name in names[1:]:
        ratios = [a / b for a, b in zip(found[name], found["ordered"])]
        bench.row("machines", f"2 hosts with 2 ranks each, 100Mbps: {name} / ordered", "ratio",
                  None, ratios)


TEAM_MODEL = ("--model", "gpt", "--width", 512, "--depth", 4, "--heads", 8, "--input", 128,
              "--classes", 512, "--dropout", 0)
TEAM_PLANS = {
    "auto": ("--tensor", "auto"),
    "teams inside, stages between": ("--tensor", 2, "--strategy", "1f1b-flush"),
    "stages": ("--tensor", 1, "--strategy", "1f1b-flush", "--straight", "--all-workers"),
    "a team of four": ("--tensor", 4), "dp": ("--tensor", 1, "--strategy", "dp", "--all-workers")
}
TEAM_HOSTS = [0, 0, 1, 1]


def teams(bench):
    """Two hosts with two ranks each: a planned mix of teams and stages against each alone."""
    seconds = 0.3 if bench.args.quick else 4
    found = {name: [] for name in TEAM_PLANS}
    for number in range(1 if bench.args.quick else bench.args.rounds):
        profile, _ = bench.profile(TEAM_MODEL, 4, len(TEAM_HOSTS))
        with Lab([Link(1e9)] * 2) as lab:
            cluster = bench.folder / "teams.toml"
            bench.job(lab, TEAM_HOSTS, [bench.args.penstock, "probe", "--json", "--seconds", 0.9,
                                        "-o", cluster])
            names = list(TEAM_PLANS)
            for name in names[number % len(names):] + names[:number % len(names)]:
                path = bench.folder / "teams.plan.json"
                plan = bench.penstock("plan", "--profile", profile, "--cluster", cluster,
                                      "--micro-batches", 4, *TEAM_PLANS[name], "-o", path)
                measured, computation = planned_run(bench, lab, TEAM_MODEL, path, seconds,
                                                    TEAM_HOSTS)
                predicted = plan["throughput_samples_per_s"]
                found[name].append((measured, predicted))
                bench.log(f"    {name}: {plan['strategy']} {plan['config']}, measured "
                          f"{measured:.1f}, predicted {predicted:.1f} samples/s, computation x "
                          f"{computation:.2f}")
    bench.details["teams"] = found
    for name, runs in found.items():
        bench.row("teams", f"2 hosts with 2 ranks each, 1Gbps: {name}, measured / predicted",
                  "ratio", None, [measured / predicted for measured, predicted in runs],
                  0.85 if name == "auto" else None, 1.15 if name == "auto" else None)
    fastest = [max(runs[number][0] for name, runs in found.items() if name != "auto")
               for number in range(len(found["auto"]))]
    bench.row("teams", "2 hosts with 2 ranks each, 1Gbps: auto / the fastest other", "ratio", None,
              [runs[0] / best for runs, best in zip(found["auto"], fastest)], 0.97)


BOUNDARY_MODEL = ("--model", "gpt", "--width", 64, "--depth", 2, "--heads", 2, "--input", 128,
                  "--classes", 128, "--untied", "--dropout", 0)
BOUNDARY_CODINGS = ("float32", "bfloat16", "int8", "subspace:16", "auto")


def boundaries(bench):
    """Two hosts with a stage each: what codings of their boundary bring."""
    rate, seconds = min(bench.args.rates), 0.3 if bench.args.quick else 5
    found = {coding: [] for coding in BOUNDARY_CODINGS}
    profile, _ = bench.profile(BOUNDARY_MODEL, 8)
    for number in range(1 if bench.args.quick else bench.args.rounds):
        with Lab([Link(rate)] * 2) as lab:
            cluster = cluster_file(bench, 2, job_link(bench, lab))
            first = number % len(BOUNDARY_CODINGS)
            for coding in BOUNDARY_CODINGS[first:] + BOUNDARY_CODINGS[:first]:
                path = bench.folder / "boundary.plan.json"
                plan = bench.penstock("plan", "--profile", profile, "--cluster", cluster,
                                      "--strategy", "1f1b-flush", "--straight", "--all-workers",
                                      "--micro-batches", 8, "--boundary", coding, "-o", path)
                measured, computation = planned_run(bench, lab, BOUNDARY_MODEL, path, seconds)
                found[coding].append((measured, plan["throughput_samples_per_s"]))
                chosen = [link.get("coding", "float32") for link in plan["links"]]
                bench.log(f"    {coding} ({', '.join(chosen)}): measured {measured:.1f}, predicted "
                          f"{found[coding][-1][1]:.1f} samples/s, computation x {computation:.2f}")
    bench.details["boundaries"] = found
    where = f"2 hosts, {formulas.show_rate(rate)}"
    for coding, runs in found.items():
        # A plan that is made of a profile does not know how wide tokens are.
        is_priced = not coding.startswith("subspace")
        ratios = [measured / predicted for measured, predicted in runs] if is_priced else None
        bench.row("boundaries", f"{where}: {coding}", "samples/s", None,
                  [measured for measured, _ in runs], 0.85 if is_priced else None,
                  1.15 if is_priced else None, ratios=ratios)


DDP_TARGET = 1.0


def torch_of(bench):
    """Why there is no peer, or None."""
    try:
        done = subprocess.run([bench.args.torch_python, "-c", "import torch.distributed"],
                              capture_output=True)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else f"{bench.args.torch_python} has no torch"


def ddp(bench):
    """Data parallel training against PyTorch's, same layers, batch and links."""
    why = torch_of(bench)
    if why:
        return bench.skipped("ddp", "Penstock dp / PyTorch DDP", why)
    width, micro_batch = (256, 8) if bench.args.quick else (1024, 16)
    model = ("--model", "mlp", "--width", width, "--depth", 3)
    profile, weights = bench.profile(model, micro_batch)
    for hosts in bench.args.hosts[:1] if bench.args.quick else bench.args.hosts:
        batch = micro_batch * hosts
        for rate in bench.args.rates:
            per_step = formulas.synchronisation("ring", hosts, 0, weights).seconds(rate / 8)
            steps = 2 if bench.args.quick else max(4, round(2 / per_step))
            ours = bench.train(model, batch, steps + 2, "--plan",
                               bench.data_parallel(profile, hosts), warmup=2)
            peer = [
                bench.args.torch_python, PEERS / "ddp.py", *model, "--batch-size", batch, "--steps",
                steps, "--warmup", 2, "--threads", 1
            ]
            values, wire = {"ours": [], "peer": []}, {}
            with Lab([Link(rate)] * hosts) as lab:
                for number in range(1 if bench.args.quick else bench.args.rounds):
                    for name in ("ours", "peer") if number % 2 == 0 else ("peer", "ours"):
                        report, grown = bench.job(lab, list(range(hosts)),
                                                  ours if name == "ours" else peer,
                                                  {"GLOO_SOCKET_IFNAME": "eth0"})
                        key = "throughput_samples_per_s" if name == "ours" else "samples_per_s"
                        values[name].append(report[key])
                        wire[name] = max(host.sent for host in grown) / (steps + 2)
            where = f"{hosts} hosts, {formulas.show_rate(rate)}"
            for name, title in (("ours", "Penstock dp"), ("peer", "PyTorch DDP, Gloo")):
                bench.row("ddp", f"{title}, {where}", "ms/step",
                          1000 * per_step, [1000 * batch / value for value in values[name]])
            bench.row("ddp", f"Penstock dp / PyTorch DDP, {where}", "ratio", None,
                      [a / b for a, b in zip(values["ours"], values["peer"])], low=DDP_TARGET)
            bench.details[f"ddp, {where}"] = {"samples_per_s": values,
                                              "bytes_sent_per_step_start_included": wire}


# Options, samples of a mini-batch: weights so large that data parallelism waits for the network
# nearly all the time.
LARGE_MODEL = (("--model", "mlp", "--width", 4096, "--depth", 5), 128)
LARGE_TARGET = 20.0


def large(bench):
    """The planner's choice for a model with large weights, against PyTorch's data parallelism, with
    the same mini-batches on two hosts with the slowest links."""
    why = torch_of(bench)
    if why:
        return bench.skipped("large", "planner's choice / PyTorch DDP", why)
    rate, rounds = min(bench.args.rates), min(bench.args.rounds, 2)
    model, batch = LARGE_MODEL
    if bench.args.quick:
        model, rounds = ("--model", "mlp", "--width", 256, "--depth", 5), 1
    profile, _ = bench.profile(model, batch)
    path = bench.folder / "large.plan.json"
    values = {"ours": [], "predicted": [], "peer": []}
    with Lab([Link(rate)] * 2) as lab:
        cluster = cluster_file(bench, 2, job_link(bench, lab))
        plan = bench.penstock("plan", "--profile", profile, "--cluster", cluster, "--mini-batch",
                              batch, "--all-workers", "-o", path)
        peer = [
            bench.args.torch_python, PEERS / "ddp.py", *model, "--batch-size", batch, "--steps", 2,
            "--warmup", 1, "--threads", 1
        ]
        for _ in range(rounds):
            report, _ = bench.job(lab, [0, 1], bench.train(model, batch, 20, "--plan", path,
                                                           warmup=4), seconds=120)
            values["ours"].append(report["throughput_samples_per_s"])
            values["predicted"].append(report["predicted_throughput_samples_per_s"])
            report, _ = bench.job(lab, [0, 1], peer, {"GLOO_SOCKET_IFNAME": "eth0"}, seconds=120)
            values["peer"].append(report["samples_per_s"])
    where = f"{' '.join(map(str, model[1:]))}, 2 hosts, {formulas.show_rate(rate)}"
    bench.row("large", f"{where}: auto ({plan['strategy']} {plan['config']})", "samples/s",
              statistics.median(values["predicted"]), values["ours"])
    bench.row("large", f"{where}: auto / PyTorch DDP", "ratio", None,
              [a / b for a, b in zip(values["ours"], values["peer"])], low=LARGE_TARGET)
    bench.details[f"large, {where}"] = values


ALLREDUCE_TARGET = 1.10


def allreduce(bench):
    """One sum of gradients over the slowest links, against the formulas."""
    workers, rate = max(bench.args.hosts), min(bench.args.rates)
    size = 4_000_000 if bench.args.quick else 64_000_000
    times, rounds = (1, 1) if bench.args.quick else (2, min(bench.args.rounds, 2))
    programs = penstock_sums(bench, workers, rate, size, times)
    programs += peer_sums(bench, workers, size, times)
    values = {title: [] for title, _, _ in programs}
    for number in range(rounds):
        start = number % len(programs)
        for title, machines, run in programs[start:] + programs[:start]:
            with Lab([Link(rate)] * machines) as lab:
                values[title] += run(lab)
    ring = formulas.synchronisation("ring", workers, 0, size).seconds(rate / 8)
    where = f"{size / 1e6:g} MB, {workers} hosts, {formulas.show_rate(rate)}"
    for title, found in values.items():
        predicted, high = ring, None
        if isinstance(found[0], tuple):  # (seconds, formula) of Penstock's
            predicted, high = found[0][1], ALLREDUCE_TARGET
            found = [seconds for seconds, _ in found]
        bench.row("allreduce", f"{title}, {where}", "s", predicted, found, high=high)


def sent_per_call(grown, calls):
    return {"bytes_of_busiest_host": max(host.sent for host in grown) / calls,
            "segments_sent_again": sum(host.sent_again for host in grown)}


def penstock_sums(bench, workers, rate, size, times):
    """(title, machines, function that returns [(seconds, formula)]) for each method. A step with
    one sample per worker is communication, and a computation that is subtracted."""
    model = ("--model", "mlp", "--width", formulas.mlp_width(size))
    profile, weights = bench.profile(model, 1)

    def program(method, servers):
        title = f"Penstock {method.name}" + (f" with {servers} servers" if servers else "")
        expected = formulas.synchronisation(method.formula, workers, servers,
                                            method.share * weights)
        seconds = expected.seconds(rate / 8)
        command = bench.train(model, workers, times + 1, "--plan",
                              bench.data_parallel(profile, workers), *method.options, warmup=1)

        def run(lab):
            report, grown = bench.job(lab, list(range(workers + servers)), command,
                                      server_variables(servers), seconds=20 * seconds)
            step = workers / report["throughput_samples_per_s"]
            own = computation_of(report)
            bench.details.setdefault(f"allreduce, {title}", []).append(
                {"step_s": step, "computation_s": own, **sent_per_call(grown, times + 1)})
            return [(step - own, seconds)]

        return title, workers + servers, run

    return [program(method, servers)
            for method in (METHODS[name] for name in bench.args.methods) if bench.has_method(method)
            for _, servers in method.shapes([workers], bench.args.servers)]


def peer_sums(bench, workers, size, times):
    """The same of Gloo and Open MPI, as far as they are there; seconds."""
    everyone = list(range(workers))

    def program(title, command, **job):
        def run(lab):
            report, grown = bench.job(lab, everyone, command, seconds=300, **job)
            bench.details.setdefault(f"allreduce, {title}", []).append(sent_per_call(grown, times))
            return report["seconds"]

        return title, workers, run

    programs = []
    why = torch_of(bench)
    if why:
        bench.skipped("allreduce", "Gloo", why)
    else:
        command = [bench.args.torch_python, PEERS / "allreduce.py", "--bytes", size, "--times",
                   times]
        programs.append(program("Gloo", command, env={"GLOO_SOCKET_IFNAME": "eth0"}))
    if shutil.which("mpicc") and shutil.which("mpirun"):
        binary = bench.folder / "mpi_allreduce"
        subprocess.run(["mpicc", "-O2", "-o", binary, HERE / "mpi_allreduce.c"], check=True)
        programs.append(program("Open MPI", [binary, size, times], launcher="mpirun"))
    else:
        bench.skipped("allreduce", "Open MPI", "there is no mpicc or no mpirun")
    return programs


FAULT_S = 15  # a silent rank is given up after 12 to 15 s
FAULT_RANK = 2
FAULT_RANKS = 4


def kill(lab, ranks, rank):
    ranks[rank].process.kill()


def stop(lab, ranks, rank):
    ranks[rank].process.send_signal(signal.SIGSTOP)


def unplug(lab, ranks, rank):
    lab.set_link(rank, up=False)


# (what happens, how, to which rank, does that rank end by itself, part of --quick)
FAULTS = [
    ("is killed", kill, FAULT_RANK, True, True),
    ("is stopped (SIGSTOP)", stop, FAULT_RANK, False, False),
    ("loses its cable", unplug, FAULT_RANK, True, True),
    ("is killed", kill, 0, True, False),
    ("is stopped (SIGSTOP)", stop, 0, False, False),
    ("loses its cable", unplug, 0, True, False),
]


def until_training(lab, ranks, weights, steps):
    """Waits until a host has sent as much as that many steps send."""
    deadline = time.monotonic() + START_S
    before = lab.counters()[0].sent
    while lab.counters()[0].sent - before < steps * weights:
        if time.monotonic() > deadline or any(rank.process.poll() is not None for rank in ranks):
            raise Failed(f"the job did not begin to train: {ranks[0].stderr()[-300:]}")
        time.sleep(0.05)


def faults(bench):
    """A rank dies, is stopped or cut off while all train: the others end soon and name it."""
    model = ("--model", "mlp", "--width", 512)
    profile, weights = bench.profile(model, 8)
    batch = 8 * FAULT_RANKS
    left = []
    for what, action, victim, ends, quick in FAULTS:
        if bench.args.quick and not quick:
            continue
        with Lab([Link(min(bench.args.rates))] * FAULT_RANKS) as lab:
            bench.port += 2
            ranks = lab.start_ranks(
                list(range(FAULT_RANKS)),
                bench.train(model, batch, 2000, "--strategy", "dp", "--workers", FAULT_RANKS,
                            "--profile", profile), bench.port)
            until_training(lab, ranks, weights, 6)
            began = time.monotonic()
            action(lab, ranks, victim)
            others = [rank for number, rank in enumerate(ranks) if number != victim]
            wait_all(others + ([ranks[victim]] if ends else []), 3 * FAULT_S, 3 * FAULT_S)
            seconds = [rank.ended_s - began if rank.ended_s else 3 * FAULT_S for rank in others]
            naming = [rank for rank in others
                      if rank.code == 3 and f"rank {victim}" in rank.stderr()]
            if not ends:
                ranks[victim].process.kill()
                ranks[victim].process.wait()
            left += lab.running()
            title = f"{FAULT_RANKS} ranks, rank {victim} {what}"
            bench.details[f"faults, {title}"] = [
                {"rank": rank.name, "exit_code": rank.code, "message": rank.stderr()[-1500:]}
                for rank in ranks
            ]
        bench.row("faults", f"{title}: the others end after", "s", None, seconds,
                  high=FAULT_S, every=True, exact=True)
        bench.row("faults", f"{title}: others that name it", "ranks", FAULT_RANKS - 1,
                  [len(naming)], low=1, exact=True)
    bench.row("faults", "processes left running", "processes", None, [len(left)], high=0,
              exact=True)


ALL = {
    "links": links, "bytes": bytes_on_wires, "strategies": strategies,
    "precisions": precisions, "overlap": overlap, "machines": machines, "teams": teams,
    "boundaries": boundaries, "rounds": rounds, "ddp": ddp, "large": large,
    "allreduce": allreduce, "faults": faults
}
