"""The methods and models that are compared. No input or output, no state.

    METHODS["gpipe"].plan      # options of `penstock plan`
    missing(method, help_text) # why this penstock cannot run it, or None
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Method:
    """`plan` are options of `penstock plan`, `train` of `penstock train`. `asynchronous`: the name
    of the option's value is looked for in the help text, because it is not settled."""

    name: str
    title: str
    source: str
    plan: tuple[str, ...]
    train: tuple[str, ...] = ()
    hosts: int | None = None  # None: any number
    asynchronous: bool = False


# GPipe as PipeDream's authors ran it: as many micro-batches per step as PipeDream has mini-batches
# in flight with two workers; and with four times as many, where it wastes less time on flushes.
METHODS = {
    method.name: method
    for method in (
        Method("dp", "data parallelism", "all-reduce", ("--strategy", "dp", "--all-workers")),
        Method("mp", "model parallelism", "no pipeline",
               ("--strategy", "mp", "--straight", "--all-workers")),
        Method("hybrid", "hybrid 2-1", "model and data parallelism, no pipeline",
               ("--strategy", "hybrid", "--all-workers"), hosts=3),
        Method("gpipe-2", "GPipe, 2 micro-batches", "NeurIPS 2019",
               ("--strategy", "gpipe", "--straight", "--all-workers", "--micro-batches", "2")),
        Method("gpipe-8", "GPipe, 8 micro-batches", "NeurIPS 2019",
               ("--strategy", "gpipe", "--straight", "--all-workers", "--micro-batches", "8")),
        Method("1f1b-straight", "PipeDream, straight", "SOSP 2019",
               ("--strategy", "1f1b", "--straight", "--all-workers")),
        Method("1f1b-planned", "PipeDream, planned", "SOSP 2019", ("--strategy", "1f1b")),
        Method("2bw", "2BW", "ICML 2021", ("--strategy", "2bw", "--straight", "--all-workers")),
        Method("flush", "PipeDream-Flush, 8 micro-batches", "ICML 2021",
               ("--strategy", "1f1b-flush", "--straight", "--all-workers", "--micro-batches",
                "8")),
        Method("predict", "PipeDream, weights predicted", "SpecTrain, PipeOptim",
               ("--strategy", "1f1b", "--straight", "--all-workers", "--compensate", "predict")),
        Method("correct", "latest weights, corrected", "PipeMare, MLSys 2021",
               ("--strategy", "1f1b", "--straight", "--all-workers", "--weights", "latest",
                "--compensate", "correct")),
        Method("auto", "the planner's choice", "all kinds of plans", ()),
        Method("asp", "asynchronous parameter server", "ASP of SOSP 2019, section 5.2",
               ("--strategy", "dp", "--all-workers"), asynchronous=True),
    )
}


def asynchronous_sync(help_text):
    """The value of --sync that means asynchronous updates, or None."""
    at = help_text.find("--sync")
    if at < 0:
        return None
    until = help_text.find("\n  --", at + 1)
    found = re.search(r"\basync[\w-]*", help_text[at:until if until > 0 else None])
    return found.group(0) if found else None


def missing(method, help_text):
    """Why `penstock train`, with this help text, cannot run the method; None if it can."""
    if method.asynchronous and asynchronous_sync(help_text) is None:
        return "this penstock has no `train --sync async...`"
    return None


def train_options(method, help_text):
    """Options of `penstock train` for the method."""
    if method.asynchronous:
        return (*method.train, "--sync", asynchronous_sync(help_text))
    return method.train


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    options: tuple[str, ...]
    micro_batch: int
    like: str  # models of the papers with weights of the same kind
    data: str = "synthetic"


# Small inputs, so that two cores take about as long for a mini-batch as a link of 1 Gbps for its
# gradients. alexnet keeps all of its 57 million weights: its pooling makes the dense layers
# independent of the input.
MODELS = {
    model.name: model
    for model in (
        Model("mlp", ("--model", "mlp", "--width", "1024"), 64, "AWD LM: dense weights only"),
        Model("alexnet", ("--model", "alexnet", "--input", "3x64x64", "--classes", "10"), 32,
              "AlexNet and VGG-16: most weights are dense"),
        Model("vgg_small", ("--model", "vgg_small"), 32, "convolutions, few weights"),
        Model("resnet18", ("--model", "resnet18", "--input", "3x64x64", "--classes", "10"), 32,
              "ResNet-50: convolutions only"),
    )
}


@dataclasses.dataclass(frozen=True)
class Task:
    """What is learned, from which data, and how well. `data` are options of `penstock data`;
    `sizes` those of the model, beside --classes and --input; `learn` those of `penstock train`."""

    name: str
    title: str
    folder: str  # below --tokens
    data: tuple[str, ...]
    sizes: tuple[str, ...]
    input: str  # {frames} and {longest}: of the data
    batch: int  # samples per optimiser step, of data parallelism over two workers and of pipelines
    optimizer: str
    learn: tuple[str, ...]
    metric: str
    target: float
    steps: int  # at most
    every: int  # steps between two evaluations
    test_samples: int
    like: str
    falls: bool = True  # lower is better

    def model(self, manifest):
        """Options of the model for data with this manifest."""
        sizes = {"frames": "{count}x{numbers}".format(**manifest["frames"])
                 if "frames" in manifest else ""}
        sizes["longest"] = manifest["parts"]["train"].get("longest", 0) + 1
        return (*self.sizes, "--classes", str(manifest["vocabulary"]["size"]), "--input",
                self.input.format(**sizes), "--optimizer", self.optimizer)


# Each of PipeDream's tasks beside images, small enough for two cores and a few minutes, with large
# vocabularies: their weights are what an all-reduce carries. The head of `gpt` is its own, because
# a weight that two stages share needs flushes.
TASKS = {
    task.name: task
    for task in (
        Task("translation", "English to German", "help",
             ("translation", "--from", "libreoffice-help", "--languages", "en-US", "de",
              "--vocabulary", "4000"),
             ("--model", "gnmt8", "--width", "128", "--depth", "2"), "24x24", 16, "adam",
             ("--lr", "0.003", "--lr-warmup", "50", "--clip-norm", "5"), "perplexity", 280, 600, 50,
             100,
             "GNMT-8 and GNMT-16"),
        Task("language", "the King James Bible", "book",
             ("text", "--from", "sword", "--modules", "KJV", "--vocabulary", "4000"),
             ("--model", "gpt", "--untied", "--width", "128", "--depth", "3"), "64", 8, "adamw",
             ("--lr", "0.0004"), "perplexity", 130, 600, 50, 50, "AWD LM: a text"),
        Task("captions", "clips of emoji", "emoji",
             ("captions", "--from", "emoji", "--pictures", "16", "--frames", "6"),
             ("--model", "s2vt", "--depth", "3", "--width", "256", "--embedding", "256"),
             "{frames}x{longest}", 16, "adamw",
             ("--lr", "0.002", "--lr-schedule", "cosine", "--schedule-steps", "600"),
             "meteor-stem", 0.35, 600, 50, 150, "S2VT", falls=False),
    )
}
# In the order of their rows; the pipelines of two hosts have the same two stages.
TASK_METHODS = ("dp", "mp", "gpipe-2", "gpipe-8", "1f1b-straight", "2bw", "flush", "predict",
                "correct", "auto")


def all_reduce_share(weight_bytes, workers, bits_per_s, compute_s):
    """Time of an all-reduce of the weights over the computing time of a mini-batch per worker:
    2(n-1)/n M/B / T. Above 1, data parallelism spends most of its time on the links."""
    if workers < 1 or bits_per_s <= 0 or compute_s <= 0:
        raise ValueError(f"expected workers >= 1 and positive rate and time, found {workers}, "
                         f"{bits_per_s}, {compute_s}")
    return 2 * (workers - 1) / workers * weight_bytes * 8 / bits_per_s / compute_s
