"""Losses that a model makes itself: PyTorch's numbers however a step is cut, or a word about it.

test_losses.py [-k NAME]
"""

import copy
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import penstock
from penstock import _core
from penstock._tool import _run

FEATURES = 6
CLASSES = 5


class Own(nn.Module):
    """`loss` of logits and what else there is."""

    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(2)
        self.body = nn.Sequential(nn.Linear(FEATURES, 12), nn.Tanh(), nn.Linear(12, CLASSES))
        self.loss = loss

    def forward(self, x, *more):
        return self.loss(self.body(x), *more)


class Language(nn.Module):
    """As transformers makes the loss of a causal model."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.embed = nn.Embedding(CLASSES, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, input_ids, labels):
        logits = self.head(torch.tanh(self.embed(input_ids))).float()
        labels = F.pad(labels, (0, 1), value=-100)
        return F.cross_entropy(logits.view(-1, CLASSES), labels[..., 1:].contiguous().view(-1))


class Counted(Own):
    """Divides by the number of targets that it is given, as models of Hugging Face do."""

    def forward(self, x, labels, num_items_in_batch):
        count = num_items_in_batch.clamp(min=1)
        return F.cross_entropy(self.body(x), labels, reduction="sum") / count.to(x.device)


class CountedLanguage(Language):
    def forward(self, input_ids, labels=None, **more):
        logits = self.head(torch.tanh(self.embed(input_ids))).float()
        labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous().view(-1)
        loss = F.cross_entropy(logits.view(-1, CLASSES), labels, reduction="sum")
        return loss / more["num_items_in_batch"]


def masked(logits, labels, mask):
    losses = F.cross_entropy(logits, labels, reduction="none")
    return (losses * mask).sum() / mask.sum()


def tokens():
    """Sequences, and their labels, of which each row has one less than the row before."""
    torch.manual_seed(4)
    ids = torch.randint(0, CLASSES, (8, 7))
    labels = ids.clone()
    for row in range(8):
        labels[row, 7 - row :] = -100
    return ids, labels


def samples(count=16):
    torch.manual_seed(3)
    return torch.randn(count, FEATURES), torch.randint(0, CLASSES, (count,))


def trainer_of(module, example, **options):
    options = {"strategy": "gpipe", "workers": 2, "batch_size": 16, "lr": 0.1, **options}
    return penstock.Trainer(module, example, progress=False, **options)


def warned(module, example, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        trainer = trainer_of(module, example, **options)
    return trainer, any("mixes the samples" in str(one.message) for one in caught)


#: No means over samples, and what they take beside x.
X, Y = samples()
MASK = (torch.arange(16) % 3 != 1).float()
NOT_LINEAR = {
    "a variance over the batch": (
        lambda logits, y: F.cross_entropy(logits, y) + 0.1 * logits.var(0).mean(), Y),
    "the square of a mean": (lambda logits: logits.mean() ** 2 + 1,),
    "a perplexity": (lambda logits, y: F.cross_entropy(logits, y).exp(), Y),
    "division by a mask's sum": (masked, Y, MASK),
    "the same, of whole numbers": (masked, Y, MASK.long()),
    "weights of classes": (
        lambda logits, y: F.cross_entropy(logits, y, weight=torch.arange(1.0, CLASSES + 1)), Y),
    "two means of unequally many": (
        lambda logits, y, z: F.cross_entropy(logits, y) + F.cross_entropy(logits, z), Y, Y.flip(0)),
    "the largest of a batch": (lambda logits: logits.square().amax(),),
    "pairs that are far apart": (lambda logits: -(logits[:, None] - logits[None]).abs().mean(),),
    "a mean over targets and one over samples": (
        lambda logits, y: 0.5 * F.cross_entropy(logits, y) + logits.square().mean(), Y),
    "a mean over targets times one over samples": (
        lambda logits, y: F.cross_entropy(logits, y) * logits.square().mean(), Y),
    "a mean over targets by what is left of them": (
        lambda logits, y: F.cross_entropy(logits, y) / (y != -100).sum(), Y),
    "a sum over targets": (lambda logits, y: F.cross_entropy(logits, y, reduction="sum"), Y),
}  # fmt: skip
LINEAR = {
    "a mean of squares": (lambda logits: logits.square().mean(),),
    "a mean over targets": (lambda logits, y: F.cross_entropy(logits, y), Y),
    "with label smoothing": (
        lambda logits, y: F.cross_entropy(logits, y, label_smoothing=0.1), Y),
    "a difference near to zero": (lambda logits: (logits - logits.detach()).mean() + 1e-3,),
}  # fmt: skip


def added(logits, y):
    loss = F.cross_entropy(logits, y).mean()
    loss *= 2
    loss += 0.25 * F.cross_entropy(3 * logits, y.view(-1))
    return loss


#: Means over targets that are multiplied or added.
WEIGHED = {
    "half of a mean": lambda logits, y: 0.5 * F.cross_entropy(logits, y),
    "a mean by a tensor": lambda logits, y: F.cross_entropy(logits, y) / torch.tensor(3.0),
    "less of a mean": lambda logits, y: 10 - F.cross_entropy(logits, y),
    "two means over the same targets": lambda logits, y: (
        sum(F.cross_entropy(k * logits, y.flatten()) * 0.5 for k in (1, 2))),
    "two that are added in place": added,
}  # fmt: skip


class OwnLosses(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def test_those_that_are_no_means_are_not_cut_unless_told(self):
        for name, (loss, *more) in NOT_LINEAR.items():
            with self.subTest(name):
                module, example = Own(loss), (X, *more)
                with self.assertRaisesRegex(penstock.PenstockError, "micro_batches=1 is what"):
                    trainer_of(module, example)
                self.assertTrue(warned(module, example, micro_batches=4)[1])
                trainer, said = warned(module, example, micro_batches=1)
                self.assertFalse(said)
                expected = module(*example).item()
                self.assertAlmostEqual(trainer.step(example)["loss"], expected, places=5)

    def test_a_model_that_takes_the_number_of_targets_is_told_to(self):
        class Either(Own):
            def forward(self, x, labels, num_items_in_batch=None):
                loss = F.cross_entropy(self.body(x), labels, reduction="sum")
                count = (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
                return loss / count

        x, y = samples()
        y[:6] = -100
        example = {"x": x, "labels": y}
        with self.assertRaisesRegex(penstock.PenstockError, "with it in the example"):
            trainer_of(Either(None), example)
        trainer = trainer_of(Either(None), {**example, "num_items_in_batch": 1})
        expected = Either(None)(x, y).item()
        self.assertAlmostEqual(trainer.step(example)["loss"], expected, places=5)
        with self.assertRaisesRegex(penstock.PenstockError, "nothing can be learned"):
            trainer.step({"x": x, "labels": torch.full_like(y, -100)})

    def test_means_are_cut_and_nothing_is_said(self):
        for name, (loss, *more) in LINEAR.items():
            with self.subTest(name):
                module, example = Own(loss), (X, *more)
                trainer, said = warned(module, example)
                self.assertFalse(said)
                expected = module(*example).item()
                self.assertAlmostEqual(trainer.step(example)["loss"], expected, places=5)

    def expect_same(self, module, batch, targets, number=None, **options):
        """Three steps and an evaluation are those of PyTorch over the whole batch. `number`: that
        of the targets in the example, for a module that takes it."""
        numbers = () if number is None else (torch.tensor(targets),)
        example = batch if number is None else (*batch, number)
        trainer = trainer_of(module, example, batch_size=len(batch[0]), **options)
        other = copy.deepcopy(module)
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = other(*batch, *numbers)
            loss.backward()
            optimizer.step()
            made = trainer.step(batch)
            self.assertAlmostEqual(made["loss"], loss.item(), places=5)
            self.assertEqual(made["targets"], targets)
        for name, weight in trainer.state_dict().items():
            torch.testing.assert_close(weight, other.state_dict()[name], rtol=1e-4, atol=1e-6)
        seen = trainer.evaluate(batch, batch_size=3)
        self.assertAlmostEqual(seen["loss"], other(*batch, *numbers).item(), places=5)
        self.assertEqual(seen["targets"], targets)

    def test_unequally_many_ignored_targets_count_alike(self):
        _, y = samples()
        y[:6] = -100  # the first micro-batch has no target at all
        y[9] = -100
        for options in ({"micro_batches": 4}, {"micro_batches": 5},
                        {"strategy": "dp", "micro_batches": 2}):  # fmt: skip
            with self.subTest(**options):
                self.expect_same(Own(F.cross_entropy), (X, y), 9, **options)

    def test_means_over_targets_are_weighed_also_when_they_are_multiplied(self):
        _, y = samples()
        y[:6] = -100
        y[9] = -100
        for name, loss in WEIGHED.items():
            with self.subTest(name):
                self.expect_same(Own(loss), (X, y), 9, micro_batches=4)

    def test_a_penalty_on_weights_counts_once(self):
        class Penalty(Own):
            def forward(self, x, y):
                return super().forward(x, y) + 0.01 * sum(
                    weight.square().sum() for weight in self.parameters()
                )

        _, y = samples()
        y[:6] = -100
        self.expect_same(Penalty(F.cross_entropy), (X, y), 10, workers=1, micro_batches=4)

    def test_labels_that_are_shifted_count_alike(self):
        ids, labels = tokens()
        self.expect_same(Language(), (ids, labels), 6 + 5 + 4 + 3 + 2 + 1, micro_batches=4)

    def test_the_number_of_targets_is_that_of_the_whole_step(self):
        _, y = samples()
        y[:6] = -100  # the first micro-batch has no target at all
        y[9] = -100
        module = Counted(None)
        for number in (torch.tensor(1), torch.tensor([3]), torch.tensor(2.0)):
            with self.subTest(number):
                self.expect_same(module, (X, y), 9, number, micro_batches=4)
        for options in ({"micro_batches": 1}, {"micro_batches": 2}, {"micro_batches": 5}, {},
                        {"strategy": "1f1b-flush", "workers": 3},
                        {"strategy": "dp", "micro_batches": 2},
                        {"strategy": "dp", "workers": 4, "micro_batches": 4}):  # fmt: skip
            with self.subTest(**options):
                self.expect_same(module, (X, y), 9, torch.tensor(1), **options)

    def test_one_tensor_in_two_places_of_the_example_is_two_inputs(self):
        ids = torch.randint(0, CLASSES, (8, 7))
        labels = ids.flip(0)
        labels[0] = -100
        for module in (Language(), CountedLanguage()):
            example = {"input_ids": ids, "labels": ids}
            more = {}
            if isinstance(module, CountedLanguage):
                more["num_items_in_batch"] = torch.tensor(7 * 6)
            trainer = trainer_of(module, {**example, **more}, batch_size=8, micro_batches=2)
            made = trainer.step({"input_ids": ids, "labels": labels})
            expected = module(input_ids=ids, labels=labels, **more).item()
            self.assertAlmostEqual(made["loss"], expected, places=5)

    def test_other_sums_by_the_number_of_targets_count_where_no_target_does(self):
        class Large(Own):
            def forward(self, x, labels, num_items_in_batch):
                logits = self.body(x)
                loss = F.cross_entropy(logits, labels, reduction="sum")
                return (0.5 * loss + logits.square().sum()) / num_items_in_batch

        _, y = samples()
        y[:6] = -100
        trainer = trainer_of(Large(None), (X, y, torch.tensor(1)), micro_batches=4)
        expected = Large(None)(X, y, torch.tensor(10)).item()
        self.assertAlmostEqual(trainer.step((X, y))["loss"], expected, places=5)

    def test_the_number_of_targets_may_come_by_name(self):
        ids, labels = tokens()
        module, batch = CountedLanguage(), {"input_ids": ids, "labels": labels}
        count = int((labels[:, 1:] != -100).sum())
        for number in (torch.tensor(5), 5):
            trainer = trainer_of(
                module, {**batch, "num_items_in_batch": number}, batch_size=8, micro_batches=4
            )
            made = trainer.step(batch)
            self.assertEqual(made["targets"], count)
            expected = module(**batch, num_items_in_batch=count).item()
            self.assertAlmostEqual(made["loss"], expected, places=5)
        with self.assertRaisesRegex(penstock.PenstockError, "'num_items_in_batch'.*leave it out"):
            trainer.step({**batch, "num_items_in_batch": torch.tensor(count)})

    def test_a_number_of_targets_that_cannot_be_told_is_refused(self):
        class Rows(Own):
            def forward(self, x, labels, num_items_in_batch):
                rows = self.body(x).log_softmax(1).gather(1, labels[:, None])
                return -rows.sum() / num_items_in_batch

        class Early(Own):
            def forward(self, x, labels, num_items_in_batch):
                logits = self.body(x / num_items_in_batch)
                return F.cross_entropy(logits, labels, reduction="sum") / num_items_in_batch

        class Two(Own):
            def forward(self, x, labels, num_items_in_batch):
                logits = self.body(x)
                one = F.cross_entropy(logits, labels, reduction="sum")
                two = F.cross_entropy(logits, labels.flip(0), reduction="sum")
                return (one + two) / num_items_in_batch

        class Elsewhere(Own):
            def forward(self, x, labels, number):
                return F.cross_entropy(self.body(x), labels, reduction="sum") / number

        for kind, why in ((Rows, "found no such sum"), (Early, "reads it before that sum"),
                          (Two, "sums over 'labels' and over 'flip'"),
                          (Elsewhere, "'number' is one number.*as 'num_items_in_batch'")):
            with self.subTest(kind.__name__), self.assertRaisesRegex(penstock.PenstockError, why):
                trainer_of(kind(None), (X, Y, torch.tensor(4)))
        for type in (torch.bool, torch.uint8, torch.float16):
            with self.assertRaisesRegex(penstock.PenstockError, "expected int64 or float32"):
                trainer_of(Counted(None), (X, Y, torch.tensor(1, dtype=type)))
        with self.assertRaisesRegex(TypeError, "expected a tensor or an array of numbers"):
            trainer_of(Counted(None), (X, Y, "16"))

    def test_a_number_of_targets_that_is_fixed_in_a_file_is_refused(self):
        class Divided(Own):
            def forward(self, x, labels, num_items_in_batch):
                return F.cross_entropy(self.body(x), labels, reduction="sum") / num_items_in_batch

        batch = torch.export.Dim("batch")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fixed.pt2"
            program = torch.export.export(
                Divided(None), (X, Y, 16), dynamic_shapes=({0: batch}, {0: batch}, None),
                strict=False,
            )  # fmt: skip
            torch.export.save(program, path)
            with self.assertRaisesRegex(penstock.PenstockError, "is a constant in the file"):
                trainer_of(path, None)

    def test_the_command_refuses_them_likewise(self):
        loss, *more = NOT_LINEAR["a perplexity"]
        with tempfile.TemporaryDirectory() as folder:
            path = penstock.export(Own(loss), (X, *more), Path(folder) / "own.pt2")
            data = Path(folder) / "data.npz"
            names = {one["name"]: (X, Y)[k].numpy()
                     for k, one in enumerate(_core.Model(str(path)).inputs())}
            np.savez(data, **names)
            train = ("train", "--model", str(path), "--data", str(data), "--strategy", "gpipe",
                     "--workers", "2", "--batch-size", "8", "--steps", "1", "--no-eval")
            with self.assertRaisesRegex(penstock.PenstockError, "--micro-batches 1 is what"):
                _run(*train)
            _run(*train, "--micro-batches", "2")

    def test_one_without_a_name_has_a_way_out(self):
        said = "unknown loss 'hinge': expected one of cross-.*a model returns its own loss"
        with self.assertRaisesRegex(penstock.PenstockError, said):
            penstock.Trainer(nn.Linear(6, 3), torch.zeros(4, 6), loss="hinge", progress=False)

    def test_an_epoch_is_the_mean_over_its_targets(self):
        _, y = samples()
        y[:6] = -100
        module = Own(F.cross_entropy)
        trainer = trainer_of(module, (X, y), lr=0.0, micro_batches=4, batch_size=8)
        epoch, = trainer.fit((X, y))
        self.assertAlmostEqual(epoch["loss"], module(X, y).item(), places=5)
        self.assertEqual(epoch["targets"], 10)
        with self.assertRaisesRegex(penstock.PenstockError, "nothing can be learned"):
            trainer.fit((X, torch.full_like(y, -100)))


if __name__ == "__main__":
    unittest.main()
