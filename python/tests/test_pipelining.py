"""torch.distributed.pipelining trains with the split and the schedule of a plan, over Gloo."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=32, blocks=4):
        super().__init__()
        self.embed = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 16)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Turning(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, width)

    def forward(self, x):
        return (x + F.gelu(self.up(x))).transpose(1, 2)


class Turned(nn.Module):
    """Between its two blocks, where the best cut is, a transposed tensor crosses. A sample has 8
    tokens."""

    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Embedding(16, width)
        self.blocks = nn.ModuleList([Turning(width), Turning(width)])
        self.last = nn.Linear(width, 16)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def with_known_times(costs):
    """The same profile on a machine that takes 1 ms forward for each Linear, 0.1 ms for the rest:
    the best cut of the plan is in the middle of a block, where PyTorch cannot cut, and what is
    predicted does not vary."""
    for layer in costs["layers"]:
        is_linear = any(name in layer["name"] for name in ["up", "down", "head"])
        layer["forward_ns"] = 1_000_000 if is_linear else 100_000
        layer["backward_ns"] = 2 * layer["forward_ns"]
        layer["loss_ns"] = 0  # measured, it may be longer than these
        if layer.get("backward_weight_ns"):
            layer["backward_weight_ns"] = layer["forward_ns"]
    return costs


def batch(samples=16):
    tokens = torch.randint(0, 16, (samples, 8))
    return tokens, (tokens + 3) % 16


STRATEGIES = ["gpipe", "1f1b-flush", "zb-h1"]
#: By folder of the job: the model, and the strategy.
CASES = {strategy: (Net, strategy) for strategy in STRATEGIES} | {"turned": (Turned, "gpipe")}


def rank_main(folder):
    """One rank of the job: a stage of the model, for each of the cases."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store",
                            rank=int(os.environ["RANK"]), world_size=2)
    for case in CASES:
        losses = train_stage(dist.get_rank(), folder / case)
        if losses:
            (folder / case / "losses.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


def train_stage(rank, folder):
    """The losses, if this is the last stage."""
    from torch.distributed.pipelining import SplitPoint, pipeline
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    split = json.loads((folder / "split.json").read_text())
    torch.manual_seed(1)
    model = CASES[folder.name][0]()
    tokens, targets = batch()
    parts = split["micro_batches"]
    spec = {name: SplitPoint.BEGINNING for name in split["split_spec"]}
    pipe = pipeline(model, mb_args=(tokens[: len(tokens) // parts],), split_spec=spec)
    assert pipe.num_stages == 2, pipe.num_stages
    stage = pipe.build_stage(rank, torch.device("cpu"))
    schedule = _PipelineScheduleRuntime([stage], parts, loss_fn=loss)
    schedule._load_csv(str(folder / "schedule.csv"))
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.5)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        of_parts = []
        if rank == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=targets, losses=of_parts)
            losses.append(sum(one.item() for one in of_parts) / len(of_parts))
        optimizer.step()
    return losses


class PipeliningTest(unittest.TestCase):
    def test_it_trains_with_the_split_and_the_schedule(self):
        import penstock

        torch.set_num_threads(1)
        tokens = batch()[0][:4]
        known = {
            model: with_known_times(penstock.profile(model(), tokens, batch_size=4, samples=1))
            for model in (Net, Turned)
        }
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for case, (model, strategy) in CASES.items():
                costs = known[model]
                split = penstock.plan(costs, workers=2, strategy=strategy, straight=True,
                                      micro_batches=4, format="pytorch")
                self.assertEqual(len(split["split_spec"]), 1)
                self.assertLessEqual(
                    split["throughput_samples_per_s"],
                    1.001 * split["plan_throughput_samples_per_s"],
                )
                (folder / case).mkdir()
                (folder / case / "split.json").write_text(json.dumps(split))
                (folder / case / "schedule.csv").write_text(split["schedule"])
            ranks = [
                subprocess.Popen(
                    [sys.executable, __file__, str(folder)],
                    env={**os.environ, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
                    stderr=subprocess.PIPE, text=True,
                )
                for rank in range(2)
            ]
            for process in ranks:
                _, errors = process.communicate(timeout=240)
                self.assertEqual(process.returncode, 0, errors[-2000:])
            for case, (model, _) in CASES.items():
                with self.subTest(case):
                    losses = json.loads((folder / case / "losses.json").read_text())
                    self.are_as_without_a_pipeline(losses, model)

    def test_this_pytorch_reads_a_schedule_with_messages(self):
        from torch.distributed.pipelining import schedules

        import penstock

        costs = with_known_times(penstock.profile(Net(), batch()[0][:4], batch_size=4, samples=1))
        version = torch.__version__.split("+")[0]
        for strategy in STRATEGIES + ["zb-v"]:
            plan = penstock.plan(costs, workers=2, strategy=strategy, straight=True,
                                 micro_batches=4)
            text = penstock.schedule(plan, micro_batches=4, format="pytorch", pytorch=version)
            rows = [line.split(",") for line in text.splitlines()]
            orders = {rank: [schedules._Action.from_str(cell) for cell in row]
                      for rank, row in enumerate(rows)}  # fmt: skip
            self.assertEqual([[str(a) for a in order] for order in orders.values()], rows)
            if hasattr(schedules, "_validate_send_waits"):
                schedules._validate_send_waits(orders)
            self.assertTrue(penstock.verify(text)["ok"])

    def test_it_cuts_not_where_a_transposed_tensor_crosses(self):
        import penstock

        profile = penstock.profile(Turned(), batch()[0][:4], batch_size=4, samples=1)
        options = {"workers": 2, "strategy": "gpipe", "straight": True, "micro_batches": 4}
        costs = with_known_times(profile)
        cut = penstock.plan(costs, **options)["stages"][1]["layers"][0]
        self.assertTrue(cut.startswith("blocks.1"), cut)
        split = penstock.plan(costs, **options, format="pytorch")
        self.assertEqual(list(split["split_spec"]), ["blocks.0"])
        with self.assertRaisesRegex(penstock.PenstockError, "1 more a tensor crosses that is not"):
            penstock.plan(costs, **options, format="pytorch", cut_at="blocks.1")

    def are_as_without_a_pipeline(self, losses, model):
        self.assertEqual(len(losses), 20)
        self.assertLess(losses[-1], 0.9 * losses[0])
        torch.manual_seed(1)
        whole = model()
        tokens, targets = batch()
        optimizer = torch.optim.SGD(whole.parameters(), lr=0.5)
        for found in losses:
            optimizer.zero_grad()
            value = loss(whole(tokens), targets)
            value.backward()
            optimizer.step()
            self.assertAlmostEqual(found, value.item(), places=4)


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank_main(Path(sys.argv[1]))
    else:
        unittest.main()
