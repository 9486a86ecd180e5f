"""The experiments of the network laboratory: what each predicts, runs and compares.

    bench = Bench(args, folder, log)
    ALL["bytes"](bench)
    bench.rows        # one dictionary per line of the table
"""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys

import formulas
from netlab import Lab, Link, wait_all

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
BYTES_ERROR = 0.03
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

    def shapes(self, hosts, servers):
        """(workers, CPU servers) to measure."""
        counts = [0] + ([k for k in servers if k > 0] if self.takes_servers else [])
        return [(n, k) for n in hosts for k in counts]


# "default" is what `train` does without an option. The others are measured as soon as the binary
# has them, see Bench.has_method().
METHODS = {
    method.name: method
    for method in (
        Method("default", "ordered", ()),
        Method("ordered", "ordered", ("--sync", "ordered")),
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
        self.log(f"  {what}: {row['measured']:.5g} {unit}, ratio {row['median']:.3f}, "
                 f"{row['verdict']}")
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
        if not method.options:
            return True
        if self.train_help is None:
            self.train_help = subprocess.run([self.args.penstock, "train", "--help"],
                                             capture_output=True, text=True).stdout
        lines = [line for line in self.train_help.splitlines() if "--sync" in line]
        return any(method.name in line for line in lines)

    def job(self, lab, hosts, command, env=None, seconds=60, launcher="ranks"):
        """Runs a job on the hosts; returns the JSON that rank 0 prints last, and by how much the
        counters of every host have grown."""
        self.port += 2
        before = lab.counters()
        if launcher == "mpirun":
            ranks = [lab.start_mpirun(hosts, command, {
                "MASTER_ADDR": lab.address(hosts[0]), "PENSTOCK_PORT": self.port, **(env or {})
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


def bytes_per_step(bench, lab, hosts, command_of_steps, steps, **job):
    """Per host (sent, received) and per rank bytes of one step: the difference between a long and a
    short run, so that start and end cancel."""
    reports, grown = [], []
    for count in steps:
        report, counters = bench.job(lab, hosts, command_of_steps(count), **job)
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
            return bench.train(model, batch, count, "--strategy", "dp", "--workers", workers,
                               "--profile", profile, *options)

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
            expected = formulas.synchronisation(method.formula, n, k, weights)
            helpers = f", {k} servers" if k else ""
            measure(f"{method.name}, {n} hosts{helpers}", list(range(n + k)), n, k, expected,
                    method.options)
    n = max(bench.args.hosts)
    expected = formulas.synchronisation("ordered", n, 0, weights)
    what = f"default, {n} hosts, by mpirun"
    if shutil.which("mpirun"):
        measure(what, list(range(n)), n, 0, expected, (), launcher="mpirun")
    else:
        bench.skipped("bytes", what, "there is no program 'mpirun' (Debian package openmpi-bin)")
    measure("default, 2 hosts with 2 ranks each", [0, 0, 1, 1], 4, 0,
            formulas.direct_exchange(2, 2, weights), ())


ALL = {"links": links, "bytes": bytes_on_wires}
