"""What `Trainer.fit` is given, and what it gives back: data sets, streams, plans, predictions,
learning rates to begin with, merged models.

test_datasets.py [-k NAME]
"""

import itertools
import json
import tempfile
import unittest
from pathlib import Path

import torch
from test_fit import BATCH, SAMPLES, exported, net, samples, trainer_of
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import penstock
from penstock import PenstockError, _find, _merged


class Rows(Dataset):
    """Dicts, whose targets have a name, with whole lists of numbers."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        return {"input": self.x[place].tolist(), "labels": int(self.y[place])}


class Stream(IterableDataset):
    def __init__(self, x, y, endless=False):
        self.rows, self.endless = list(zip(x, y)), endless

    def __iter__(self):
        return itertools.cycle(self.rows) if self.endless else iter(self.rows)


class Data(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.x, self.y = samples()

    def losses(self, trainer, data, **options):
        seen = []
        trainer.fit(data, callbacks=seen.append, **options)
        return [one["loss"] for one in seen]

    def test_a_data_set_is_what_its_tensors_are(self):
        plain = penstock.export(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)),
                                self.x[:4], self.folder / "plain.pt2")  # fmt: skip

        def made():
            return penstock.Trainer(plain, strategy="1f1b-flush", workers=2, micro_batches=2,
                                    batch_size=BATCH, progress=False, lr=0.1)  # fmt: skip

        tensors = made()
        wanted = self.losses(tensors, (self.x, self.y), epochs=2)
        for data in (TensorDataset(self.x, self.y), Rows(self.x, self.y)):
            with self.subTest(type(data).__name__):
                trainer = made()
                self.assertEqual(self.losses(trainer, data, epochs=2), wanted)
                found = trainer.evaluate(data, batch_size=7)
                self.assertAlmostEqual(found["loss"], tensors.evaluate(self.x, self.y)["loss"])

    def test_a_data_set_goes_on_inside_of_an_epoch(self):
        data = TensorDataset(self.x, self.y)
        whole, first, second = trainer_of(), trainer_of(), trainer_of()
        losses = self.losses(whole, data, epochs=3, eval_dataset=data)
        begun = self.losses(first, data, max_steps=7, checkpoint=self.folder)
        second.resume(self.folder)
        self.assertEqual((second.steps, second.epochs), (7, 1))
        self.assertEqual(begun + self.losses(second, data, epochs=2), losses)
        self.assertEqual(begun + self.losses(first, data, epochs=2), losses)
        third = trainer_of()
        third.resume(self.folder)
        with self.assertRaisesRegex(PenstockError, "expected 32 samples in batches of 8.*found 40"):
            third.fit(TensorDataset(self.x[:32], self.y[:32]))

    def test_a_stream_is_taken_as_it_comes(self):
        trainer = trainer_of()
        history = trainer.fit(Stream(self.x, self.y), epochs=2)
        self.assertEqual([one["samples"] for one in history], [SAMPLES, SAMPLES])
        endless = Stream(self.x, self.y, endless=True)
        trainer.fit(endless, max_steps=23)
        self.assertEqual(trainer.steps, 23)
        with self.assertRaisesRegex(ValueError, "eval_dataset: .*Stream, which may have no end"):
            trainer.fit(self.x, self.y, eval_dataset=endless)

    def test_data_sets_of_hugging_face(self):
        try:
            import datasets
        except ImportError:
            self.skipTest("the package datasets is not there")
        rows = {"input": self.x.tolist(), "labels": self.y.tolist()}
        data = datasets.Dataset.from_dict(rows)
        wanted = self.losses(trainer_of(), Rows(self.x, self.y))
        self.assertEqual(self.losses(trainer_of(), data, eval_dataset=data), wanted)
        self.assertEqual(len(self.losses(trainer_of(), data.to_iterable_dataset())), 5)

    def test_samples_that_make_no_batch_are_said(self):
        class Ragged(Rows):
            def __getitem__(self, place):
                return {"input": self.x[place][: 5 + place % 2].tolist(), "labels": 0}

        with self.assertRaisesRegex(PenstockError, "Ragged: the samples .* make no batch.*collate"):
            trainer_of().fit(Ragged(self.x, self.y))
        with self.assertRaisesRegex(ValueError, "TensorDataset is empty"):
            trainer_of().fit(TensorDataset(self.x[:0], self.y[:0]))
        with self.assertRaisesRegex(TypeError, "targets: expected none beside a data set"):
            trainer_of().fit(TensorDataset(self.x, self.y), self.y)

    def test_a_stream_that_says_where_it_is_is_no_loader(self):
        class Stream(IterableDataset):
            def __iter__(stream):
                return iter(zip(self.x, self.y))

            def state_dict(self):
                return {}

            def load_state_dict(self, state):
                pass

        for data in (Stream(), DataLoader(Stream(), batch_size=BATCH)):
            with self.assertRaisesRegex(ValueError, "Stream has them, but it is the data set.*the "
                                                    "loader of its batches"):  # fmt: skip
                trainer_of().fit(data, checkpoint=self.folder / "run", save_every=2)

    def test_a_plan_makes_a_trainer(self):
        plan = trainer_of(batch_size=12, micro_batches=3).plan
        (self.folder / "plan.json").write_text(json.dumps(plan))
        for given in (plan, self.folder / "plan.json"):
            trainer = penstock.Trainer.from_plan(given, exported(), lr=0.1, progress=False)
            self.assertEqual(trainer.plan["stages"], plan["stages"])
            seen = []
            trainer.fit(self.x, self.y, callbacks=seen.append)
            self.assertEqual([one["samples"] for one in seen], [12, 12, 12, 4])
        for text, said in (("{", "is no JSON"), ("[1]", "expected an object.*found a list")):
            (self.folder / "plan.json").write_text(text)
            with self.assertRaisesRegex(PenstockError, said):
                penstock.Trainer.from_plan(self.folder / "plan.json", exported())
        with self.assertRaisesRegex(PenstockError, "does not say what a step is.*found strategy"):
            penstock.Trainer.from_plan({"strategy": "serial"}, exported())
        for name, value in (("micro_batch_size", -1), ("micro_batches", 0)):
            said = f"the plan's {name}: expected at least 1, found {value}"
            with self.assertRaisesRegex(PenstockError, said):
                penstock.Trainer.from_plan({**plan, name: value}, exported())

    def test_predictions_are_those_of_the_module(self):
        module = net()
        trainer = penstock.Trainer(module, self.x[:4], strategy="1f1b-flush", workers=2,
                                   micro_batches=2, batch_size=BATCH, progress=False)  # fmt: skip
        trainer.fit(self.x, self.y)
        module.load_state_dict(trainer.state_dict())
        module.eval()
        with torch.no_grad():
            wanted = module(self.x)
        loader = torch.utils.data.DataLoader(TensorDataset(self.x, self.y), batch_size=7)
        for data, options in (
            ((self.x, self.y), {}), (self.x, {}),
            (self.x.numpy(), {"batch_size": 7}), ([self.x], {}), (loader, {}),
            (TensorDataset(self.x, self.y), {}), ({"input": self.x}, {"batch_size": 3}),
        ):  # fmt: skip
            torch.testing.assert_close(trainer.predict(data, **options), wanted)
        with self.assertRaisesRegex(PenstockError, "have 3 tensors, expected input"):
            trainer.predict([self.x] * 3)
        for look in (lambda: trainer.predict(self.x, batch_size=0),
                     lambda: trainer.evaluate(self.x, self.y, batch_size=0)):  # fmt: skip
            with self.assertRaisesRegex(ValueError, "batch_size: expected at least 1, found 0"):
                look()
        with self.assertRaisesRegex(PenstockError, "expected|shape"):
            trainer.predict(self.x[:, :5])

        class OwnLoss(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(6, 3)

            def forward(self, x, labels):
                return nn.functional.cross_entropy(self.head(x), labels)

        own = penstock.Trainer(OwnLoss(), {"x": self.x[:4], "labels": self.y[:4]}, workers=1,
                               strategy="serial", progress=False)  # fmt: skip
        with self.assertRaisesRegex(PenstockError, "the model returns its loss"):
            own.predict({"x": self.x, "labels": self.y})

    def test_the_search_for_a_rate_changes_nothing(self):
        searched, plain = trainer_of(optimizer="adam"), trainer_of(optimizer="adam")
        for one in (searched, plain):
            one.fit(self.x, self.y)
        found = searched.lr_find(self.x, self.y, highest=100.0, steps=60)
        self.assertGreater(found["suggestion"], 1e-6)
        lowest = found["losses"].index(min(found["losses"]))
        self.assertLess(found["suggestion"], found["lrs"][lowest])
        self.assertEqual(searched.steps, 5)
        wanted = self.losses(plain, (self.x, self.y))
        self.assertEqual(self.losses(searched, (self.x, self.y)), wanted)
        for options, said in (({"lowest": 0.0}, "rates above 0"), ({"steps": 12}, "at least 13"),
                              ({"batch_size": 0}, "batch_size: expected at least 1")):
            with self.assertRaisesRegex(ValueError, said):
                searched.lr_find(self.x, self.y, **options)
        self.assertEqual(len(list(self.folder.iterdir())), 0)
        plain.save(self.folder)
        kept = sorted(self.folder.rglob("*"))
        state = torch.get_rng_state()
        plain.lr_find(torch.utils.data.DataLoader(TensorDataset(self.x, self.y), BATCH), steps=13,
                      folder=self.folder)  # fmt: skip
        self.assertEqual(sorted(self.folder.rglob("*")), kept)
        self.assertTrue(torch.equal(torch.get_rng_state(), state))

    def test_the_steepest_fall_is_before_the_lowest_loss(self):
        rates = [10.0**k for k in range(-6, 1)]
        self.assertEqual(_find.steepest(rates, [5, 4.9, 4.5, 3, 2, 1.9, 9]), 1e-3)
        self.assertEqual(_find.steepest(rates, [5, 4.9, 4.5, 3, 2, 1.9, 9], 3), 1e-2)
        self.assertIsNone(_find.steepest(rates, [1, 2, 3, 4, 5, 6, 7]))
        self.assertIsNone(_find.steepest(rates[:2], [2, 1]))


class Ranks(unittest.TestCase):
    def test_ranks_predict_search_and_merge_together(self):
        from test_fit import Ranks as Fit

        with tempfile.TemporaryDirectory() as folder:
            program = """
                from torch.utils.data import TensorDataset
                t = trainer()
                t.fit(TensorDataset(x, y), max_steps=7, checkpoint={folder!r})
                found = t.lr_find(x, y, steps=20, folder={folder!r})
                print([loss.hex() for loss in found["losses"]], t.steps)
                out = t.predict(TensorDataset(x, y), batch_size=16)
                print(out.shape, float(out.double().sum()).hex())
                second = trainer()
                second.resume({folder!r})
                second.fit(TensorDataset(x, y), epochs=1)
                print(second.steps, float(second.predict(x).double().sum()).hex())
                second.save_merged({folder!r} + "/merged")
                try:
                    second.save_merged({folder!r} + "/merged")
                except penstock.PenstockError as error:
                    print("is there already" in str(error))
            """
            alone = Fit.run_all(self, program.format(folder=folder + "/alone"), 1)
            both = Fit.run_all(self, program.format(folder=folder + "/ranks"), 2)
            self.assertEqual(both, alone * 2)
            self.assertEqual(len(alone[0].splitlines()), 4)


class Merged(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_adapters_are_added_to_their_weights(self):
        torch.manual_seed(0)
        weights = {
            "a.weight": torch.randn(4, 6, dtype=torch.bfloat16), "a.bias": torch.zeros(4),
            "base_model.model.a.lora_A.weight": torch.randn(2, 6),
            "base_model.model.a.lora_B.weight": torch.randn(4, 2), "b.weight": torch.randn(3),
        }  # fmt: skip
        merged = _merged.merge(weights, 8.0, False)
        self.assertEqual(list(merged), ["a.weight", "a.bias", "b.weight"])
        down, up = (weights[f"base_model.model.a.lora_{part}.weight"] for part in "AB")
        wanted = weights["a.weight"].double() + up.double() @ down.double() * 4
        self.assertTrue(torch.equal(merged["a.weight"], wanted.bfloat16()))
        flipped = _merged.merge({**weights, "a.weight": weights["a.weight"].T}, 8.0, True)
        self.assertTrue(torch.equal(flipped["a.weight"], wanted.bfloat16().T))
        del weights["a.weight"]
        with self.assertRaisesRegex(PenstockError, "the adapter of 'a' has no weight"):
            _merged.merge(weights, 8.0, False)

    def test_square_weights_are_added_to_as_their_modules_have_them(self):
        class Conv1D(torch.nn.Module):  # of transformers
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.randn(4, 4))

            def forward(self, x):
                return torch.addmm(torch.zeros(4), x, self.weight)

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), Conv1D())
        trainer = penstock.Trainer(
            model, torch.randn(2, 4), strategy="1f1b-flush", workers=1, batch_size=4,
            micro_batches=2, lora=2, lora_alpha=4, lora_targets=["0", "1"], lr=0.1,
            progress=False, loss="mean-squared-error",
        )  # fmt: skip
        batch = (torch.randn(4, 4), torch.randn(4, 4))
        for _ in range(5):
            trainer.step(*batch)
        wanted = trainer.predict(batch[0])
        folder = trainer.save_merged(self.folder / "mixed")
        file = (folder / "model.safetensors").read_bytes()
        begin = 8 + int.from_bytes(file[:8], "little")
        found = {}
        for name, entry in json.loads(file[8:begin]).items():
            if name != "__metadata__":
                first, last = (begin + edge for edge in entry["data_offsets"])
                data = bytearray(file[first:last])
                found[name] = torch.frombuffer(data, dtype=torch.float32).view(4, 4)
        x = batch[0] @ found["0.weight"].T @ found["1.weight"]
        self.assertTrue(torch.allclose(x, wanted, atol=1e-5))

    def test_files_are_whole_or_not_there(self):
        tensors = {"one": torch.arange(6.0).view(2, 3), "two": torch.ones(4, dtype=torch.int64)}
        tensors["tied"] = tensors["one"]
        _merged.write(self.folder / "all", tensors, None, None, 1 << 30)
        _merged.write(self.folder / "parts", tensors, None, None, 24)
        self.assertEqual([one.name for one in (self.folder / "all").iterdir()],
                         ["model.safetensors"])  # fmt: skip
        index = json.loads((self.folder / "parts" / "model.safetensors.index.json").read_text())
        names = [f"model-0000{k}-of-00002.safetensors" for k in (1, 2)]
        self.assertEqual(index["weight_map"], {"one": names[0], "two": names[1]})
        with self.assertRaisesRegex(PenstockError, "is there already: name a new folder"):
            _merged.write(self.folder / "all", tensors, None, None, 24)
        with self.assertRaisesRegex(PenstockError, "have no torch.complex64"):
            bad = {"x": torch.ones(2, dtype=torch.complex64)}
            _merged.write(self.folder / "bad", bad, None, None, 24)
        self.assertEqual(sorted(one.name for one in self.folder.iterdir()), ["all", "parts"])
        try:
            from safetensors.torch import load_file
        except ImportError:
            return
        found = load_file(self.folder / "all" / "model.safetensors")
        self.assertEqual(sorted(found), ["one", "two"])
        self.assertTrue(torch.equal(found["one"], tensors["one"]))

    def test_transformers_loads_them(self):
        try:
            import transformers
        except ImportError:
            self.skipTest("the package transformers is not there")
        tiny = {"num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 32}
        for kind, config in (
            ("llama", transformers.LlamaConfig(hidden_size=16, intermediate_size=24,
                                               tie_word_embeddings=True, **tiny)),
            ("gpt2", transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=32,
                                             n_positions=16)),
        ):  # fmt: skip
            with self.subTest(kind):
                torch.manual_seed(1)
                model = transformers.AutoModelForCausalLM.from_config(config)
                model.config.use_cache = False
                model.eval()
                ids = torch.randint(32, (8, 12), generator=torch.Generator().manual_seed(3))
                trainer = penstock.Trainer(
                    model, {"input_ids": ids[:2], "labels": ids[:2]}, strategy="1f1b-flush",
                    workers=2, batch_size=4, micro_batches=2, lora=2, lora_alpha=4, lr=0.05,
                    optimizer="adamw", progress=False,
                )  # fmt: skip
                batches = [{"input_ids": ids[k : k + 4], "labels": ids[k : k + 4]} for k in (0, 4)]
                trainer.fit(batches, epochs=3)
                wanted = trainer.evaluate(batches)["loss"]
                folder = trainer.save_merged(self.folder / kind)
                merged = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
                with torch.no_grad():
                    losses = [float(merged(**one).loss) for one in batches]
                    before = [float(model(**one).loss) for one in batches]
                self.assertAlmostEqual(sum(losses) / 2, wanted, places=5)
                self.assertGreater(sum(before) / 2, wanted + 0.01)


if __name__ == "__main__":
    unittest.main()
