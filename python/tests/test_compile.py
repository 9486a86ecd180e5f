"""Trainers whose stages are compiled: against eager ones, in two cuts, from the cache, and without
a compiler."""

import json
import os
import pathlib
import tempfile
import time
import unittest
import warnings
from unittest import mock

import torch

import penstock

_FOLDER = tempfile.TemporaryDirectory()
os.environ["PENSTOCK_COMPILE_CACHE"] = _FOLDER.name
os.environ["PENSTOCK_COMPILE_ALL"] = "1"  # as fast or not: the models here are small
_STEPS = 4
#: Of losses, compiled against eager: the compiler rounds in another order.
_TOLERANCE = 1e-5


class Block(torch.nn.Module):
    """A block of a transformer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        batch, places, width = x.shape
        split = self.qkv(self.first(x)).view(batch, places, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, places, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(20, 16)
        self.blocks = torch.nn.Sequential(Block(16, 2), Block(16, 2))
        self.head = torch.nn.Linear(16, 20)

    def forward(self, x):
        return self.head(self.blocks(self.tokens(x)))


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(12, 8, batch_first=True)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def _mlp():
    return torch.nn.Sequential(
        torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.Tanh(),
        torch.nn.Linear(16, 5),
    )  # fmt: skip


def _convnet():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 6, 3, padding=1), torch.nn.BatchNorm2d(6), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Conv2d(6, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 2 * 2, 5),
    )  # fmt: skip




class Borders(torch.nn.Module):
    """Values between the halves that are permuted, and one whose gradient nobody wants."""

    def __init__(self):
        super().__init__()
        self.first, self.gate = torch.nn.Linear(6, 8), torch.nn.Linear(6, 8)
        self.second, self.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 5)

    def forward(self, x):  # [samples, 4, 6]
        both = self.first(x).transpose(1, 2), self.gate(x).transpose(1, 2)
        y = self.second(torch.tanh(both[0])) * both[1].detach().mean(2, keepdim=True)
        return self.head(y.mean(1))


class Compiled(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def trained(self, net, x, y, steps=_STEPS, **options):
        """Losses, weights and how long the trainer took to make."""
        begin = time.monotonic()
        settings = dict(strategy="1f1b-flush", workers=2, micro_batches=2, batch_size=len(x),
                        lr=0.1, momentum=0.9, profile_cache=False)  # fmt: skip
        trainer = penstock.Trainer(net, x, **{**settings, **options})
        took = time.monotonic() - begin
        losses = [trainer.step(x, y)["loss"] for _ in range(steps)]
        return losses, trainer.state_dict(), took, trainer

    def check(self, net, x, y):
        """Compiled is as eager, to the tolerance, and not by running eager."""
        eager, before, _, _ = self.trained(net, x, y)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="compile: ")
            losses, after, _, trainer = self.trained(net, x, y, compile=True)
        self.assertRegex(trainer._session.compile_notes[-1], r"compile: [12] piece")
        for one, other in zip(eager, losses):
            self.assertAlmostEqual(one, other, delta=_TOLERANCE * abs(one))
        for name, weight in before.items():
            torch.testing.assert_close(after[name], weight, rtol=1e-4, atol=1e-5)
        self.assertLess(losses[-1], losses[0])

    def test_mlp(self):
        self.check(_mlp(), torch.randn(8, 12), torch.randint(5, (8,)))

    def test_transformer(self):
        tokens = torch.randint(20, (4, 7))
        self.check(Gpt(), tokens[:, :-1], tokens[:, 1:])

    def test_borders_that_are_permuted_or_without_gradient(self):
        self.check(Borders(), torch.randn(8, 4, 6), torch.randint(5, (8,)))

    def test_convolutions_and_running_statistics(self):
        self.check(_convnet(), torch.randn(8, 2, 8, 8), torch.randint(5, (8,)))

    def test_a_stage_that_fails_in_the_compiler_runs_without_it(self):
        # AOTInductor cannot call oneDNN's backward pass of an LSTM.
        net, x, y = Lstm(), torch.randn(8, 6, 12), torch.randint(5, (8,))
        eager, _, _, _ = self.trained(net, x, y, workers=1, strategy="serial")
        for _ in range(2):  # the second one knows
            with self.assertWarnsRegex(UserWarning, "compile: layers '.*' run without a compiler"):
                losses, _, took, _ = self.trained(
                    net, x, y, workers=1, strategy="serial", compile=True
                )
            self.assertEqual(eager, losses)
        self.assertLess(took, 20)

    def test_the_second_trainer_finds_the_stages_in_the_cache(self):
        net, x, y = _mlp(), torch.randn(8, 12), torch.randint(5, (8,))
        first, _, _, _ = self.trained(net, x, y, compile=True)
        again, _, took, trainer = self.trained(net, x, y, compile=True)
        self.assertEqual(first, again)
        self.assertRegex(trainer._session.compile_notes[-1], "2 piece.s., 0 compiled now")
        self.assertLess(took, 10)

    def test_a_damaged_package_is_made_again(self):
        net, x, y = _mlp(), torch.randn(8, 12), torch.randint(5, (8,))
        first, _, _, _ = self.trained(net, x, y, compile=True)
        for package in pathlib.Path(_FOLDER.name).glob("*/backward.pt2"):
            content = bytearray(package.read_bytes())
            content[len(content) // 2] ^= 1
            package.write_bytes(content)
        again, _, _, trainer = self.trained(net, x, y, compile=True)
        self.assertEqual(first, again)
        self.assertRegex(trainer._session.compile_notes[-1], "2 piece.s., 2 compiled now")

    def test_without_a_compiler_it_says_so_and_trains(self):
        net, x, y = _mlp(), torch.randn(6, 12), torch.randint(5, (6,))
        eager, _, _, _ = self.trained(net, x, y)
        with self.assertWarnsRegex(UserWarning, "without a compiler: there is no C.. compiler"):
            with mock.patch.dict(os.environ, PATH="/nowhere"):
                losses, _, _, _ = self.trained(net, x, y, compile=True)
        self.assertEqual(eager, losses)

    def test_where_nothing_can_be_kept_it_says_so_and_trains(self):
        net, x, y = _mlp(), torch.randn(10, 12), torch.randint(5, (10,))
        eager, _, _, _ = self.trained(net, x, y)
        with self.assertWarnsRegex(UserWarning, "without a compiler: cannot write /dev/null"):
            with mock.patch.dict(os.environ, PENSTOCK_COMPILE_CACHE="/dev/null/packages"):
                losses, _, _, _ = self.trained(net, x, y, compile=True)
        self.assertEqual(eager, losses)

    def test_pieces_that_are_no_faster_are_left_out(self):
        net, x, y = _mlp(), torch.randn(14, 12), torch.randint(5, (14,))
        eager, _, _, _ = self.trained(net, x, y)
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(
            os.environ, PENSTOCK_COMPILE_CACHE=cache, PENSTOCK_COMPILE_ALL="0"
        ):
            self.trained(net, x, y, compile=True)  # measures
            kept = [*pathlib.Path(cache).glob("*/speed.json")]
            self.assertEqual(len(kept), 2)
            for file in kept:
                measured = json.loads(file.read_text())
                self.assertGreater(min(measured["layers"], measured["piece"]), 0)
            for layers, note in ((1, "run one by one"), (2, "2 from the cache")):
                with self.subTest(note):
                    for file in kept:
                        file.write_text(json.dumps({"layers": layers, "piece": 1.0}))
                    losses, _, _, trainer = self.trained(net, x, y, compile=True)
                    self.assertRegex(trainer._session.compile_notes[-1], note)
                    if layers == 1:
                        self.assertEqual(eager, losses)
            kept[0].write_text("no numbers")
            self.trained(net, x, y, compile=True)
            self.assertGreater(json.loads(kept[0].read_text())["layers"], 0)

    def test_what_cannot_be_compiled_is_refused(self):
        net, x = _mlp(), torch.randn(8, 12)
        with self.assertRaisesRegex(penstock.PenstockError, "compute in float32, found bfloat16"):
            penstock.Trainer(net, x, compile=True, precision="bfloat16", workers=1,
                             strategy="serial")  # fmt: skip


if __name__ == "__main__":
    unittest.main()
