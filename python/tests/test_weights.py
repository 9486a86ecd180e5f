"""Models of 16 bits, frozen or trained. What PyTorch computes is computed here, from the same
module."""

import contextlib
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import penstock

WORDS, WIDTH, HEADS = 48, 32, 4
BFLOAT16 = torch.bfloat16


class Norm(nn.Module):
    """Of Llama: in float32, and back."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * wide.to(x.dtype)


class Adapted(nn.Module):
    """LoRA as PEFT computes it: in the adapter's type, and back."""

    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        result = self.base(x)
        return (result + self.up(self.down(x.to(self.down.weight.dtype))) * 2).to(result.dtype)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        h = self.norm1(x)
        q, k, v = (
            one(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in (self.q, self.k, self.v)
        )

        def turned(values):
            left, right = values.chunk(2, -1)
            return values * cos + torch.cat([-right, left], -1) * sin

        a = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, layers=2, tied=True):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.norm = Norm()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        rates = 1 / 10000 ** (torch.arange(0, WIDTH // HEADS, 2).float() / (WIDTH // HEADS))
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device).float()
        angles = torch.outer(places, self.rates.float()).repeat(1, 2)
        x = self.embed(ids)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def llama(kind, **options):
    """Of bfloat16: "full" (all trained), "lora" (frozen, adapters of float32) or "lora16"."""
    torch.manual_seed(3)
    model = Llama(**options).to(BFLOAT16)
    if kind == "full":
        return model
    model.requires_grad_(False)
    for block in model.layers:
        block.q, block.v = Adapted(block.q), Adapted(block.v)
        if kind == "lora16":
            block.q, block.v = block.q.to(BFLOAT16), block.v.to(BFLOAT16)
    return model


def batches(steps=4):
    draw = torch.Generator().manual_seed(7)
    ids = [torch.randint(0, WORDS, (4, 9), generator=draw) for _ in range(steps)]
    return [(one[:, :-1].clone(), one[:, 1:].clone()) for one in ids]


RATE = 0.05


def losses_of_pytorch(model, parts=2):
    """Float32 masters, read in the module's types; steps of SGD with momentum."""
    types = {name: one.dtype for name, one in model.named_parameters() if one.requires_grad}
    masters = {
        name: one.detach().float().clone().requires_grad_()
        for name, one in model.named_parameters()
        if one.requires_grad
    }
    optimizer = torch.optim.SGD(masters.values(), lr=RATE, momentum=0.9)
    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        sum_of_parts = 0.0
        for part_x, part_y in zip(x.chunk(parts), y.chunk(parts)):
            read = {name: one.to(types[name]) for name, one in masters.items()}
            logits = torch.func.functional_call(model, read, (part_x,)).float()
            loss = F.cross_entropy(logits.flatten(0, 1), part_y.flatten()) / parts
            loss.backward()
            sum_of_parts += loss.item()
        optimizer.step()
        losses.append(sum_of_parts)
    return losses, {name: one.detach() for name, one in masters.items()}


def trainer_of(model, strategy="gpipe", workers=1, **options):
    options = {"optimizer": "SGD", "lr": RATE, "momentum": 0.9, "micro_batches": 2, **options}
    example = None if isinstance(model, (str, Path)) else batches(1)[0][0]
    with contextlib.ExitStack() as stack:
        # What it says of 16 bits is another test's.
        stack.enter_context(unittest.mock.patch("warnings.warn"))
        return penstock.Trainer(model, example, strategy=strategy, workers=workers, batch_size=4,
                                progress=False, **options)  # fmt: skip


def trained(model, **options):
    trainer = trainer_of(model, **options)
    return [trainer.step(x, y)["loss"] for x, y in batches()], trainer.state_dict()


def exported(test, model):
    """A file, as long as the test runs."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return penstock.export(model, batches(1)[0][0], folder.name + "/model.pt2")


class SixteenBits(unittest.TestCase):
    def compare(self, kind):
        model = llama(kind)
        expected, masters = losses_of_pytorch(model)
        path = exported(self, model)
        found, state = trained(path)
        for ours, theirs in zip(found, expected):
            self.assertAlmostEqual(ours, theirs, delta=2e-3 * theirs)
        for name, own in model.state_dict().items():
            self.assertEqual(state[name].dtype, own.dtype, name)
            if name == "head.weight":
                self.assertTrue(torch.equal(state[name], state["embed.weight"]))
                continue
            if name not in masters:
                self.assertTrue(torch.equal(state[name], own), name)
                continue
            far = (state[name].float() - masters[name]).abs().max().item()
            self.assertLess(far, 0.01 * masters[name].abs().max().item() + 2e-3, name)
        fresh = llama(kind)
        fresh.load_state_dict(state, strict=True)
        for workers, strategy in ((2, "gpipe"), (3, "zb-h1")):
            cut, cut_state = trained(path, workers=workers, strategy=strategy, straight=True)
            self.assertEqual(cut, found, (workers, strategy))
            for name, value in state.items():
                self.assertTrue(torch.equal(cut_state[name], value), (workers, name))

    def test_full_fine_tuning_is_that_of_pytorch(self):
        self.compare("full")

    def test_adapters_of_float32_are_those_of_pytorch(self):
        self.compare("lora")

    def test_adapters_of_16_bits_are_those_of_pytorch(self):
        self.compare("lora16")

    def test_replicas_and_the_option_precision(self):
        model = exported(self, llama("full", layers=1))
        one, _ = trained(model, gradient_groups=2)
        two, _ = trained(model, strategy="dp", workers=2, gradient_groups=2)
        self.assertEqual(one, two)
        # Only what is float32 between layers of its own is rounded: here inside of norms.
        for short, own in zip(trained(model, precision="bfloat16")[0], trained(model)[0]):
            self.assertAlmostEqual(short, own, delta=0.01 * own)

    def test_what_is_kept_in_float32_is_said(self):
        with self.assertWarnsRegex(UserWarning, "12 trained weights are bfloat16 in the file: they "
                                                "are kept and stepped as float32"):  # fmt: skip
            penstock.Trainer(llama("full", layers=1), batches(1)[0][0], strategy="gpipe", workers=2,
                             micro_batches=2, batch_size=4, progress=False)  # fmt: skip

    def test_small_updates_are_not_lost(self):
        # In bfloat16 alone a weight of 1 does not change by less than 1/256.
        model = llama("full", layers=1)
        trainer = trainer_of(model, lr=1e-4, momentum=0.0)
        for _ in range(30):
            for x, y in batches(1):
                trainer.step(x, y)
        wide = {name: one.detach().clone() for name, one in model.named_parameters()}
        state = trainer.state_dict()
        changed = sum(not torch.equal(state[name], one) for name, one in wide.items())
        self.assertGreater(changed, 3)

    def test_a_checkpoint_goes_on_with_the_masters(self):
        model = exported(self, llama("full", layers=1))
        straight = trainer_of(model)
        whole = [straight.step(x, y)["loss"] for x, y in batches()]
        with tempfile.TemporaryDirectory() as folder:
            first = trainer_of(model)
            half = [first.step(x, y)["loss"] for x, y in batches()[:2]]
            first.save(folder)
            second = trainer_of(model)
            second.resume(folder)
            rest = [second.step(x, y)["loss"] for x, y in batches()[2:]]
            self.assertEqual(half + rest, whole)


if __name__ == "__main__":
    unittest.main()
