"""Teams of workers (tensor parallelism): programs of PyTorch trained by teams learn what one worker
learns, and give whole weights back."""

import copy
import tempfile
import unittest
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import penstock
import penstock.pytorch

TOKENS, TIME, WIDTH, HEADS, GROUPS = 32, 12, 16, 4, 2


class Attention(nn.Module):
    """Causal, with fewer heads of keys and values than of queries, as in Llama."""

    def __init__(self):
        super().__init__()
        part = WIDTH // HEADS
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, GROUPS * part, bias=False)
        self.v_proj = nn.Linear(WIDTH, GROUPS * part, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        batch, time, _ = x.shape

        def heads(values, count):
            return values.view(batch, time, count, -1).transpose(1, 2)

        def each(values):
            return heads(values, GROUPS).repeat_interleave(HEADS // GROUPS, dim=1)

        mixed = F.scaled_dot_product_attention(
            heads(self.q_proj(x), HEADS), each(self.k_proj(x)), each(self.v_proj(x)),
            is_causal=True,
        )  # fmt: skip
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, time, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.middle_norm = nn.LayerNorm(WIDTH)
        self.gate_proj = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.up_proj = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down_proj = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attention(self.input_norm(x))
        h = self.middle_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embed(tokens))))


class Recurrent(nn.Module):
    """An LSTM that is wide enough for a team, of two layers; it reads few places."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.embed = nn.Embedding(TOKENS, 64)
        self.lstm = nn.LSTM(64, 192, num_layers=2, batch_first=True)
        self.head = nn.Linear(192, TOKENS)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


def data():
    numbers = torch.Generator().manual_seed(4)
    x = torch.randint(0, TOKENS, (8, TIME), generator=numbers)
    return x, (3 * x + 1) % TOKENS


class Teams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = Decoder()
        cls.x, cls.y = data()
        cls.losses, cls.weights = cls.trained(workers=1, strategy="serial")

    @classmethod
    def trainer(cls, **options):
        options = {"optimizer": "SGD", "momentum": 0.9, "lr": 0.05, **options}
        return penstock.Trainer(
            cls.model, cls.x[:2], batch_size=8, micro_batches=2, **options
        )  # fmt: skip

    @classmethod
    def trained(cls, **options):
        trainer = cls.trainer(**options)
        losses = [trainer.step(cls.x, cls.y)["loss"] for _ in range(6)]
        return losses, trainer.state_dict()

    def expect_same(self, losses, weights):
        for ours, theirs in zip(losses, self.losses, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-5 * theirs)
        back = copy.deepcopy(self.model)
        back.load_state_dict(weights, strict=True)
        for name, value in self.weights.items():
            torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-5)

    def test_one_worker_learns(self):
        self.assertLess(self.losses[-1], 0.97 * self.losses[0])

    def test_a_team_learns_what_one_worker_learns(self):
        trainer = self.trainer(workers=2, tensor=2)
        self.assertEqual([one["tensor"] for one in trainer.plan["stages"]], [2])
        self.assertIn("2 workers", repr(trainer))
        losses = [trainer.step(self.x, self.y)["loss"] for _ in range(6)]
        self.expect_same(losses, trainer.state_dict())

    def test_teams_in_a_pipeline_and_side_by_side(self):
        for strategy in ("1f1b-flush", "dp", "gpipe"):
            with self.subTest(strategy=strategy):
                self.expect_same(*self.trained(workers=4, tensor=2, strategy=strategy))

    def test_members_share_the_places_of_sequences(self):
        for options in ({"workers": 2, "tensor": 2}, {"workers": 4, "tensor": 4},
                        {"workers": 4, "tensor": 2, "strategy": "1f1b-flush"}):  # fmt: skip
            with self.subTest(**options):
                trainer = self.trainer(sequence_parallel=True, **options)
                self.assertTrue(all(one["sequence"] for one in trainer.plan["stages"]))
                losses = [trainer.step(self.x, self.y)["loss"] for _ in range(6)]
                self.expect_same(losses, trainer.state_dict())
                again, _ = self.trained_by(trainer.plan)
                self.assertEqual(losses, again)

    def test_places_are_shared_out_unevenly(self):
        for options in ({"workers": 8, "tensor": 8}, {"workers": 5, "tensor": 5}):
            with self.subTest(**options):
                self.expect_same(*self.trained(sequence_parallel=True, **options))

    def test_more_members_than_heads_of_keys_have_copies(self):
        for options in ({}, {"clip_norm": 0.3}):
            with self.subTest(**options):
                one, weights = self.trained(workers=1, strategy="serial", **options)
                trainer = self.trainer(workers=4, tensor=4, **options)
                team = [trainer.step(self.x, self.y)["loss"] for _ in range(6)]
                for ours, theirs in zip(team, one, strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=1e-5 * theirs)
                for name, value in weights.items():
                    torch.testing.assert_close(
                        trainer.state_dict()[name], value, rtol=1e-4, atol=1e-5
                    )

    def test_an_lstm_is_divided_by_hidden_units(self):
        x, y = self.x[:, :2], self.y[:, :2]
        results = []
        for options in (
            {"workers": 1, "strategy": "serial"}, {"workers": 2, "tensor": 2},
            {"workers": 3, "tensor": 3}, {"workers": 4, "tensor": 2, "strategy": "1f1b-flush"},
        ):  # fmt: skip
            trainer = penstock.Trainer(
                Recurrent(), x[:2], batch_size=8, micro_batches=2, optimizer="SGD", lr=0.5,
                **options,
            )  # fmt: skip
            losses = [trainer.step(x, y)["loss"] for _ in range(20)]
            results.append((losses, trainer.state_dict()))
        (one, weights), *teams = results
        self.assertLess(one[-1], 0.9 * one[0])
        for losses, found in teams:
            for ours, theirs in zip(losses, one, strict=True):
                self.assertAlmostEqual(ours, theirs, delta=1e-5 * theirs)
            Recurrent().load_state_dict(found, strict=True)
            for name, value in weights.items():
                torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)

    def test_the_fastest_size_is_found(self):
        self.expect_same(*self.trained(workers=2, tensor="auto"))

    def test_a_run_goes_on_with_teams_of_another_size(self):
        with tempfile.TemporaryDirectory() as folder:
            trainer = self.trainer(workers=2, tensor=2)
            losses = [trainer.step(self.x, self.y)["loss"] for _ in range(3)]
            trainer.save(folder)
            for options in ({"workers": 4, "tensor": 4}, {"workers": 1, "strategy": "serial"}):
                other = self.trainer(**options)
                other.resume(folder)
                later = [other.step(self.x, self.y)["loss"] for _ in range(3)]
                self.expect_same(losses + later, other.state_dict())

    def test_a_plan_of_the_tool_has_teams(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "decoder.pt2"
            penstock.export(self.model, self.x[:2], path)
            costs = penstock.profile(path, batch_size=4, samples=1)
            plan = penstock.plan(costs, workers=2, tensor=2)
        self.assertEqual(plan["stages"][0]["tensor"], 2)
        self.assertGreater(penstock.simulate(plan)["throughput_samples_per_s"], 0)
        plan["micro_batches"] = 2
        self.expect_same(*self.trained_by(plan))
        with self.assertRaisesRegex(penstock.PenstockError, "have no teams"):
            penstock.pytorch.pipeline(self.model, self.x[:2], plan)

    def trained_by(self, plan):
        trainer = penstock.Trainer(
            self.model, self.x[:2], batch_size=8, plan=plan, optimizer="SGD", momentum=0.9, lr=0.05
        )
        losses = [trainer.step(self.x, self.y)["loss"] for _ in range(6)]
        return losses, trainer.state_dict()

    def test_what_cannot_be_is_refused(self):
        for error, words, options in (
            (ValueError, "at least 0", {"tensor": -1}),
            (penstock.PenstockError, "at least 1, found '0'", {"tensor": 0}),
            ((TypeError, ValueError), "tensor", {"tensor": "two"}),
            (TypeError, "whole number", {"tensor": 1.5}),
            (penstock.PenstockError, "teams of 3", {"workers": 2, "tensor": 3}),
            (penstock.PenstockError, "teams of 1000", {"workers": 2, "tensor": 1000}),
            (penstock.PenstockError, "lamb needs all of a weight",
             {"workers": 2, "tensor": 2, "optimizer": "lamb", "momentum": None}),
        ):  # fmt: skip
            with self.subTest(**options), self.assertRaisesRegex(error, words):
                self.trainer(**options)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
