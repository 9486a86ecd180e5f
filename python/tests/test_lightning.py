"""penstock.lightning.Strategy against Lightning alone: the same losses and weights; what is saved
is loaded by Lightning, and a fit goes on from a checkpoint. Skipped without lightning."""

import importlib.util
import logging
import tempfile
import unittest
import warnings
from pathlib import Path

import torch
from torch import nn

import penstock

SAMPLES, BATCH, TOLERANCE = 40, 8, 2e-6


def module_class():
    import lightning.pytorch as pl

    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU())
            self.head = nn.Linear(32, 4)

        def loss_of(self, batch):
            return nn.functional.cross_entropy(self.head(self.body(batch["x"])), batch["y"])

        def training_step(self, batch, index):
            loss = self.loss_of(batch)
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch, index):
            self.log("val_loss", self.loss_of(batch))

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return [optimizer], [schedule]

    class Losses(pl.Callback):
        def __init__(self):
            self.train, self.held_out = [], []

        def on_train_batch_end(self, trainer, *_):
            self.train.append(trainer.callback_metrics["train_loss"].item())

        def on_validation_end(self, trainer, *_):
            self.held_out.append(trainer.callback_metrics["val_loss"].item())

    return Classifier, Losses


def loader():
    torch.manual_seed(5)
    x = torch.randn(SAMPLES - 3, 16)
    data = [{"x": one, "y": one[:4].argmax()} for one in x]
    return torch.utils.data.DataLoader(data, batch_size=BATCH)


@unittest.skipUnless(importlib.util.find_spec("lightning"), "needs lightning")
class LightningTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def trained(self, strategy="auto", epochs=3, ckpt_path=None, **more):
        import lightning.pytorch as pl

        classifier, losses_class = module_class()
        module, losses = classifier(), losses_class()
        trainer = pl.Trainer(
            strategy=strategy, accelerator="cpu", max_epochs=epochs, logger=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[losses],
            num_sanity_val_steps=0, enable_checkpointing=False, gradient_clip_val=0.5, **more,
        )  # fmt: skip
        trainer.fit(module, loader(), loader(), ckpt_path=ckpt_path)
        return module, losses, trainer

    def pipeline(self):
        return penstock.lightning.Strategy(workers=2, strategy="1f1b-flush", micro_batches=4)

    def is_same(self, found, expected):
        for name in ("train", "held_out"):
            losses, wanted = getattr(found[1], name), getattr(expected[1], name)
            self.assertEqual(len(losses), len(wanted))
            for one, other in zip(losses, wanted):
                self.assertAlmostEqual(one, other, delta=TOLERANCE)
        weights = expected[0].state_dict()
        for name, value in found[0].state_dict().items():
            self.assertLess((value - weights[name]).abs().max(), 1e-4, name)

    def test_losses_are_those_of_lightning(self):
        expected = self.trained()
        self.assertLess(expected[1].held_out[-1], 0.8 * expected[1].held_out[0])
        self.is_same(self.trained(self.pipeline()), expected)

    def test_a_fit_goes_on_from_a_checkpoint(self):
        whole = self.trained(self.pipeline())
        _, begun, trainer = self.trained(self.pipeline(), epochs=1)
        path = self.folder / "first.ckpt"
        trainer.save_checkpoint(path)
        module, losses, _ = self.trained(self.pipeline(), ckpt_path=path)
        losses.train, losses.held_out = begun.train + losses.train, begun.held_out + losses.held_out
        self.is_same((module, losses), whole)
        classifier, _ = module_class()
        loaded = classifier.load_from_checkpoint(path, weights_only=True)
        value = loaded.loss_of(next(iter(loader()))).item()
        self.assertNotAlmostEqual(value, classifier().loss_of(next(iter(loader()))).item(), 2)
        trainer.strategy.remove_checkpoint(path)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_it_refuses_what_it_does_not_follow(self):
        with self.assertRaisesRegex(penstock.PenstockError, "does not follow accumulate_grad"):
            self.trained(self.pipeline(), accumulate_grad_batches=2)


if __name__ == "__main__":
    unittest.main()
