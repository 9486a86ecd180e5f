"""Two sites of two stages: rounds of steps (DiLoCo) and sums of factors (PowerSGD) against sums of
whole gradients at every step.

    rounds(bench)     # rows and details of the experiment "rounds"

Each site is a host with two ranks, a copy of the pipeline; between the sites is a slow link. All
methods have the same model, data, batch and inner optimiser. The time to a loss is the number of
steps to it times the time of a step; evaluations are apart from both. Sums at every step have the
losses of `ordered`, up to rounding.
"""

import dataclasses
import json
import pathlib

import formulas
from netlab import Lab, Link

DOCUMENTS = pathlib.Path(__file__).resolve().parents[2] / "docs"
HOSTS = [0, 1, 0, 1]  # of the workers: stage 0 of both copies, then stage 1
EVERY = 50  # steps of a round
FACTORS = 4  # rank of the sums of factors
BATCH = 8
MODEL = ("--model", "gpt", "--width", 192, "--depth", 2, "--heads", 4, "--input", 32, "--dropout",
         0, "--untied")
CLASSES = 2000
TARGET_BYTES = 50
TARGET_SPEED = 3
TARGET_SPEED_OF_FACTORS = 1.5
# Each with the best learning rate of 0.0003, 0.0005, 0.001 and 0.002; the outer one is the usual.
EXACT_RATE = 0.0005
ROUNDS_RATE = 0.0003
FACTORS_RATE = 0.0005
METHODS = {
    "ordered": ("--sync", "ordered", "--lr", EXACT_RATE),
    "ring": ("--sync", "ring", "--lr", EXACT_RATE),
    "hierarchical": ("--sync", "hierarchical", "--lr", EXACT_RATE),
    "diloco": ("--sync", f"diloco:{EVERY}", "--lr", ROUNDS_RATE),
    "diloco, bfloat16":
        ("--sync", f"diloco:{EVERY}", "--lr", ROUNDS_RATE, "--sync-precision", "bfloat16"),
    "powersgd": ("--sync", f"powersgd:{FACTORS}", "--lr", FACTORS_RATE),
    "powersgd, bfloat16":
        ("--sync", f"powersgd:{FACTORS}", "--lr", FACTORS_RATE, "--sync-precision", "bfloat16"),
}


@dataclasses.dataclass(frozen=True)
class Run:
    """What one method made of the training."""

    losses: dict  # of the test set, by step
    step_s: float
    bytes_per_step: float  # that a site sends

    def seconds_to(self, loss):
        """None: it never came so low."""
        steps = [step for step, found in self.losses.items() if found <= loss]
        return min(steps) * self.step_s if steps else None


def two_copies(bench, data):
    """A plan of two copies of a pipeline of two stages, cut before the second block; bytes of its
    weights and of their factors."""
    profile, weights = bench.profile((*MODEL, "--classes", CLASSES), 2)
    names = [layer["name"] for layer in json.loads(profile.read_text())["layers"]]
    cut = next(i for i, name in enumerate(names) if name.startswith("transformer.h.1."))
    path = bench.folder / "rounds.plan.json"
    path.write_text(json.dumps({
        "format": "penstock-plan", "version": 3, "model": "gpt", "strategy": "1f1b-flush",
        "weights": "flush", "micro_batch_size": 2, "micro_batches": BATCH // 2, "depth": 2,
        "cluster": {"levels": [{"name": "site", "count": 4, "bandwidth_bytes_per_s": 12500000,
                                "latency_ns": 100000}],
                    "device": {"name": "core", "memory_bytes": 0, "speed": 1.0}},
        "stages": [{"layers": layers, "replicas": 2, "forward_ns": 0, "backward_ns": 0,
                    "step_ns": 0, "memory_bytes": 0, "weight_bytes": 0, "stash_bytes": 0}
                   for layers in (names[:cut], names[cut:])]
    }))
    return path, weights, weights - saved_by_factors(json.loads(profile.read_text())["layers"])


def saved_by_factors(layers):
    """Bytes of all weights less those of their factors of rank FACTORS."""
    matrices = [matrix for layer in layers for matrix in layer.get("matrices", [])]
    return 4 * sum(max(0, n * m - (n + m) * FACTORS) for n, m in matrices)


def train(bench, plan, data, steps, options):
    return [bench.args.penstock, "train", *MODEL, "--data", data, "--plan", plan,
            "--batch-size", BATCH, "--steps", steps, "--epochs", 1000, "--threads", 1,
            "--optimizer", "adamw", "--seed", 1, "--json", *options]


def losses_of(bench, lab, plan, data, steps, options):
    """Of the test set, by step: at ends of rounds, where copies have the same weights."""
    every = max(2, steps // 6 if bench.args.quick else 2 * EVERY)
    report, _ = bench.job(lab, HOSTS, train(bench, plan, data, steps, options) +
                          ["--eval-every", every], seconds=3600)
    return {entry["step"]: entry["loss"] for entry in report["eval"]}


def time_and_bytes(bench, lab, plan, data, options):
    """Seconds of a step, and bytes that a site sends per step."""
    few, many = (2, 6) if bench.args.quick else (EVERY, 2 * EVERY)
    sent = []
    for count in (few, many):
        report, hosts = bench.job(lab, HOSTS, train(bench, plan, data, count, options) +
                                  ["--no-eval", "--warmup-steps", 1], seconds=3600)
        sent.append(hosts[0].sent)
    return BATCH / report["throughput_samples_per_s"], (sent[1] - sent[0]) / (many - few)


def rounds(bench):
    """Bytes between the sites, and the time to the loss that sums at every step reach."""
    rate = min(bench.args.rates)
    steps = 4 if bench.args.quick else 300
    text = sorted(str(page) for page in DOCUMENTS.rglob("*.md"))
    data = bench.folder / "text"
    bench.penstock("data", "text", "--from", *text, "-o", data, "--vocabulary", CLASSES)
    plan, weights, factors = two_copies(bench, data)
    found = {}
    losses = {}
    with Lab([Link(rate)] * 2) as lab:
        for name, options in METHODS.items():
            if name == "ordered":
                losses = losses_of(bench, lab, plan, data, steps, options)
            if not is_exact(name):  # more steps, which are shorter
                losses = losses_of(bench, lab, plan, data, 2 * steps, options)
            found[name] = Run(losses, *time_and_bytes(bench, lab, plan, data, options))
            bench.log(f"    {name}: {found[name].step_s:.4f} s and "
                      f"{found[name].bytes_per_step:.0f} B per step, losses {found[name].losses}")
    bench.details["rounds"] = {name: dataclasses.asdict(run) for name, run in found.items()}
    report_rounds(bench, found, weights, factors,
                  f"two sites of 2 stages, {formulas.show_rate(rate)}")


def is_exact(name):
    """Whether the method adds whole gradients at every step."""
    return not name.startswith(("diloco", "powersgd"))


def expected_bytes(name, weights, factors):
    """That a site sends per step. It has one replica of each of two: 2(n-1)/n M, and of rounds the
    part of a step."""
    sent = factors if name.startswith("powersgd") else weights
    return sent / (EVERY if name.startswith("diloco") else 1) / (2 if "bfloat16" in name else 1)


def report_rounds(bench, found, weights, factors, where):
    exact = [name for name in found if is_exact(name)]
    loss = min(found["ordered"].losses.values())
    fastest = min(filter(None, (found[name].seconds_to(loss) for name in exact)), default=None)
    for name, run in found.items():
        bench.row("rounds", f"{where}: {name}, bytes per step", "bytes",
                  expected_bytes(name, weights, factors), [run.bytes_per_step])
        seconds = run.seconds_to(loss)
        if seconds is None:
            bench.skipped("rounds", f"{where}: {name}", f"never had a test loss of {loss:.3f}")
            continue
        bench.row("rounds", f"{where}: {name}, to a test loss of {loss:.3f}", "s", None, [seconds])
        if name in exact:
            continue
        fewer = weights / expected_bytes(name, weights, factors)
        if name == "diloco":
            fewer = TARGET_BYTES
        bench.row("rounds", f"{where}: fewer bytes by {name}", "times", None,
                  [found["ordered"].bytes_per_step / run.bytes_per_step], fewer * 0.97)
        bench.row("rounds", f"{where}: sooner by {name}", "times", None, [fastest / seconds],
                  TARGET_SPEED if name.startswith("diloco") else TARGET_SPEED_OF_FACTORS)
