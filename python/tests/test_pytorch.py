"""Plans in PyTorch's own pipelines: the models of test_models.py are cut as a plan says and trained
for five steps by two processes, with the losses and weights of the whole module. torchtitan
and DeepSpeed are left out where they are not installed.

test_pytorch.py [-k NAME]
"""

import copy
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import test_models
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

STEPS, PARTS = 5, 4
#: Every kind of placement: a stage per worker, several in a loop, and in a V.
STRATEGIES = ["gpipe", "zb-h1", "interleaved", "zb-v", "dualpipe-v"]


def without_randomness(model):
    """Its random parts stay, but drop nothing: processes draw other numbers than one alone."""
    attention, dropout = F.scaled_dot_product_attention, F.dropout
    if F.dropout.__module__ == "torch.nn.functional":
        F.dropout = lambda x, p=0.5, training=True, inplace=False: dropout(x, 0.0, training)
        F.scaled_dot_product_attention = lambda *given, dropout_p=0.0, **more: attention(
            *given, **more
        )
    for part in model.modules():
        for name in ("p", "dropout"):  # of StochasticDepth, MultiheadAttention, LSTM
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    if hasattr(model, "config"):
        model.config.use_cache = False
    return model


def loss(output, target):
    if target.is_floating_point():
        return F.mse_loss(output, target)
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


class HalfFrozen(nn.Module):
    """Its first part is frozen. The weights of `places` meet what came before at the product."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Sequential(nn.Linear(16, 8), nn.Tanh()).requires_grad_(False)
        self.middle, self.places, self.head = nn.Linear(8, 8), nn.Embedding(1, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.middle(self.frozen(x)).tanh()
        return self.head(x * self.places(torch.zeros(x.shape[0], dtype=torch.long)))


def half_frozen():
    return HalfFrozen(), (torch.randn(8, 16), torch.randint(4, (8,)))


#: Where its stages begin, by strategy.
HALF_FROZEN_CUTS = {"zb-h1": ["middle"], "zb-v": ["middle", "places", "head"]}


def made(name):
    """The model, its inputs, its targets, its loss; the same in every process."""
    torch.manual_seed(1)
    model, data, *of_model = (globals().get(name) or getattr(test_models, name))()
    model = without_randomness(model)
    if isinstance(data, dict):
        return model, data, None, None
    return model, *data, loss


def whole_losses(model, inputs, target, loss_fn):
    """Of the module alone, with PyTorch's order of sums: gradients of the micro-batches are added,
    then divided by their number. Batch norm after few numbers makes much of other roundings."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        if loss_fn is None:
            pieces = {name: value.chunk(PARTS) for name, value in inputs.items()}
            of_parts = [
                model(**{name: piece[part] for name, piece in pieces.items()})[0]
                for part in range(PARTS)
            ]
        else:
            pairs = zip(inputs.chunk(PARTS), target.chunk(PARTS))
            of_parts = [loss_fn(model(x), y) for x, y in pairs]
        for one in of_parts:
            one.backward()
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad /= PARTS
        optimizer.step()
        found.append(sum(one.item() for one in of_parts) / PARTS)
    return found


def pipeline_losses(stages, schedule, inputs, target):
    weights = [weight for stage in stages for weight in stage.submod.parameters()]
    optimizer = torch.optim.SGD(weights or [torch.zeros(1)], lr=0.05)  # a stage may have none
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        of_parts = []
        if isinstance(inputs, dict):
            schedule.step(**inputs, losses=of_parts)
        else:
            schedule.step(inputs, target=target, losses=of_parts)
        optimizer.step()
        found += [sum(one.item() for one in of_parts) / PARTS] if of_parts else []
    return found


def rank_main(folder):
    """One rank: trains its stages of each model; the last stage's compares."""
    import penstock.pytorch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store",
                            rank=int(os.environ["RANK"]), world_size=2)  # fmt: skip
    for path in sorted(folder.glob("*.plan.json")):
        model, inputs, target, loss_fn = made(path.name.split(".")[0])
        whole = copy.deepcopy(model)
        stages, schedule = penstock.pytorch.pipeline(model, inputs, path, loss_fn=loss_fn)
        losses = pipeline_losses(stages, schedule, inputs, target)
        if not losses:
            continue
        expected = whole_losses(whole, inputs, target, loss_fn)
        weights = whole.state_dict()
        apart = max(
            (value - weights[name]).abs().max().item()
            for name, value in stages[-1].submod.state_dict().items()
            if name in weights and value.is_floating_point()
        )
        document = {"losses": losses, "expected": expected, "apart": apart}
        path.with_suffix(".losses").write_text(json.dumps(document))
    dist.destroy_process_group()


def deepspeed_main(folder):
    """One rank: DeepSpeed trains a sequence with the plan's cut. It builds no operators, which take
    a compiler."""
    import deepspeed
    import deepspeed.comm.torch
    import penstock.pytorch

    deepspeed.comm.torch.build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)]
    document = {"stages": [["0", "1", "2"], ["3", "4"]]}
    module = penstock.pytorch.deepspeed_module(layers, document, loss_fn=nn.CrossEntropyLoss())
    engine, *_ = deepspeed.initialize(
        model=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        config={"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4},
    )  # fmt: skip
    x = torch.randn(16, 8)
    data = list(zip(x.chunk(PARTS), x[:, :4].argmax(1).chunk(PARTS)))
    losses = [float(engine.train_batch(iter(data))) for _ in range(STEPS)]
    found = {"parts": module.parts, "names": [name for name, _ in module.named_parameters()]}
    name = f"deepspeed.{os.environ['RANK']}.json"
    (folder / name).write_text(json.dumps({**found, "losses": losses}))


def is_installed(package):
    try:
        test_models.vision() if package == "torchvision" else __import__(package)
    except ImportError:
        return False
    return True


def costs_of(name):
    import penstock

    model, inputs, _, _ = made(name)
    return penstock.profile(model, inputs, batch_size=2, samples=1)


def plan_with_cuts(costs, strategy, begins):
    document = plan(costs, strategy)
    layers = [layer["name"] for layer in costs["layers"]]
    cuts = [0, *(layers.index(name) for name in begins), len(layers)]
    for k, stage in enumerate(document["stages"]):
        stage["layers"] = layers[cuts[k] : cuts[k + 1]]
    return document


def plan(costs, strategy="1f1b-flush", **options):
    import penstock

    return penstock.plan(costs, workers=2, strategy=strategy, straight=True, all_workers=True,
                         micro_batches=PARTS, **options)  # fmt: skip


class PytorchTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")

    def trains(self, plans):
        """Plans by a name that begins with that of a model."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for of_plan, document in plans.items():
                (folder / f"{of_plan}.plan.json").write_text(json.dumps(document))
            ranks = [
                subprocess.Popen(
                    [sys.executable, __file__, str(folder)],
                    env={**os.environ, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                )
                for rank in range(2)
            ]  # fmt: skip
            errors = [process.communicate(timeout=540)[1] for process in ranks]
            for process, error in zip(ranks, errors):
                self.assertEqual(process.returncode, 0, error[-3000:])
            for of_plan in plans:
                with self.subTest(of_plan):
                    found = json.loads((folder / f"{of_plan}.plan.losses").read_text())
                    self.assertEqual(len(found["losses"]), STEPS)
                    for value, expected in zip(found["losses"], found["expected"]):
                        self.assertAlmostEqual(value, expected, places=4)
                    self.assertLess(found["apart"], 1e-4)

    @unittest.skipUnless(importlib.util.find_spec("deepspeed"), "DeepSpeed is not installed")
    def test_deepspeed_trains_with_the_cut(self):
        with tempfile.TemporaryDirectory() as name:
            world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29717",
                     "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}  # fmt: skip
            ranks = [
                subprocess.Popen(
                    [sys.executable, __file__, name, "deepspeed"],
                    env={**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                )
                for rank in range(2)
            ]  # fmt: skip
            errors = [process.communicate(timeout=300)[1] for process in ranks]
            for process, error in zip(ranks, errors):
                self.assertEqual(process.returncode, 0, error[-3000:])
            found = [json.loads((Path(name) / f"deepspeed.{k}.json").read_text()) for k in (0, 1)]
        self.assertEqual([one["parts"] for one in found], [[0, 3, 5]] * 2)
        self.assertEqual(found[1]["names"], ["4.weight", "4.bias"])
        self.assertLess(found[1]["losses"][-1], found[1]["losses"][0])

    def test_torchtitan_splits_by_the_parts(self):
        import penstock.pytorch

        try:
            from torchtitan.distributed import pipeline_parallel as titan
        except ImportError as error:
            self.skipTest(str(error))
        model = nn.Module()
        model.tok_embeddings = nn.Embedding(16, 8)
        model.layers = nn.ModuleDict({str(k): nn.Linear(8, 8) for k in range(3)})
        model.output = nn.Linear(8, 16)
        layers = [["tok_embeddings", "layers.0"], ["layers.1", "layers.2-add", "output"]]
        parts = penstock.pytorch.module_parts({"stages": layers})
        split = [titan._split_module(model, names) for names in parts]
        self.assertEqual(
            [sorted({name.rpartition(".")[0] for name in one.state_dict()}) for one in split],
            [["layers.0", "tok_embeddings"], ["layers.1", "layers.2", "output"]],
        )

    def test_models_and_strategies_train_as_whole(self):
        for package in ("torchvision", "transformers"):
            if not is_installed(package):
                print(f"without {package}: its models are left out", file=sys.stderr)
        makers = [*test_models.OWN]
        makers += test_models.VISION if is_installed("torchvision") else []
        makers += test_models.LIBRARY if is_installed("transformers") else []
        plans = {}
        for make in makers:
            try:
                plans[make.__name__] = plan(costs_of(make.__name__))
            except torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode as error:
                print(f"{make.__name__} cannot be exported: {error}", file=sys.stderr)
        models = len(plans)
        costs = costs_of("small_gpt")  # with a weight of the first and the last stage
        plans |= {f"small_gpt.{strategy}": plan(costs, strategy) for strategy in STRATEGIES}
        self.trains({**plans, "small_gpt.split": plan(costs, format="pytorch")})
        print(f"{models} of {len(makers)} models trained", file=sys.stderr)

    def test_weights_behind_no_gradient_are_trained(self):
        """PyTorch's divided backward passes leave them without one."""
        costs = costs_of("half_frozen")
        self.trains({
            f"half_frozen.{strategy}": plan_with_cuts(costs, strategy, begins)
            for strategy, begins in HALF_FROZEN_CUTS.items()
        })  # fmt: skip

    def test_it_refuses_what_pytorch_cannot(self):
        import penstock.pytorch

        costs = costs_of("unet")
        model, inputs, target, _ = made("unet")
        good = plan(costs)
        replicated = copy.deepcopy(good)
        replicated["stages"][0]["replicas"] = 2
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        for document, said in (
            ({**good, "strategy": "1f1b", "weights": "stash"}, "PyTorch does not run 1f1b"),
            (replicated, "no replicas of single stages"),
            (good, "the plan is for 2 workers: expected as many processes, found 1"),
        ):
            with self.assertRaisesRegex(penstock.PenstockError, said):
                penstock.pytorch.pipeline(model, inputs, document, loss_fn=loss)
        alone = penstock.plan(costs, workers=1, strategy="gpipe", micro_batches=3)
        with self.assertRaisesRegex(penstock.PenstockError, "a batch of 8 samples cannot be cut"):
            penstock.pytorch.pipeline(model, inputs, alone, loss_fn=loss)


if __name__ == "__main__":
    if "RANK" in os.environ:
        (deepspeed_main if "deepspeed" in sys.argv else rank_main)(Path(sys.argv[1]))
    else:
        unittest.main()
