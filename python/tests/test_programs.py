"""Programs that change values in place, through views too: trained as PyTorch does, or refused."""

import copy
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import penstock

FEATURES = 6


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first = nn.Linear(FEATURES, FEATURES)
        self.second = nn.Linear(FEATURES, FEATURES)
        self.third = nn.Linear(FEATURES, FEATURES)
        self.make()

    def make(self):
        pass

    def before(self, x):
        return x

    def between(self, h):
        return h

    def forward(self, x):
        x = self.before(x)
        h = torch.tanh(self.first(x))
        h = self.between(h)
        h = torch.tanh(self.second(h)) + x * 0.5
        return self.third(h)


def model(**methods):
    """A model with these methods instead of the usual ones."""
    return type("Case", (Base,), methods)()


def positions(self, h):
    table = torch.zeros(FEATURES)
    table[0::2] = torch.sin(torch.arange(3.0))
    table[1::2] = torch.cos(torch.arange(3.0))
    return h + table


def mask(self, h):
    hidden = torch.zeros(FEATURES, dtype=torch.bool)
    hidden[2] = True
    h = torch.tanh(self.second(h + hidden.float()))
    hidden[4] = True  # after its first use
    return h + hidden.float()


def filled(self, h):
    out = torch.ones(FEATURES)
    out[:3].fill_(3)
    return h * out


def constant(self):
    self.register_buffer("k", torch.arange(6.0))


def cloned(self, h):
    c = self.k.clone()
    c[1:3] = 7
    return h * c * 0.1


def doubled(self, x):
    x.view(-1).mul_(2)
    return x


def zeroed(self, x):
    x[:, 0] = 0
    return x


def shifted(self, x):
    x.chunk(2, 1)[0].add_(1)
    return x


def rows(self, h):
    h = h * 1.0
    torch.atleast_2d(h).add_(0.5)
    h.type_as(h)[:, 0].mul_(2)
    return h * 2


def counter(self):
    self.register_buffer("seen", torch.zeros(4))


def counted(self, h):
    self.seen[0] += 1
    self.seen.view(-1)[1:].add_(2)
    return h * (1 + self.seen[0] * 0.1)


def statistics(self):
    self.register_buffer("mean", torch.zeros(FEATURES))
    self.register_buffer("var", torch.ones(FEATURES))


def normalised(self, h):
    return F.batch_norm(h, self.mean.view(FEATURES), self.var.detach()[:], training=True)


CASES = {
    "constants made in slices": model(between=positions),
    "a mask that changes between its uses": model(between=mask),
    "a slice filled in place": model(between=filled),
    "a slice of a copied constant": model(make=constant, between=cloned),
    "an input through a view": model(before=doubled),
    "a column of an input": model(before=zeroed),
    "a part of an input": model(before=shifted),
    "what hands its input through": model(between=rows),
    "a buffer through slices": model(make=counter, between=counted),
    "running statistics through views": model(make=statistics, between=normalised),
}


def parts_of(count, parts):
    return [slice(k * count // parts, (k + 1) * count // parts) for k in range(parts)]


def trained_by_torch(module, x, y, parts, steps):
    module = copy.deepcopy(module).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for part in parts_of(len(x), parts):
            loss = F.mse_loss(module(x[part].clone()), y[part]) / parts
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses, module.state_dict()


def trained_here(module, x, y, parts, steps, strategy):
    """`module` may be the path of an exported one."""
    trainer = penstock.Trainer(
        module, None if isinstance(module, Path) else x, strategy=strategy,
        workers=1 if strategy == "serial" else 2, batch_size=len(x), micro_batches=parts,
        loss=nn.MSELoss(), lr=0.1, progress=False,
    )  # fmt: skip
    return [trainer.step(x, y)["loss"] for _ in range(steps)], trainer


class InPlace(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch.manual_seed(4)
        self.x, self.y = torch.randn(8, FEATURES), torch.randn(8, FEATURES)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def exported(self, module):
        """Several trainers take its file: each of a module would export it."""
        folder = tempfile.mkdtemp(dir=self.folder.name)
        return penstock.export(module, self.x, Path(folder) / "model.pt2")

    def test_it_is_what_pytorch_computes(self):
        for name, module in CASES.items():
            path = self.exported(module)
            for strategy, parts in (("serial", 1), ("serial", 4), ("gpipe", 4)):
                with self.subTest(name, strategy=strategy, parts=parts):
                    expected, weights = trained_by_torch(module, self.x, self.y, parts, 3)
                    losses, trainer = trained_here(path, self.x, self.y, parts, 3, strategy)
                    np.testing.assert_allclose(losses, expected, rtol=1e-5)
                    found = trainer.state_dict()
                    for key, value in weights.items():
                        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5)

    def test_cuts_change_nothing(self):
        checked = 0
        for name, module in CASES.items():
            expected, whole = trained_here(module, self.x, self.y, 2, 3, "serial")
            path = self.exported(module)
            cut = penstock.Trainer(path, strategy="gpipe", workers=2, batch_size=8,
                                   micro_batches=2, loss=nn.MSELoss(), progress=False)
            if len(cut.plan["stages"]) < 2:
                continue
            layers = cut.layers
            for k in range(1, len(layers)):
                with self.subTest(name, cut=k):
                    plan = copy.deepcopy(cut.plan)
                    plan["stages"][0]["layers"] = layers[:k]
                    plan["stages"][1]["layers"] = layers[k:]
                    trainer = penstock.Trainer(path, plan=plan, batch_size=8, loss=nn.MSELoss(),
                                               lr=0.1, progress=False)
                    losses = [trainer.step(self.x, self.y)["loss"] for _ in range(3)]
                    self.assertEqual(losses, expected)
                    checked += 1
                    weights = whole.state_dict()
                    for key, value in trainer.state_dict().items():
                        self.assertTrue(torch.equal(value, weights[key]), key)
        self.assertGreater(checked, 10)

    def test_evaluation_changes_nothing(self):
        module = CASES["a buffer through slices"]
        _, trainer = trained_here(module, self.x, self.y, 2, 2, "serial")
        before = trainer.state_dict()
        first = trainer.evaluate(self.x, self.y)
        self.assertEqual(trainer.evaluate(self.x, self.y), first)
        for key, value in trainer.state_dict().items():
            self.assertTrue(torch.equal(value, before[key]), key)

    def test_token_ids_are_shifted_in_place(self):
        class Shift(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.embed = nn.Embedding(10, 8)
                self.body = nn.Linear(8, 8)
                self.head = nn.Linear(8, 10)

            def forward(self, ids):
                shifted = ids.new_zeros(ids.shape)
                shifted[:, 1:] = ids[:, :-1].clone()
                shifted[:, 0] = 9
                known = ids != 0
                known[:, 0] = True
                h = torch.tanh(self.body(self.embed(shifted))) * known.unsqueeze(-1)
                return self.head(h)

        module = Shift()
        ids = torch.randint(0, 10, (8, 5))
        loss = F.cross_entropy(module(ids).flatten(0, 1), ids.flatten()).item()
        for strategy in ("serial", "gpipe"):
            trainer = penstock.Trainer(module, ids, strategy=strategy, progress=False, batch_size=8,
                                       workers=1 if strategy == "serial" else 2)
            self.assertAlmostEqual(trainer.step(ids, ids)["loss"], loss, places=5)


class Norms(unittest.TestCase):
    def test_those_without_running_statistics_are_evaluated(self):
        torch.manual_seed(5)
        x, y = torch.randn(8, 4, 6), torch.randint(0, 3, (8,))
        for norm in (nn.InstanceNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False)):
            module = nn.Sequential(nn.Conv1d(4, 4, 3), norm, nn.Flatten(), nn.Linear(16, 3))
            trainer = penstock.Trainer(module, x, strategy="serial", workers=1, batch_size=8,
                                       micro_batches=1, progress=False)
            expected = F.cross_entropy(module.eval()(x), y).item()
            self.assertAlmostEqual(trainer.evaluate(x, y)["loss"], expected, places=5)

    def test_attention_that_sees_nothing_is_zero(self):
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 3)

            def forward(self, q, mask):
                h = F.scaled_dot_product_attention(q, q, q, attn_mask=mask, dropout_p=1e-9)
                return self.head(h.mean(2)[:, 0])

        torch.manual_seed(6)
        q, y = torch.randn(4, 1, 5, 4), torch.randint(0, 3, (4,))
        mask = torch.ones(4, 1, 5, 5, dtype=torch.bool)
        mask[1] = False
        module = Attention()
        trainer = penstock.Trainer(module, (q, mask), strategy="serial", workers=1, batch_size=4,
                                   micro_batches=1, progress=False, lr=0.1)
        loss = F.cross_entropy(module(q, mask), y)
        self.assertAlmostEqual(trainer.step((q, mask), y)["loss"], loss.item(), places=4)
        self.assertLess(trainer.step((q, mask), y)["loss"], loss.item())

    def test_attention_of_groups(self):
        class Groups(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 3)

            def forward(self, q, k):
                h = F.scaled_dot_product_attention(q, k, k, dropout_p=1e-9, enable_gqa=True)
                return self.head(h.mean((1, 2)))

        torch.manual_seed(6)
        q, k, y = torch.randn(4, 4, 5, 4), torch.randn(4, 2, 5, 4), torch.randint(0, 3, (4,))
        module = Groups()
        trainer = penstock.Trainer(module, (q, k), strategy="serial", workers=1, batch_size=4,
                                   micro_batches=1, progress=False)
        loss = F.cross_entropy(module(q, k), y).item()
        self.assertAlmostEqual(trainer.step((q, k), y)["loss"], loss, places=4)

    def test_sparse_gradients_of_an_embedding_become_dense(self):
        torch.manual_seed(7)
        ids, y = torch.randint(0, 10, (8, 3)), torch.randint(0, 3, (8,))
        losses = []
        for sparse in (False, True):
            torch.manual_seed(8)
            module = nn.Sequential(nn.Embedding(10, 4, sparse=sparse), nn.Flatten(),
                                   nn.Linear(12, 3))
            trainer = penstock.Trainer(module, ids, strategy="gpipe", workers=2, batch_size=8,
                                       progress=False, lr=0.5)
            losses.append([trainer.step(ids, y)["loss"] for _ in range(3)])
        self.assertEqual(*losses)


class Mixing(unittest.TestCase):
    def said_of(self, module, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            penstock.Trainer(module, torch.randn(4, FEATURES), strategy="gpipe", workers=2,
                             batch_size=16, progress=False, **options)
        return [one for one in caught if "mixes the samples" in str(one.message)]

    def test_what_mixes_samples_is_said(self):
        def centred(self, h):
            return h - h.mean(0, keepdim=True)

        def seen(self, h):
            return torch.softmax(h @ h.t(), 1) @ h

        for between in (centred, seen):
            self.assertEqual(len(self.said_of(model(between=between))), 1)
            self.assertEqual(self.said_of(model(between=between), micro_batches=1), [])

    def test_what_does_not_is_not(self):
        class OwnLoss(Base):
            def forward(self, x):
                return super().forward(x).square().mean()

        def normalised(self):
            self.norm = nn.BatchNorm1d(FEATURES)

        def random(self, h):
            return F.dropout(h, 0.5) + torch.rand_like(h)

        for module in (
            model(),
            OwnLoss(),
            model(make=normalised, between=lambda self, h: self.norm(h)),
            model(between=random),
        ):
            self.assertEqual(self.said_of(module), [])


class Refused(unittest.TestCase):
    def refused(self, module, reason, kind=penstock.PenstockError, example=None):
        example = torch.randn(4, FEATURES) if example is None else example
        with self.assertRaisesRegex(kind, reason):
            penstock.Trainer(module, example, progress=False)

    def test_parameters_that_are_changed_in_place(self):
        def clamped(self, h):
            self.second.weight.detach().clamp_(-1, 1)
            return h

        self.refused(model(between=clamped), "the parameter 'second.weight' is changed in place")
        self.refused(
            nn.Sequential(nn.Embedding(10, 4, max_norm=0.5), nn.Linear(4, 3)),
            "the parameter '0.weight' is changed in place", example=torch.randint(0, 10, (4, 3)),
        )

    def test_weights_that_share_memory_in_another_way(self):
        def transposed(self):
            self.second.weight = nn.Parameter(self.first.weight.data.t())

        def frozen(self):
            self.register_buffer("copy", self.first.weight.data)

        self.refused(
            model(make=transposed), "shares memory with the weight .* another part or order"
        )
        self.refused(
            model(make=frozen, between=lambda self, h: h @ self.copy),
            "'copy' shares memory with the weight 'first.weight', but is not trained",
        )

    def test_gradients_that_a_program_does_not_have(self):
        class Sign(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.sign()

            @staticmethod
            def backward(ctx, gradient):
                return gradient

        signed = model(between=lambda self, h: h + Sign.apply(h))
        self.refused(signed, "the backward pass of Sign", ValueError)

        def hooked(self, h):
            h.register_hook(lambda gradient: gradient * 2)
            return h

        self.refused(model(between=hooked), "a hook of a tensor's gradient", ValueError)
        signs = Sign.apply  # bound before the module is exported
        self.refused(
            model(between=lambda self, h: h + signs(h)), "the backward pass of Sign", ValueError
        )
        self.assertTrue(torch.equal(Sign.apply(torch.ones(2)), torch.ones(2)))

        def checkpointed(self, h):
            return checkpoint(torch.relu, h, use_reentrant=True)

        self.refused(model(between=checkpointed), "use_reentrant=False would do", ValueError)

        def inferred(self, h):
            with torch.inference_mode():
                other = self.second(h.detach())
            return h + other

        self.refused(model(between=inferred), "torch.no_grad.. would do", ValueError)

        def differentiated(self, h):
            return h + torch.autograd.grad((h**3).sum(), h)[0]

        self.refused(model(between=differentiated), "without create_graph=True", ValueError)
        module = model()
        module.first.register_full_backward_hook(lambda *_: None)
        self.refused(module, "the module 'first' has a hook of its backward pass", ValueError)
        module = model()
        module.first.weight.register_hook(lambda gradient: gradient * 2)
        self.refused(module, "the parameter 'first.weight' has a hook", ValueError)

    def test_tensors_that_are_changed_and_no_buffers(self):
        def count(self, h):
            return h * self.factor.add_(1)

        module = model(between=count)
        module.factor = torch.ones(FEATURES)
        self.refused(module, "its tensor 'factor', which is no buffer", ValueError)
        self.assertTrue(torch.equal(module.factor, torch.ones(FEATURES)))

    def test_losses_of_the_same_name(self):
        class MSELoss(nn.Module):
            def forward(self, x, y):
                return (x - y).abs().mean()

        x = torch.randn(4, FEATURES)
        with self.assertRaisesRegex(ValueError, "one of torch.nn's"):
            penstock.Trainer(model(), x, loss=MSELoss())


class Inputs(unittest.TestCase):
    def test_a_list_of_inputs(self):
        class Several(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 3)

            def forward(self, x, *others):
                return self.head(x + others[0] * others[1])

        torch.manual_seed(9)
        x, y = [torch.randn(8, 4) for _ in range(3)], torch.randint(0, 3, (8,))
        module = Several()
        trainer = penstock.Trainer(module, x, strategy="serial", workers=1, batch_size=8,
                                   micro_batches=1, progress=False)
        self.assertAlmostEqual(trainer.step(x, y)["loss"],
                               F.cross_entropy(module(*x), y).item(), places=5)


if __name__ == "__main__":
    unittest.main()
