"""Models as people write them: trained as PyTorch does, or a message that says what and where.

test_outside.py [-k NAME]
"""

import copy
import tempfile
import unittest
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import penstock

IDS = 40


class Segments(nn.Module):
    """An embedding of segments that are computed of the tokens."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(IDS, 8)
        self.segment = nn.Embedding(2, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, ids):
        return self.head((self.embed(ids) + self.segment((ids > 30).long())).mean(1))


class Positions(nn.Module):
    """As RoBERTa counts positions, from behind the padding."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(IDS, 8)
        self.place = nn.Embedding(9, 8, padding_idx=1)
        self.head = nn.Linear(8, 5)

    def forward(self, ids):
        real = ids.ne(1).int()
        places = (torch.cumsum(real, dim=1) * real).long() + 1
        return self.head((self.embed(ids) + self.place(places)).mean(1))


class Partial(nn.Module):
    """As Phi-3 turns a part of the features: here all of them, and nothing is left."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        h = torch.cat([h[:, :8].sin(), h[:, 8:]], -1)
        return self.head(torch.tanh(self.second(h)))


class Rotary(nn.Module):
    """Turned by complex numbers, as Llama's own code does."""

    def __init__(self, persistent):
        super().__init__()
        self.first = nn.Linear(6, 6 * 8)
        self.head = nn.Linear(6 * 8, 5)
        angles = torch.outer(torch.arange(6.0), torch.arange(1.0, 5.0) / 4)
        turns = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("turns", turns, persistent=persistent)

    def forward(self, x):
        h = torch.view_as_complex(self.first(x).unflatten(1, (6, 4, 2)))
        return self.head(torch.view_as_real(h * self.turns).flatten(1))


class Extremes(nn.Module):
    """What libtorch 1.13 has no derivative for."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 24)
        self.head = nn.Linear(20, 5)

    def forward(self, x):
        h = F.channel_shuffle(self.first(x).view(-1, 4, 6), 2)
        smallest, largest = torch.aminmax(h, dim=2)
        return self.head(torch.cat([smallest, largest, h[:, :2].flatten(1)], 1))


def numbers(count=16):
    torch.manual_seed(5)
    return torch.randn(count, 6), torch.randint(0, 5, (count,))


def tokens(count=16):
    torch.manual_seed(5)
    return torch.randint(2, IDS, (count, 7)), torch.randint(0, 5, (count,))


CASES = {
    "computed segments": (Segments, tokens),
    "computed positions": (Positions, tokens),
    "a part of nothing": (Partial, numbers),
    "complex numbers in a buffer": (lambda: Rotary(True), numbers),
    "complex numbers that are not saved": (lambda: Rotary(False), numbers),
    "extremes": (Extremes, numbers),
    "rrelu in evaluation mode": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.RReLU().eval(), nn.Linear(8, 5)), numbers),
}  # fmt: skip


class Outside(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch.manual_seed(1)

    def test_they_train_as_in_pytorch(self):
        for name, (make, data) in CASES.items():
            module = make()
            modes = {part: part.training for part in module.modules()}
            x, y = data()
            other = copy.deepcopy(module)
            optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
            expected = []
            for _ in range(3):
                optimizer.zero_grad()
                loss = F.cross_entropy(other(x), y)
                loss.backward()
                optimizer.step()
                expected.append(loss.item())
            for strategy, workers in (("serial", 1), ("gpipe", 2)):
                with self.subTest(name, strategy=strategy):
                    trainer = penstock.Trainer(
                        module, x[:4], strategy=strategy, workers=workers, batch_size=16, lr=0.1,
                        progress=False,
                    )  # fmt: skip
                    for loss in expected:
                        self.assertAlmostEqual(trainer.step(x, y)["loss"], loss, places=5)
                    weights = trainer.state_dict()
                    for key, value in other.state_dict().items():
                        torch.testing.assert_close(weights[key], value, rtol=1e-4, atol=1e-6)
                    copy.deepcopy(module).load_state_dict(weights, strict=True)
                    trainer.load_state_dict(weights)
            self.assertEqual(modes, {part: part.training for part in module.modules()})


class Said(unittest.TestCase):
    def refusal(self, module, example):
        with self.assertRaises(penstock.PenstockError) as caught:
            penstock.Trainer(module, example, progress=False)
        return str(caught.exception)

    def test_the_sequence_first_is_said_to_be_one_layer(self):
        class First(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)))
                self.head = nn.Linear(6, 3)

            def forward(self, x):
                return self.head(self.body(x.transpose(0, 1)).transpose(0, 1)[:, -1])

        x = torch.randn(8, 5, 6)
        with self.assertWarnsRegex(UserWarning, "operators with weights are one layer.*5 x batch"):
            penstock.Trainer(First(), x, strategy="1f1b-flush", workers=2, batch_size=8,
                             progress=False)  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            module = nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)), nn.Flatten(),
                                   nn.Linear(30, 3))  # fmt: skip
            penstock.Trainer(module, x, strategy="1f1b-flush", workers=2, batch_size=8,
                             progress=False)  # fmt: skip
        self.assertFalse(any("one layer" in str(one.message) for one in caught))

    def test_weights_of_bfloat16_are_one_line(self):
        module = nn.Sequential(*(nn.Linear(6, 6) for _ in range(20))).to(torch.bfloat16)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            penstock.Trainer(module, torch.randn(4, 6, dtype=torch.bfloat16), progress=False)
        said = [str(one.message) for one in caught if "bfloat16" in str(one.message)]
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], "^40 trained weights are bfloat16 .* stepped as float32")

    def test_inputs_that_are_complex_are_named(self):
        class Parts(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(6, 3)

            def forward(self, spectrum):
                return self.head(spectrum.abs())

        message = self.refusal(Parts(), torch.randn(4, 6, dtype=torch.complex64))
        self.assertRegex(message, "the input 'spectrum' is complex64: expected float32")

    def test_the_line_that_fixes_the_batch_is_named(self):
        class Fixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(6, 3)

            def forward(self, x):
                return self.head(x.view(4, 6))

        with self.assertRaisesRegex(ValueError, "fixed at test_outside.py:.*view\\(4, 6\\)"):
            penstock.Trainer(Fixed(), torch.randn(4, 6), progress=False)

    def test_what_cannot_be_exported_has_a_line_or_a_name(self):
        class Packed(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(6, 8, batch_first=True)
                self.head = nn.Linear(8, 3)

            def forward(self, x, lengths):
                rows = nn.utils.rnn.pack_padded_sequence(x, lengths, True, False)
                return self.head(self.rnn(rows)[1][0][-1])

        class Sparse(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(6, 3)
                self.register_buffer("mix", torch.eye(6).to_sparse())

            def forward(self, x):
                return self.head((self.mix @ x.t()).t())

        x = torch.randn(4, 5, 6)
        with self.assertRaisesRegex(ValueError, "at test_outside.py:[0-9]+: .*self.rnn.rows"):
            penstock.Trainer(Packed(), (x, torch.tensor([5, 3, 2, 1])), progress=False)
        with self.assertRaisesRegex(ValueError, "the buffer 'mix' is sparse"):
            penstock.Trainer(Sparse(), x[:, 0], progress=False)

    def test_a_length_of_any_size_is_that_of_the_example(self):
        class Mean(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(6, 6)
                self.head = nn.Linear(6, 3)

            def forward(self, x):
                return self.head(torch.tanh(self.body(x)).mean(1))

        shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length")},)
        program = torch.export.export(
            Mean(), (torch.randn(4, 7, 6),), dynamic_shapes=shapes, strict=False
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mean.pt2"
            torch.export.save(program, path)
            with self.assertWarnsRegex(UserWarning, "may have any size; plans are made for 7"):
                trainer = penstock.Trainer(path, strategy="gpipe", batch_size=8, progress=False)
            y = torch.zeros(8, dtype=torch.long)
            trainer.step(torch.randn(8, 7, 6), y)
            trainer.step(torch.randn(8, 9, 6), y)
            with self.assertRaisesRegex(penstock.PenstockError, "7x6, found float32, 9x5"):
                trainer.step(torch.randn(8, 9, 5), y)

    def test_a_batch_of_another_length_is_told_which_and_what_to_do(self):
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(IDS, 8)
                self.head = nn.Linear(8, IDS)

            def forward(self, ids, mask):
                return self.head(torch.tanh(self.embed(ids)) * mask[..., None])

        def batch(length, mask=None):
            ids = torch.randint(2, IDS, (8, length))
            return (ids, torch.ones(8, mask or length)), ids

        def wrong(name, found, type="int64", what="pad or cut .* or export it for any length"):
            said = f"'{name}': expected .*{type}, 7, found {type}, {found}.*{what}"
            return self.assertRaisesRegex(penstock.PenstockError, said)

        trainer = penstock.Trainer(Words(), batch(7)[0], batch_size=8, progress=False)
        for length in (5, 9):
            x, y = batch(length)
            with wrong("ids", length, what=f"layer 'embed' .*is 7 in the program, found {length}: "
                       "export it with that dimension dynamic"):  # fmt: skip
                trainer.step(x, y)
            with wrong("ids", length):
                trainer.fit((*x, y))
            with wrong("ids", length):
                trainer.fit([(x, y)])
            with wrong("ids", length):
                trainer.evaluate((*x, y))
        (ids, mask), y = batch(7)
        with wrong("mask", 5, "float32"):
            trainer.step((ids, mask[:, :5]), y)
        with wrong("targets", 5):
            trainer.step((ids, mask), y[:, :5])
        with wrong("ids", "one number", what="reshape them"):
            trainer.step((ids[:, 0], mask), y)
        self.assertEqual(trainer.steps, 0)

        trainer = penstock.Trainer(Words(), batch(7)[0], batch_size=8, progress=False,
                                   strategy="1f1b", weights="stash")  # fmt: skip
        with wrong("ids", 5):
            trainer.fit([batch(7), batch(5)])
        with wrong("ids", 5):
            trainer.fit([batch(5), batch(5)])
        with wrong("targets", 5):
            trainer.fit([((ids, mask), y), ((ids, mask), y[:, :5])])
        with self.assertRaisesRegex(penstock.PenstockError, "1 input.*expected 2.*ids .*mask"):
            trainer.fit([(ids, y)])


class AnyLength(unittest.TestCase):
    """Sequences as they come: the program has a dynamic length."""

    class Speaker(nn.Module):
        """Causal attention, a mask, and positions: what depends on the length in every way."""

        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(IDS, 16)
            self.place = nn.Embedding(64, 16)
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
            self.norm = nn.LayerNorm(16)
            self.wide = nn.Linear(16, 32)
            self.narrow = nn.Linear(32, 16)
            self.head = nn.Linear(16, IDS)

        def forward(self, ids, mask):
            x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
            q, k, v = (part(x).unflatten(-1, (2, 8)).transpose(1, 2)
                       for part in (self.q, self.k, self.v))  # fmt: skip
            seen = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
            seen = seen[None, None] & mask[:, None, None].bool()
            y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
            x = self.norm(x + y.transpose(1, 2).flatten(2))
            return self.head(x + self.narrow(torch.tanh(self.wide(x))))

    @staticmethod
    def batches(lengths, samples=8):
        torch.manual_seed(4)
        made = []
        for length in lengths:
            ids = torch.randint(2, IDS, (samples, length))
            mask = torch.ones(samples, length, dtype=torch.long)
            mask[::2, length - 2 :] = 0  # padding of the shorter ones
            made.append(((ids, mask), torch.where(mask > 0, ids.roll(-1, 1), -100)))
        return made

    @staticmethod
    def reference(module, batches, lr):
        optimizer = torch.optim.SGD(module.parameters(), lr=lr)
        losses = []
        for (ids, mask), y in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(ids, mask).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_batches_of_any_length_train_as_in_pytorch(self):
        lengths = [9, 4, 17, 6, 9]
        for strategy, workers in (("serial", 1), ("1f1b-flush", 2), ("dp", 2)):
            with self.subTest(strategy):
                torch.manual_seed(1)
                module = self.Speaker()
                (example, _), *_ = self.batches([9])
                trainer = penstock.Trainer(module, example, strategy=strategy, workers=workers,
                                           batch_size=8, micro_batches=4, lr=0.5,
                                           any_length=True, progress=False)  # fmt: skip
                batches = self.batches(lengths)
                losses = [trainer.step(*batch)["loss"] for batch in batches]
                expected = self.reference(module, batches, 0.5)
                for found, wanted in zip(losses, expected):
                    self.assertAlmostEqual(found, wanted, delta=1e-5 * wanted)
                (ids, mask), y = self.batches([31])[0]
                module.eval()
                with torch.no_grad():
                    wanted = nn.functional.cross_entropy(
                        module(ids, mask).flatten(0, 1), y.flatten()
                    ).item()
                found = trainer.evaluate((ids, mask, y))["loss"]
                self.assertAlmostEqual(found, wanted, delta=1e-4 * wanted)

    def test_delayed_weights_take_an_epoch_of_other_lengths(self):
        torch.manual_seed(1)
        (example, _), *_ = self.batches([9])
        batches = self.batches([9, 4, 17, 6, 9, 5])
        seen = {}
        for strategy, workers in (("serial", 1), ("1f1b", 2)):
            module = self.Speaker()
            module.load_state_dict(seen.setdefault("weights", module.state_dict()))
            trainer = penstock.Trainer(module, example, strategy=strategy, workers=workers,
                                       weights="stash" if workers == 2 else None, batch_size=8,
                                       micro_batches=1, lr=0.01, any_length=True,
                                       progress=False)  # fmt: skip
            trainer.fit(batches)
            seen[strategy] = trainer.fit(batches)
        # At a small rate a delay of one step changes little.
        self.assertAlmostEqual(seen["serial"][0]["loss"], seen["1f1b"][0]["loss"], delta=0.05)

    def test_a_model_that_shifts_its_logits_takes_sequences_from_three_places_on(self):
        class Shifts(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(IDS, 8), nn.Linear(8, IDS)

            def forward(self, ids, labels):
                logits = self.head(torch.tanh(self.embed(ids)))[:, :-1]
                return nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())

        torch.manual_seed(1)
        module, ids = Shifts(), torch.randint(2, IDS, (8, 9))
        trainer = penstock.Trainer(module, (ids, ids), batch_size=8, strategy="serial", workers=1,
                                   micro_batches=2, any_length=True, progress=False)  # fmt: skip
        for length in (3, 9, 12):
            ids = torch.randint(2, IDS, (8, length))
            wanted = trainer.evaluate((ids, ids))["loss"]
            self.assertAlmostEqual(trainer.step((ids, ids))["loss"], wanted, delta=1e-5)
        with self.assertRaisesRegex(penstock.PenstockError, "'ids': expected"):
            trainer.step((ids[:, :2], ids[:, :2]))

    def test_a_model_with_places_takes_no_longer_sequences(self):
        class Placed(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.places = nn.Embedding(IDS, 8), nn.Parameter(torch.randn(1, 16, 8))
                self.head = nn.Linear(8, IDS)

            def forward(self, ids):
                return self.head(torch.tanh(self.embed(ids) + self.places[:, : ids.shape[1]]))

        torch.manual_seed(1)
        module, ids = Placed(), torch.randint(2, IDS, (8, 9))
        trainer = penstock.Trainer(module, ids, batch_size=8, strategy="serial", workers=1,
                                   micro_batches=2, any_length=True, progress=False)  # fmt: skip
        for length in (9, 2, 16):
            ids = torch.randint(2, IDS, (8, length))
            wanted = trainer.evaluate((ids, ids))["loss"]
            self.assertAlmostEqual(trainer.step(ids, ids)["loss"], wanted, delta=1e-5)
        ids = torch.randint(2, IDS, (8, 17))
        with self.assertRaisesRegex(penstock.PenstockError, "'ids' has a size of 17, .* to 16"):
            trainer.step(ids, ids)

    def test_what_does_not_fit_together_is_refused(self):
        (example, _), *_ = self.batches([9])
        trainer = penstock.Trainer(self.Speaker(), example, batch_size=8, any_length=True,
                                   strategy="serial", workers=1, progress=False)  # fmt: skip
        (ids, mask), y = self.batches([12])[0]
        with self.assertRaisesRegex(penstock.PenstockError, "'ids': expected .*9, found .*12"):
            trainer.step((ids, mask[:, :5]), y)
        with self.assertRaisesRegex(penstock.PenstockError, "'targets': expected .*12, found .*7"):
            trainer.step((ids, mask), y[:, :7])
        with self.assertRaisesRegex(ValueError, "no input has a second dimension"):
            penstock.Trainer(nn.Sequential(nn.Embedding(IDS, 3)), torch.zeros(4, dtype=torch.long),
                             any_length=True)  # fmt: skip
        self.assertEqual(trainer.steps, 0)


if __name__ == "__main__":
    unittest.main()
