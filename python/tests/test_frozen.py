"""Frozen weights in 8 bits: what is computed is what PyTorch computes with the same numbers, in
every cut; memory is a quarter of float32; the other weights stay as they are."""

import tempfile
import unittest

import torch
from test_lora import by_pytorch, module, stepped, trainer_of
from test_weights import BFLOAT16, exported
from torch import nn

import penstock

#: What is held in 8 bits; of Llama, by block.
LINEAR = ("q", "k", "v", "o", "gate", "up", "down")


def quantised(weight):
    """As penstock/model/layers/int8_product.h says."""
    columns = weight.shape[1]
    block = next((one for one in (128, 64) if columns % one == 0), columns)
    numbers = weight.float().reshape(len(weight), -1, block)
    scales = numbers.abs().amax(-1, keepdim=True) / 127
    whole = (numbers / scales.masked_fill(scales == 0, 1)).round().clamp(-127, 127)
    return (whole * scales).reshape(weight.shape).to(weight.dtype)


def with_quantised(model):
    with torch.no_grad():
        for layer in model.layers:
            for name in LINEAR:
                weight = getattr(layer, name).weight
                weight.copy_(quantised(weight))
    return model


def int8_trainer(model, **options):
    return trainer_of(model, frozen_weights="int8", **options)


def constant_bytes(model, example=None, **options):
    costs = penstock.profile(model, example, batch_size=2, samples=1, **options)
    return sum(layer.get("constant_bytes", 0) for layer in costs["layers"])


class Int8(unittest.TestCase):
    def compare(self, kind, tolerance):
        path = exported(self, module(kind))
        trainer = int8_trainer(path)
        torch.manual_seed(8)
        state = {name: one + 0.1 * torch.randn(one.shape) if "lora_B" in name else one
                 for name, one in trainer.state_dict(frozen=False).items()}  # fmt: skip
        trainer.load_state_dict(state)
        found = stepped(trainer)
        for ours, theirs in zip(found, by_pytorch(with_quantised(module(kind)), state, 3.0),
                                strict=True):  # fmt: skip
            self.assertAlmostEqual(ours, theirs, delta=tolerance * theirs)
        for workers, strategy in ((2, "gpipe"), (3, "zb-h1")):
            cut = int8_trainer(path, strategy=strategy, workers=workers, straight=True)
            cut.load_state_dict(state)
            self.assertEqual(stepped(cut), found, (workers, strategy))
        plain = trainer_of(path)
        plain.load_state_dict(state)
        whole = stepped(plain)
        self.assertNotEqual(whole, found)
        for ours, theirs in zip(found, whole, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=5e-3 * theirs)

    def test_losses_are_those_of_pytorch_with_these_numbers(self):
        self.compare(torch.float32, 2e-6)

    def test_weights_of_16_bits(self):
        self.compare(BFLOAT16, 2e-3)

    def test_replicas_and_teams(self):
        path = exported(self, module(layers=1))
        options = {"gradient_groups": 2, "lora_targets": "all-linear"}
        losses = stepped(int8_trainer(path, **options))
        self.assertEqual(stepped(int8_trainer(path, strategy="dp", workers=2, **options)), losses)
        # Weights of 8 bits stay whole, and so do the adapters between them.
        with self.assertRaisesRegex(penstock.PenstockError, "or teams of 1"):
            int8_trainer(path, workers=2, tensor=2, lora_targets="all-linear")

    def test_the_state_has_the_weights_as_they_were(self):
        model = module(layers=1)
        trainer = int8_trainer(exported(self, model))
        stepped(trainer)
        state = trainer.state_dict()
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(state[name], value), name)
        with tempfile.TemporaryDirectory() as folder:
            trainer.save(folder)
            again = int8_trainer(exported(self, model))
            self.assertTrue(again.resume(folder))
        self.assertEqual(stepped(again), stepped(trainer))


class Memory(unittest.TestCase):
    def model(self):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 512), nn.Linear(512, 512), nn.Tanh(),
                             nn.Linear(512, 512, bias=False), nn.Linear(512, 3))  # fmt: skip

    def test_is_a_quarter_of_float32(self):
        model = self.model().requires_grad_(False)
        model[0].requires_grad_(True)
        wide, bias, head = 512 * 512, 4 * 512, 4 * (512 * 3 + 3)
        for kind, weights in (("as-stored", 2 * 4 * wide), ("int8", 2 * (wide + 4 * 4 * 512))):
            found = constant_bytes(model, torch.zeros(2, 6), frozen_weights=kind)
            self.assertEqual(found, weights + bias + head, kind)

    def test_what_has_another_use_stays_as_it_is(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.up = nn.Embedding(7, 8), nn.Linear(8, 8, bias=False)
                self.same, self.head = nn.Linear(8, 7, bias=False), nn.Linear(7, 3, bias=False)
                self.same.weight = self.table.weight
                self.scale = nn.Parameter(torch.ones(3))

            def forward(self, x):
                return self.head(self.same(self.up(self.table(x).mean(1)))) * self.scale

        model = Tied().requires_grad_(False)
        model.scale.requires_grad_(True)
        example = torch.zeros(2, 4, dtype=torch.long)
        # Each layer that reads the table counts it.
        stored = 2 * 4 * 7 * 8 + 4 * 7 * 3
        found = constant_bytes(model, example, frozen_weights="int8")
        self.assertEqual(found, stored + 8 * (8 + 4))


class Refusals(unittest.TestCase):
    def test_say_what_was_expected(self):
        model = module(layers=1)
        with self.assertRaisesRegex(penstock.PenstockError, "expected as-stored or int8, found "):
            trainer_of(exported(self, model), frozen_weights="int4")
        with torch.no_grad():
            model.layers[0].k.weight[0, 0] = torch.inf
        with self.assertRaisesRegex(penstock.PenstockError, "'layers.0.k.weight' has numbers that "
                                                            "are not finite"):  # fmt: skip
            stepped(int8_trainer(exported(self, model)))


if __name__ == "__main__":
    unittest.main()
