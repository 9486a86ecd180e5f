"""Documents as batches of packed rows and of padded lengths: they train as in PyTorch, and a run
goes on in the middle of an epoch with the same bits."""

import copy
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
import preloaded
import torch
from test_data import Folder
from test_ranks import forked_ranks
from torch import nn

import penstock
from penstock import PenstockError

try:
    import transformers
except ImportError:
    transformers = None


class Speaker(nn.Module):
    """A causal model that sees its own document alone, and makes its own loss."""

    def __init__(self, vocabulary=40, width=16):
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, vocabulary)
        self.body = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))

    def forward(self, input_ids, position_ids, labels):
        x = self.embed(input_ids) + self.place(position_ids)
        document = (position_ids == 0).cumsum(1)
        seen = (document[:, :, None] == document[:, None]).tril()
        q, k, v = self.qkv(x).chunk(3, 2)
        scores = (q @ k.transpose(1, 2)).masked_fill(~seen, -1e9)
        logits = self.head(self.body(x + scores.softmax(2) @ v))
        labels = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def reference(module, batches, lr=0.01):
    module = copy.deepcopy(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=lr)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        made = module(**batch)
        loss = getattr(made, "loss", made)  # of transformers
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Other:
    """As StatefulDataLoader: it has tensors in its state, and learns of the end of an epoch
    when it is asked for the batch behind it."""

    def __init__(self, batches, more=None):
        self.batches, self.place, self.more = batches, torch.tensor(0), more

    def __iter__(self):
        while self.place < len(self.batches):
            self.place += 1
            yield self.batches[self.place - 1]
        self.place = torch.tensor(0)

    def state_dict(self):
        return {"at": {"place": self.place, "more": self.more}}

    def load_state_dict(self, state):
        self.place = state["at"]["place"]


class Training(Folder):
    OPTIONS = {"optimizer": "AdamW", "lr": 0.01, "batch_size": 4, "progress": False}
    LENGTHS = [int(one) for one in np.random.default_rng(5).integers(2, 30, 60)]

    @classmethod
    def setUpClass(cls):
        """Programs and plans are made once."""
        cls.plans = {}
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.programs = Path(folder.name)
        example = torch.zeros(2, 24, dtype=torch.long)
        example = {name: example.clone() for name in ("input_ids", "position_ids", "labels")}
        for any_length in (False, True):
            penstock.export(Speaker(), example, cls.programs / f"{any_length}.pt2",
                            any_length=any_length)  # fmt: skip

    def trainer(self, strategy="serial", workers=1, any_length=False, **options):
        program, known = self.programs / f"{any_length}.pt2", (strategy, any_length)
        if known in self.plans:
            options = {"plan": self.plans[known]}
        else:
            options = {"strategy": strategy, "workers": workers, **options}
        made = penstock.Trainer(program, **self.OPTIONS, **options)
        self.plans[known] = made.plan
        return made

    def test_packed_and_padded_data_train_as_in_pytorch(self):
        documents = self.documents(self.LENGTHS)
        columns = ("input_ids", "position_ids", "labels")
        for make, any_length in (
            (lambda: documents.packed(24, batch_size=4), False),
            (lambda: documents.padded(batch_size=4, columns=columns), True),
        ):
            batches = [batch for loader in (make(),) for _ in range(2) for batch in loader]
            expected = reference(Speaker(), batches)
            for strategy, workers in (("serial", 1), ("1f1b-flush", 2)):
                with self.subTest(strategy, any_length=any_length):
                    trainer = self.trainer(strategy, workers, any_length, micro_batches=2)
                    seen = []
                    trainer.fit(make(), epochs=2, callbacks=seen.append)
                    self.assertEqual(len(seen), len(expected))
                    for one, wanted in zip(seen, expected):
                        self.assertAlmostEqual(one["loss"], wanted, delta=1e-5 * wanted)

    def test_a_run_goes_on_in_the_middle_of_an_epoch_with_the_same_bits(self):
        documents = self.documents(self.LENGTHS)
        loader = lambda: documents.packed(24, batch_size=4, seed=7)  # noqa: E731
        options = {"strategy": "1f1b-flush", "workers": 2, "micro_batches": 2}
        seen = []
        whole = self.trainer(**options)
        whole.fit(loader(), epochs=2, callbacks=seen.append)
        losses = [one["loss"] for one in seen]
        epoch = len(losses) // 2
        for stop in (1, 3, epoch - 1, epoch, epoch + 2):
            with self.subTest(stop):
                folder = self.folder / f"run{stop}"
                first = self.trainer(**options)

                def end(step, first=first, stop=stop, folder=folder):
                    if step["step"] == stop:
                        first.save(folder)
                        raise OSError("the machine is gone")

                with self.assertRaisesRegex(OSError, "the machine is gone"):
                    first.fit(loader(), epochs=2, callbacks=end)
                second, seen = self.trainer(**options), []
                self.assertTrue(second.resume(folder))
                self.assertEqual(second.epochs, stop // epoch)
                second.fit(loader(), epochs=2 - second.epochs, callbacks=seen.append)
                self.assertEqual([one["loss"] for one in seen], losses[stop:])
                for name, weight in whole.state_dict().items():
                    self.assertTrue(torch.equal(weight, second.state_dict()[name]))

    def test_loaders_of_others_go_on_as_well(self):
        batches = list(self.documents(self.LENGTHS).packed(24, batch_size=4))[:4]
        seen = []
        self.trainer().fit(Other(batches), epochs=2, callbacks=seen.append)
        losses = [one["loss"] for one in seen]
        for stop in range(1, 8):
            first, second, rest = self.trainer(), self.trainer(), []

            def end(step, first=first, stop=stop):
                if step["step"] == stop:
                    first.save(self.folder / f"run{stop}")
                    first.stop()

            first.fit(Other(batches), epochs=2, callbacks=end)
            second.resume(self.folder / f"run{stop}")
            second.fit(Other(batches), epochs=2 - second.epochs, callbacks=rest.append)
            self.assertEqual([one["loss"] for one in rest], losses[stop:])
        for more, why in (
            (set(), r"\['at'\]\['more'\] is a set"),
            ([(1, 2)], r"\['more'\]\[0\] is a tuple"),
            ({3: 4}, r"\['more'\] has the key 3, expected texts"),
        ):
            with self.assertRaisesRegex(ValueError, f"save_every: .* other values than.*{why}"):
                first.fit(Other(batches, more), checkpoint=self.folder / "run", save_every=2)
            first.fit(Other(batches, more))

    def test_an_epoch_after_a_stop_is_neither_lost_nor_repeated(self):
        batches = list(self.documents(self.LENGTHS).packed(24, batch_size=4))[:4]
        seen = []
        self.trainer().fit(Other(batches), epochs=2, callbacks=seen.append)
        losses = [one["loss"] for one in seen]
        for stop, in_job in ((4, False), (4, True), (2, True)):
            with self.subTest(stop, in_job=in_job):
                first, second, rest = self.trainer(), self.trainer(), []
                job = mock.Mock(rank=0, from_first=str) if in_job else None
                with mock.patch.object(first, "_job", job):
                    first.fit(
                        Other(batches), epochs=2, checkpoint=self.folder / f"{stop}{in_job}",
                        callbacks=lambda step: step["step"] == stop and first.stop(),
                    )  # fmt: skip
                self.assertEqual((first.steps, first.epochs), (4, 1))
                second.resume(self.folder / f"{stop}{in_job}")
                for trainer, loader in ((second, Other(batches)), (first, Other(batches))):
                    rest = []
                    trainer.fit(loader, epochs=2 - trainer.epochs, callbacks=rest.append)
                    self.assertEqual([one["loss"] for one in rest], losses[4:])

    def test_a_stop_takes_no_batch_away(self):
        batches = list(self.documents(self.LENGTHS).packed(24, batch_size=4))[:4]
        trainer, seen, loader = self.trainer(), [], Other(batches)
        for _ in range(2):
            trainer.fit(loader, callbacks=lambda step: seen.append(step) or trainer.stop())
        self.assertEqual(int(loader.place), 2)
        for one, wanted in zip(seen, reference(Speaker(), batches[:2]), strict=True):
            self.assertAlmostEqual(one["loss"], wanted, delta=1e-5 * wanted)
        given = iter(batches)
        trainer.fit(given, callbacks=lambda _: trainer.stop())
        self.assertEqual(len(list(given)), 3)

    def test_a_loader_that_does_not_go_back_does_not_hide_an_error(self):
        loader = self.documents(self.LENGTHS).packed(24, batch_size=4)
        trainer = self.trainer()
        with mock.patch.object(loader, "load_state_dict", side_effect=OSError("no place")):
            with self.assertRaisesRegex(ValueError, "the first"), self.assertWarnsRegex(
                UserWarning, "no step has taken is lost.*OSError: no place"
            ):
                trainer.fit(loader, callbacks=mock.Mock(side_effect=ValueError("the first")))

    def test_a_place_stays_until_a_loader_has_taken_it(self):
        loader = lambda: self.documents(self.LENGTHS).packed(24, batch_size=4)  # noqa: E731
        first, seen = self.trainer(), []
        first.fit(loader(), callbacks=seen.append)
        first = self.trainer()
        first.fit(loader(), callbacks=lambda step: step["step"] == 2 and first.save(self.folder))
        second, third = self.trainer(), self.trainer()
        second.resume(sorted(self.folder.glob("step-*"))[0])
        with self.assertRaisesRegex(PenstockError, "in another order"):
            second.fit(self.documents(self.LENGTHS).packed(24, batch_size=4, seed=2))
        second.save(self.folder / "again")
        third.resume(self.folder / "again")
        for trainer in (second, third):
            rest = []
            trainer.fit(loader(), callbacks=rest.append)
            self.assertEqual([one["loss"] for one in rest], [one["loss"] for one in seen[2:]])

    def test_it_saves_within_an_epoch(self):
        documents = self.documents(self.LENGTHS)
        loader = documents.packed(24, batch_size=4)
        trainer = self.trainer()
        trainer.fit(loader, callbacks=lambda step: step["step"] == 6 and trainer.stop(),
                    checkpoint=self.folder / "run", save_every=2)  # fmt: skip
        names = sorted(path.name for path in (self.folder / "run").glob("step-*"))
        self.assertEqual(names, ["step-000000004", "step-000000006"])
        for data, options in (([(1, 2)], {"checkpoint": "run"}), (loader, {})):
            with self.assertRaisesRegex(ValueError, "save_every: expected a checkpoint"):
                trainer.fit(data, save_every=2, **options)

    def test_a_batch_that_no_step_has_taken_comes_again(self):
        documents = self.documents(self.LENGTHS)
        loader = documents.packed(24, batch_size=4)
        trainer = self.trainer()
        before, seen = len(loader), []
        with mock.patch.object(trainer, "_split", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                trainer.fit(loader)
        trainer.fit(loader, callbacks=seen.append)
        self.assertEqual(len(seen), before)

    def test_data_that_cannot_say_where_they_are_begin_anew_with_a_word(self):
        documents = self.documents(self.LENGTHS)
        loader = documents.packed(24, batch_size=4)
        trainer = self.trainer()
        trainer.fit(loader, callbacks=lambda _: trainer.stop())
        trainer.save(self.folder / "run")
        other = self.trainer()
        other.resume(self.folder / "run")
        with self.assertWarnsRegex(UserWarning, "begin anew"):
            other.fit(list(documents.packed(24, batch_size=4))[:1])
        other.resume(self.folder / "run")
        with self.assertRaisesRegex(PenstockError, "other data, or in another order"):
            other.fit(documents.packed(24, batch_size=4, seed=2))

    def test_a_batch_without_any_label_is_refused(self):
        documents = self.documents(self.LENGTHS)
        loader = documents.packed(24, batch_size=4)
        trainer = self.trainer("1f1b-flush", 2, micro_batches=2)
        (batch, *_) = loader
        none = {**batch, "labels": torch.full_like(batch["labels"], -100)}
        with self.assertRaisesRegex(PenstockError, "nothing can be learned from 'the batch'"):
            trainer.step(none)
        one = {name: value[:, :1] for name, value in batch.items()}
        with self.assertRaisesRegex(PenstockError, "expected"):
            trainer.step(one)
        self.assertEqual(trainer.steps, 0)
        # Of one micro-batch all may be ignored.
        half = {**batch, "labels": batch["labels"].clone()}
        half["labels"][:2] = -100
        (wanted,) = reference(Speaker(), [half])
        self.assertAlmostEqual(trainer.step(half)["loss"], wanted, delta=1e-5 * wanted)

    def test_two_ranks_go_on_with_the_same_bits(self):
        documents = self.documents(self.LENGTHS)
        program = f"""
            import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
            import penstock, torch
            run = {str(self.folder / "run")!r} + os.environ.get("WORLD_SIZE", "")
            from test_sequences import Speaker, Training
            from penstock.data import Documents
            def loader():
                return Documents({str(documents.folder)!r}).packed(24, batch_size=4)
            def trainer():
                return penstock.Trainer(Speaker(), loader().example(), strategy="1f1b-flush",
                                        workers=2, micro_batches=2, **Training.OPTIONS)
            whole, seen = trainer(), []
            whole.fit(loader(), epochs=2, callbacks=seen.append)
            first = trainer()
            first.fit(loader(), checkpoint=run, save_every=3)
            import shutil
            from pathlib import Path
            first._job.from_first("saved") if first._job else None
            saved = sorted(Path(run).glob("step-*"))
            second, rest = trainer(), []
            second.resume(saved[0])  # inside of the first epoch
            begun = second.steps
            second.fit(loader(), epochs=2, callbacks=rest.append)
            if second.rank == 0:
                assert 0 < begun < len(seen) // 2 and second.epochs == 2, begun
                assert [one["loss"] for one in rest] == [one["loss"] for one in seen[begun:]]
                print(*(one["loss"] for one in seen))
        """
        with_ranks = forked_ranks(textwrap.dedent(program), 2)
        (alone,) = preloaded.run(textwrap.dedent(program))
        for done in (*with_ranks, alone):
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = "".join(done.stdout for done in with_ranks).split()
        for one, wanted in zip(found, alone.stdout.split(), strict=True):
            self.assertAlmostEqual(float(one), float(wanted), delta=1e-6)


@unittest.skipIf(transformers is None, "the package transformers is not installed")
class Llama(Folder):
    def model(self):
        torch.manual_seed(2)
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
            use_cache=False,
        ))  # fmt: skip

    def alone(self, model, batch):
        """The loss of a packed batch, each of its documents for itself."""
        total = count = 0
        for ids, places, labels in zip(*batch.values()):
            begins = [*torch.nonzero(places == 0)[:, 0].tolist(), len(places)]
            for begin, end in zip(begins, begins[1:]):
                if learned := int((labels[begin + 1 : end] != -100).sum()):
                    part = {"input_ids": ids[None, begin:end], "labels": labels[None, begin:end]}
                    total, count = total + model(**part).loss.item() * learned, count + learned
        return total / count

    def test_a_packed_document_is_seen_alone(self):
        loader = self.documents(Training.LENGTHS).packed(32, batch_size=4)
        for number in ({}, {"num_items_in_batch": 1}):
            with self.subTest(**number):
                model = self.model()
                trainer = penstock.Trainer(model, {**loader.example(), **number}, workers=2,
                                           strategy="1f1b-flush", micro_batches=2,
                                           **Training.OPTIONS)  # fmt: skip
                batches = list(loader)
                expected = self.alone(model, batches[0])
                self.assertAlmostEqual(trainer.step(batches[0])["loss"], expected, places=5)
                for batch, wanted in zip(batches[1:], reference(self.model(), batches)[1:]):
                    self.assertAlmostEqual(trainer.step(batch)["loss"], wanted, places=4)


if __name__ == "__main__":
    unittest.main()
