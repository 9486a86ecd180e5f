"""penstock.transformers.Trainer against transformers.Trainer: the same losses, rates and weights,
with and without gradient accumulation; what is saved is loaded by transformers, and a run goes on
from a checkpoint. Skipped without transformers and accelerate."""

import importlib.util
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import torch

import penstock

WORDS, PLACES, SAMPLES = 60, 12, 22
TOLERANCE = 2e-5


def model():
    import transformers

    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=WORDS, max_position_embeddings=PLACES,
        tie_word_embeddings=True, use_cache=False,
    ))  # fmt: skip


def samples():
    torch.manual_seed(5)
    ids = torch.randint(3, WORDS, (SAMPLES, PLACES))
    labels = ids.clone()
    labels[::3, :7] = -100  # samples with fewer targets than others
    return [{"input_ids": one, "labels": label} for one, label in zip(ids, labels)]


@unittest.skipUnless(
    importlib.util.find_spec("transformers") and importlib.util.find_spec("accelerate"),
    "needs transformers and accelerate",
)
class TransformersTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def arguments(self, name, **more):
        import transformers

        return transformers.TrainingArguments(**{
            "output_dir": str(self.folder / name), "per_device_train_batch_size": 4,
            "num_train_epochs": 2, "learning_rate": 1e-2, "weight_decay": 0.1, "warmup_steps": 2,
            "max_grad_norm": 0.5, "logging_steps": 1, "save_strategy": "no", "report_to": [],
            "disable_tqdm": True, "use_cpu": True, **more,
        })  # fmt: skip

    def trained(self, name, resume=None, **more):
        """A plain Trainer, or one with the pipeline, which has been trained."""
        given = {"model": model(), "train_dataset": samples(), "eval_dataset": samples()[:8],
                 "args": self.arguments(name, **more)}  # fmt: skip
        if name == "plain":
            import transformers

            made = transformers.Trainer(**given)
        else:
            options = {"workers": 2, "strategy": "1f1b-flush", "micro_batches": 2}
            made = penstock.transformers.Trainer(penstock=options, **given)
        made.train(resume_from_checkpoint=resume)
        return made

    def is_same(self, found, expected):
        keys = ("loss", "learning_rate", "eval_loss", "grad_norm")
        lines = [[{key: line[key] for key in keys if key in line} for line in one.state.log_history]
                 for one in (found, expected)]  # fmt: skip
        self.assertEqual(len(lines[0]), len(lines[1]))
        for line, wanted in zip(*lines):
            self.assertEqual(line.keys(), wanted.keys())
            for key, value in wanted.items():
                self.assertAlmostEqual(line[key], value, delta=TOLERANCE * max(1, value), msg=key)
        weights = expected.model.state_dict()
        for name, value in found.model.state_dict().items():
            self.assertLess((value - weights[name]).abs().max(), 1e-4, name)

    def test_losses_are_those_of_transformers(self):
        for more in ({}, {"gradient_accumulation_steps": 2}):
            with self.subTest(**more):
                more = {"eval_strategy": "epoch", **more}
                expected = self.trained("plain", **more)
                history = expected.state.log_history
                losses = [line["eval_loss"] for line in history if "eval_loss" in line]
                self.assertLess(losses[-1], 0.98 * losses[0])
                self.is_same(self.trained("pipeline", **more), expected)

    def test_a_run_goes_on_from_a_checkpoint(self):
        import transformers

        whole = self.trained("whole", save_strategy="steps", save_steps=4)
        checkpoint = self.folder / "whole" / "checkpoint-4"
        again = self.trained("again", resume=str(checkpoint))
        self.is_same(again, whole)
        whole.save_model(str(self.folder / "saved"))
        loaded = transformers.LlamaForCausalLM.from_pretrained(self.folder / "saved")
        for name, value in loaded.state_dict().items():
            self.assertTrue(torch.equal(value, whole.model.state_dict()[name]), name)
        (checkpoint / "penstock").rename(checkpoint / "other")
        with self.assertRaisesRegex(penstock.PenstockError, "has no folder 'penstock'"):
            self.trained("again", resume=str(checkpoint))

    def test_it_trains_twice(self):
        """Without momentum, since the second begins with a new state of the optimiser."""
        more = {"optim": "sgd", "num_train_epochs": 1, "learning_rate": 0.5}
        expected, found = (self.trained(name, **more) for name in ("plain", "pipeline"))
        once = found.model.lm_head.weight.detach().clone()
        for one in (expected, found):
            one.train()
        self.assertGreater((found.model.lm_head.weight - once).abs().max(), 1e-3)
        self.is_same(found, expected)

    def test_it_says_what_it_does_not_follow_and_what_to_write(self):
        for more, said in (
            ({"label_smoothing_factor": 0.1}, "found, label_smoothing_factor=0.1: leave it out$"),
            ({"bf16": True}, "bf16=True: leave .* the Trainer penstock={'precision': 'bfloat16'}"),
        ):
            with self.assertRaisesRegex(penstock.PenstockError, said):
                self.trained("pipeline", **more)
        made = penstock.transformers.Trainer(model(), self.arguments("pipeline"))
        with mock.patch.object(type(made.args), "device", torch.device("cuda:0")):
            said = "the device cuda:0: give .* use_cpu=True; penstock={'device': 'cuda'} comp"
            with self.assertRaisesRegex(penstock.PenstockError, said):
                made._refuse_what_is_not_followed()

    def test_it_refuses_a_version_without_what_it_replaces(self):
        import transformers

        self.addCleanup(
            setattr, transformers.Trainer, "_get_grad_norm", transformers.Trainer._get_grad_norm
        )
        del transformers.Trainer._get_grad_norm
        said = f"found {transformers.__version__}, whose Trainer has no _get_grad_norm: pip"
        with self.assertRaisesRegex(penstock.PenstockError, said):
            penstock.transformers.Trainer(model(), self.arguments("pipeline"))


if __name__ == "__main__":
    unittest.main()
