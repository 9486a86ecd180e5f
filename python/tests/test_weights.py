"""Models of 16 bits, frozen or trained, and weights in safetensors files beside a program. What
PyTorch computes is computed here, from the same module."""

import contextlib
import json
import os
import shutil
import struct
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import preloaded
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


FORMATS = {torch.float32: "F32", torch.float16: "F16", BFLOAT16: "BF16"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        raw = value.detach().contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": FORMATS[value.dtype], "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}  # fmt: skip
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_shards(folder, tensors, shards=2):
    """As save_pretrained() of transformers does: a tied weight once, under its first name."""
    names = list(tensors)
    placed = {}
    for k in range(shards):
        file = f"model-{k + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[k::shards]}
        write_safetensors(folder / file, part)
        placed.update(dict.fromkeys(part, file))
    index = {"metadata": {}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


class Files(unittest.TestCase):
    """Weights in safetensors files."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "weights").mkdir()
        self.weights = self.folder / "weights"
        self.path = self.folder / "llama.pt2"

    def write(self, model, shards=2):
        state = {name: value for name, value in model.state_dict().items() if name != "head.weight"}
        if shards == 1:
            write_safetensors(self.weights / "model.safetensors", state)
        else:
            write_shards(self.weights, state, shards)

    def empty(self, **options):
        with penstock.empty_weights():
            return Llama(**options).to(BFLOAT16)

    def export(self, model, weights=None):
        return penstock.export(model, batches(1)[0][0], self.path, weights=weights or self.weights)

    def test_training_is_as_with_the_weights_inside(self):
        model = llama("full")
        expected = trained(model)
        for shards in (1, 3):
            with self.subTest(shards=shards):
                shutil.rmtree(self.weights)
                self.weights.mkdir()
                self.write(model, shards)
                empty = self.empty()
                self.export(empty)
                self.assertEqual(empty.embed.weight.device.type, "meta")
                self.assertLess(self.path.stat().st_size, 200_000)
                losses, state = trained(self.path)
                self.assertEqual(losses, expected[0])
                for name, value in expected[1].items():
                    self.assertTrue(torch.equal(state[name], value), name)
                self.assertEqual(trained(self.path, workers=3)[0], losses)
                model.load_state_dict(state, strict=True)
                model = llama("full")

    def test_frozen_weights_and_new_adapters(self):
        whole = llama("lora")
        state = whole.state_dict()
        old = {name: value for name, value in state.items()
               if name != "head.weight" and value.dtype == BFLOAT16}  # fmt: skip
        write_safetensors(self.weights / "model.safetensors", old)
        with penstock.empty_weights():
            torch.manual_seed(3)
            model = llama("lora")
        for name, value in model.named_parameters():
            if value.dtype == torch.float32:  # new: the files do not have it
                part = model.get_submodule(name.rpartition(".")[0])
                part.weight = nn.Parameter(state[name].clone())
        self.export(model)
        self.assertEqual(trained(self.path)[0], trained(whole)[0])

    def test_the_folder_may_move_along(self):
        self.write(llama("full"))
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        penstock.export(self.empty(), batches(1)[0][0], "llama.pt2", weights="weights")
        os.chdir(before)
        other = self.folder / "other"
        other.mkdir()
        shutil.move(self.weights, other / "weights")
        shutil.move(self.path, other / "llama.pt2")
        self.assertEqual(len(trained(other / "llama.pt2")[0]), 4)

    def refusal(self, pattern, change, of=None):
        """Of an export, after a change of the files."""
        change()
        with self.assertRaisesRegex(ValueError, pattern):
            self.export(of or self.empty())

    def test_what_does_not_fit_is_refused_by_export(self):
        model = llama("full")
        self.write(model)
        index = self.weights / "model.safetensors.index.json"
        second = self.weights / "model-00002-of-00002.safetensors"
        bytes_of_second, text = second.read_bytes(), index.read_text()

        def lie():
            map_of = json.loads(text)
            map_of["weight_map"]["norm.weight"] = "model-00001-of-00002.safetensors"
            index.write_text(json.dumps(map_of))

        def lie_of_a_place():
            map_of = json.loads(text)
            map_of["weight_map"]["norm.weight"] = "../model.safetensors"
            index.write_text(json.dumps(map_of))

        for pattern, change in (
            ("'model-00002-of-00002.safetensors' is missing, which has", second.unlink),
            ("00002.safetensors' is damaged: the tensor '.*' ends at byte",
             lambda: second.write_bytes(bytes_of_second[:-100])),
            ("00002.safetensors' is no safetensors file",
             lambda: second.write_bytes(b"\xff" * 100)),
            ("'norm.weight' is not in 'model-00001-of-00002.safetensors'|"
             "'norm.weight' is not in 'model-0000", lie),
            ("'norm.weight' is in '../model.safetensors': expected a file's name", lie_of_a_place),
            ("is no index of safetensors files", lambda: index.write_text("[1")),
        ):
            with self.subTest(pattern):
                self.refusal(pattern, change)
            second.write_bytes(bytes_of_second)
            index.write_text(text)
        untied = self.empty(tied=False)
        self.refusal("has no tensor 'head.weight', which the module has without values",
                     lambda: None, untied)  # fmt: skip
        with penstock.empty_weights():
            wide = Llama()
        self.refusal(r"the tensor 'embed.weight' is BF16 of \[48, 32\], the module's "
                     r"'embed.weight' is torch.float32", lambda: None, wide)  # fmt: skip
        with torch.device("meta"):
            lost = Llama().to(BFLOAT16)
        self.refusal("the module's 'rates' has no values.*penstock.empty_weights",
                     lambda: None, lost)  # fmt: skip
        self.refusal("every tensor of the module has values", lambda: None, llama("full"))
        with self.assertRaisesRegex(ValueError, "has no values.*weights="):
            penstock.export(self.empty(), batches(1)[0][0], self.path)

    def test_what_is_changed_later_is_refused_by_training(self):
        self.write(llama("full"))
        self.export(self.empty())
        second = self.weights / "model-00002-of-00002.safetensors"
        content = second.read_bytes()
        header = int.from_bytes(content[:8], "little")
        damaged = bytearray(content)
        damaged[8 + header + 11] ^= 4
        other = content.replace(b'"shape": [32, 32]', b'"shape": [ 32,32]', 1)
        self.assertNotEqual(other, content)
        for pattern, change in (
            (r"'.*00002.safetensors' is missing: the program", second.unlink),
            (r"'.*00002.safetensors' has \d+ bytes, expected \d+: it is not the file",
             lambda: second.write_bytes(content[:-1])),
            (r"'.*00002.safetensors' has another header", lambda: second.write_bytes(other)),
            (r"'.*00002.safetensors' is damaged: the check sum of 'layers.0.norm1.weight'|"
             r"'.*00002.safetensors' is damaged: the check sum of '[a-z0-9.]+' is wrong",
             lambda: second.write_bytes(damaged)),
        ):
            with self.subTest(pattern):
                change()
                with self.assertRaisesRegex(penstock.PenstockError, pattern):
                    trained(self.path)
                second.write_bytes(content)
        self.assertEqual(len(trained(self.path)[0]), 4)  # nothing is lost


MEMORY = """
    import os, torch, penstock
    def kib(what):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(what))
    def losses(path, width):  # by a plan: measuring takes memory of its own
        trainer = penstock.Trainer(path, plan=path + ".json", batch_size=4, lr=0.1, progress=False)
        x, y = torch.ones(4, width), torch.arange(4)
        return [trainer.step(x, y)["loss"] for _ in range(2)]
    losses({small!r}, 16)  # code, threads and buffers are there from now on
    penstock._core.give_back_freed_memory()
    before = kib("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    found = losses({large!r}, 1024)
    print((kib("VmHWM") - before) / 1024, found)
"""


class Tower(nn.Module):
    """64 MiB of frozen numbers in bfloat16, at a width of 1024, between two trained layers."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width).to(BFLOAT16)
        self.frozen = nn.ModuleList(
            nn.Linear(width, width, bias=False).requires_grad_(False) for _ in range(32)
        ).to(BFLOAT16)
        self.last = nn.Linear(width, 8)

    def forward(self, x):
        x = torch.tanh(self.first(x.to(BFLOAT16)))
        for one in self.frozen:
            x = torch.tanh(one(x))
        return self.last(x.float())


class Memory(unittest.TestCase):
    def test_frozen_weights_stay_short_and_where_they_are_needed(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(1)
            small, large = (
                str(penstock.export(Tower(width), torch.ones(4, width), f"{folder}/{width}.pt2"))
                for width in (16, 1024)
            )
            for path in (small, large):
                trainer = trainer_of(path, workers=2)
                Path(path + ".json").write_text(json.dumps(trainer.plan))
                del trainer
            program = MEMORY.format(small=small, large=large)
            alone, = preloaded.run(program)
            from test_ranks import free_port
            common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                      "MASTER_PORT": free_port(), "PENSTOCK_JOB_TOKEN": "0" * 32}  # fmt: skip
            ranks = preloaded.run(program, [
                {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)
            ])  # fmt: skip
        for done in (alone, *ranks):
            self.assertEqual(done.returncode, 0, [one.stderr for one in (alone, *ranks)])
        one, losses = alone.stdout.split(" ", 1)
        mebibytes = [float(done.stdout.split(" ", 1)[0]) for done in ranks]
        self.assertEqual([done.stdout.split(" ", 1)[1] for done in ranks], [losses] * 2)
        self.assertLess(float(one), 64 + 40)
        self.assertLess(max(mebibytes), 0.75 * float(one))
        self.assertLess(sum(mebibytes), 1.25 * float(one), mebibytes)


if __name__ == "__main__":
    unittest.main()
