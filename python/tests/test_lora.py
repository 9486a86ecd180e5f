"""Adapters that the trainer adds to a program without any: losses are those of PyTorch with LoRA
written by hand, bit for bit in every cut; they go on from checkpoints, and PEFT loads them."""

import copy
import importlib.util
import json
import os
import struct
import tempfile
import unittest
from pathlib import Path

import torch
from test_ranks import forked_ranks
from test_weights import BFLOAT16, WIDTH, Llama, batches, exported
from torch import nn
from torch.nn import functional as F

import penstock

RATE = 0.05


class Adapted(nn.Module):
    """As peft.tuners.lora.Linear, with the weights of a state dict."""

    def __init__(self, base, state, path, scale):
        super().__init__()
        self.base = base.requires_grad_(False)
        name = f"base_model.model.{path}.lora_"
        self.down = nn.Parameter(state[name + "A.weight"].clone())
        self.up = nn.Parameter(state[name + "B.weight"].clone())
        self.scale = scale

    def forward(self, x):
        result = self.base(x)
        added = F.linear(F.linear(x.to(self.down.dtype), self.down), self.up) * self.scale
        return (result + added).to(result.dtype)


def module(kind=torch.float32, **options):
    torch.manual_seed(3)
    return Llama(**options).to(kind)


def trainer_of(model, strategy="gpipe", workers=1, **options):
    options = {"lora": 4, "lora_targets": ["q", "v"], "lora_alpha": 12, "optimizer": "SGD",
               "lr": RATE, "momentum": 0.9, "micro_batches": 2, **options}  # fmt: skip
    return penstock.Trainer(model, strategy=strategy, workers=workers, batch_size=4,
                            progress=False, **options)  # fmt: skip


def stepped(trainer, steps=None):
    return [trainer.step(x, y)["loss"] for x, y in (steps or batches())]


def names_of(paths):
    return [f"base_model.model.{path}.lora_{part}.weight" for path in paths for part in "AB"]


#: Of the usual trainer.
PATHS = ["layers.0.q", "layers.0.v", "layers.1.q", "layers.1.v"]


def by_pytorch(model, state, scale):
    """The loss of each step."""
    model.requires_grad_(False)
    for name in [one for one in state if one.endswith("lora_A.weight")]:
        path = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        parent, _, last = path.rpartition(".")
        owner = model.get_submodule(parent)
        setattr(owner, last, Adapted(getattr(owner, last), state, path, scale))
    weights = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=RATE, momentum=0.9)
    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).float().flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def read_safetensors(path):
    """Of float32."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    body = data[8 + length :]
    return {
        name: torch.frombuffer(bytearray(body[slice(*one["data_offsets"])]), dtype=torch.float32)
        .view(one["shape"])
        for name, one in json.loads(data[8 : 8 + length]).items()
    }  # fmt: skip


class Learning(unittest.TestCase):
    def compare(self, kind, tolerance):
        path = exported(self, module(kind))
        trainer = trainer_of(path)
        # B begins with zeros, from which A learns nothing at first.
        torch.manual_seed(8)
        state = {name: one + 0.1 * torch.randn(one.shape) if "lora_B" in name else one
                 for name, one in trainer.state_dict(frozen=False).items()}  # fmt: skip
        self.assertEqual(sorted(state), sorted(names_of(PATHS)))
        self.assertEqual({one.dtype for one in state.values()}, {torch.float32})
        trainer.load_state_dict(state)
        found = stepped(trainer)
        for ours, theirs in zip(found, by_pytorch(module(kind), state, 3.0), strict=True):
            self.assertAlmostEqual(ours, theirs, delta=tolerance * theirs)
        self.assertLess(found[-1], found[0])
        for workers, strategy in ((2, "gpipe"), (3, "zb-h1"), (2, "1f1b-flush")):
            cut = trainer_of(path, strategy=strategy, workers=workers, straight=True)
            cut.load_state_dict(state)
            self.assertEqual(stepped(cut), found, (workers, strategy))

    def test_losses_are_those_of_pytorch(self):
        self.compare(torch.float32, 1e-6)

    def test_beside_a_base_of_16_bits(self):
        self.compare(BFLOAT16, 2e-3)

    def test_replicas_and_teams(self):
        path = exported(self, module(layers=1))
        one = trainer_of(path, gradient_groups=2, lora_targets="all-linear")
        losses = stepped(one)
        two = trainer_of(path, strategy="dp", workers=2, gradient_groups=2,
                         lora_targets="all-linear")  # fmt: skip
        self.assertEqual(stepped(two), losses)
        team = trainer_of(path, workers=2, tensor=2, lora_targets="all-linear")
        for ours, theirs in zip(stepped(team), losses, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-5)

    def test_two_ranks_learn_what_one_does(self):
        path = exported(self, module())
        expected = stepped(trainer_of(path))
        program = f"""
            import sys
            sys.path.insert(0, {os.path.dirname(__file__)!r})
            import test_lora
            print(test_lora.stepped(test_lora.trainer_of({str(path)!r}, workers=2)))
        """
        for done in forked_ranks(program, 2):
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout), expected)

    def test_of_a_module_goes_back_by_its_names(self):
        model = module()
        trainer = trainer_of(model, example=batches(1)[0][0])
        stepped(trainer)
        state = trainer.state_dict()
        own = model.state_dict()
        self.assertEqual(set(state), {*own, *names_of(PATHS)})
        for name, value in own.items():
            self.assertTrue(torch.equal(state[name], value), name)


class Beginnings(unittest.TestCase):
    def test_are_those_of_peft_and_depend_on_the_seed_alone(self):
        path = exported(self, module())
        state = trainer_of(path).state_dict(frozen=False)
        for name, value in state.items():
            if "lora_B" in name:
                self.assertFalse(value.any(), name)
                continue
            bound = WIDTH**-0.5
            self.assertEqual(value.shape, (4, WIDTH))
            self.assertLess(value.abs().max().item(), bound)
            self.assertGreater(value.abs().max().item(), 0.9 * bound)
        self.assertFalse(torch.equal(*(state[one] for one in names_of(PATHS)[:4:2])))
        cut = trainer_of(path, workers=2).state_dict(frozen=False)
        other = trainer_of(path, seed=2).state_dict(frozen=False)
        for name, value in state.items():
            self.assertTrue(torch.equal(cut[name], value), name)
            self.assertEqual(torch.equal(other[name], value), "lora_B" in name)

    def test_before_a_step_the_model_computes_what_it_did(self):
        path = exported(self, module())
        plain = penstock.Trainer(path, strategy="serial", workers=1, progress=False)
        x, y = batches(1)[0]
        self.assertEqual(trainer_of(path).evaluate(x, y)["loss"], plain.evaluate(x, y)["loss"])


class Checkpoints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_a_run_goes_on_exactly_in_another_cut(self):
        path = exported(self, module(BFLOAT16))
        whole = stepped(trainer_of(path, optimizer="AdamW", momentum=None))
        first = trainer_of(path, optimizer="AdamW", momentum=None, workers=2)
        half = stepped(first, batches()[:2])
        first.save(self.folder)
        second = trainer_of(path, optimizer="AdamW", momentum=None)
        self.assertTrue(second.resume(self.folder))
        self.assertEqual(half + stepped(second, batches()[2:]), whole)

    def test_other_adapters_are_refused(self):
        path = exported(self, module())
        first = trainer_of(path)
        stepped(first, batches(1))
        first.save(self.folder)
        for other in ({"lora": 2}, {"lora_alpha": 4}, {"lora_targets": "q"},
                      {"lora_targets": "q,k"},
                      {"lora": None, "lora_targets": None, "lora_alpha": None}):  # fmt: skip
            with self.subTest(**other), self.assertRaisesRegex(
                penstock.PenstockError, "has other adapters than this run: there rank 4, alpha 12, "
                                        "4 modules from 'layers.0.q' to 'layers.1.v'"
            ):  # fmt: skip
                trainer_of(path, **other).resume(self.folder)

    def test_the_folder_is_an_adapter_of_peft(self):
        trainer = trainer_of(exported(self, module(BFLOAT16)), workers=2)
        stepped(trainer)
        saved = trainer.save(self.folder)
        config = json.loads((saved / "adapter_config.json").read_text())
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"]), ("LORA", 4, 12))
        self.assertEqual(config["target_modules"], PATHS)
        state = trainer.state_dict(frozen=False)
        stored = read_safetensors(saved / "adapter_model.safetensors")
        self.assertEqual(list(stored), names_of(PATHS))
        for name, value in stored.items():
            self.assertTrue(torch.equal(value, state[name]), name)
        (saved / "adapter_model.safetensors").write_bytes(b"x")
        with self.assertRaisesRegex(penstock.PenstockError, "adapter_model.safetensors"):
            trainer.resume(saved)


class Refusals(unittest.TestCase):
    def test_say_what_was_expected(self):
        path = exported(self, module(layers=1))
        for options, words in (
            ({"lora_targets": "qq"}, "'qq' means none of its 8 linear modules; there are q, "),
            ({"lora_targets": "head"}, "tied"),
            ({"lora_targets": "norm1"}, "expected linear modules alone"),
            ({"lora": 33}, "expected 1 to 32"),
            ({"lora": 0}, "at least 1, found 0"),
            ({"lora_targets": ["q", ""]}, "commas between them"),
        ):
            with self.subTest(**options), self.assertRaisesRegex(penstock.PenstockError, words):
                trainer_of(path, **options)
        for options in ({"lora": "4"}, {"lora_targets": [1]}, {"lora": None}):
            with self.subTest(**options), self.assertRaises((TypeError, ValueError)):
                trainer_of(path, **options)


@unittest.skipUnless(
    importlib.util.find_spec("peft") and importlib.util.find_spec("transformers"),
    "needs peft and transformers",
)
class WithPeft(unittest.TestCase):
    """The same as peft.get_peft_model makes of the module."""

    def setUp(self):
        torch.manual_seed(5)
        ids = torch.randint(120, (8, 16))
        self.batch = {"input_ids": ids, "labels": ids}

    def base(self, kind, dtype):
        import transformers

        torch.manual_seed(0)
        if kind == "llama":
            return transformers.LlamaForCausalLM(transformers.LlamaConfig(
                hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, vocab_size=120, max_position_embeddings=16,
            )).to(dtype)  # fmt: skip
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_embd=32, n_layer=2, n_head=4, vocab_size=120, n_positions=16, resid_pdrop=0,
            embd_pdrop=0, attn_pdrop=0,
        )).to(dtype)  # fmt: skip

    def compare(self, kind, targets, dtype=torch.float32, tolerance=2e-6):
        import peft

        trainer = penstock.Trainer(
            self.base(kind, dtype), self.batch, lora=4, lora_targets=targets, strategy="1f1b-flush",
            workers=2, micro_batches=2, batch_size=8, optimizer="SGD", lr=0.1, progress=False,
        )  # fmt: skip
        model = peft.get_peft_model(
            self.base(kind, dtype), peft.LoraConfig(r=4, target_modules=targets,
                                                    fan_in_fan_out=kind == "gpt2")
        )  # fmt: skip
        state = trainer.state_dict(frozen=False)
        for name in state:
            if "lora_B" in name:
                state[name] = 0.1 * torch.randn(state[name].shape)
        trainer.load_state_dict(state)
        unknown = peft.set_peft_model_state_dict(model, copy.deepcopy(state)).unexpected_keys
        self.assertEqual(unknown, [])
        weights = [one for one in model.parameters() if one.requires_grad]
        self.assertEqual(len(weights), len(state))
        optimizer = torch.optim.SGD(weights, lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(**self.batch, use_cache=False).loss
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(trainer.step(self.batch)["loss"], loss.item(), delta=tolerance)
        with tempfile.TemporaryDirectory() as folder:
            saved = trainer.save(folder)
            again = peft.PeftModel.from_pretrained(self.base(kind, dtype), saved)
        with torch.no_grad():
            loss = again(**self.batch, use_cache=False).loss.item()
        self.assertAlmostEqual(trainer.step(self.batch)["loss"], loss, delta=tolerance)

    def test_llama(self):
        self.compare("llama", ["q_proj", "v_proj"])

    def test_every_linear_module(self):
        self.compare("llama", "all-linear")

    def test_bfloat16(self):
        self.compare("llama", ["q_proj", "down_proj"], BFLOAT16, 0.02)

    def test_weights_the_other_way_round(self):
        self.compare("gpt2", ["c_attn", "c_fc"])


if __name__ == "__main__":
    unittest.main()
