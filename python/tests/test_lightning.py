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

    def made(self, strategy="auto", epochs=3, members=None, callbacks=(), **more):
        """A module, its class with these members besides, a callback that notes losses, a
        Trainer."""
        import lightning.pytorch as pl

        classifier, losses_class = module_class()
        module, losses = type("Own", (classifier,), members or {})(), losses_class()
        trainer = pl.Trainer(**{
            "strategy": strategy, "accelerator": "cpu", "max_epochs": epochs, "logger": False,
            "enable_progress_bar": False, "enable_model_summary": False,
            "callbacks": [losses, *callbacks], "num_sanity_val_steps": 0,
            "enable_checkpointing": False, "gradient_clip_val": 0.5, **more,
        })  # fmt: skip
        return module, losses, trainer

    def trained(self, *arguments, ckpt_path=None, **more):
        module, losses, trainer = self.made(*arguments, **more)
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

    def test_a_fit_goes_on_from_a_link_to_a_checkpoint(self):
        from lightning.pytorch.callbacks import ModelCheckpoint

        whole = self.trained(self.pipeline())
        keeper = ModelCheckpoint(self.folder, save_last="link", save_top_k=-1)
        _, begun, _ = self.trained(self.pipeline(), epochs=1, callbacks=[keeper],
                                   enable_checkpointing=True)  # fmt: skip
        path = self.folder / "last.ckpt"
        self.assertTrue(path.is_symlink())
        module, losses, _ = self.trained(self.pipeline(), ckpt_path=path)
        losses.train, losses.held_out = begun.train + losses.train, begun.held_out + losses.held_out
        self.is_same((module, losses), whole)

    def test_a_fit_after_a_validation_of_a_checkpoint_begins_anew(self):
        whole = self.trained(self.pipeline(), epochs=1)
        path = self.folder / "first.ckpt"
        whole[2].save_checkpoint(path)
        module, losses, trainer = self.made(self.pipeline(), epochs=1)
        trainer.validate(self.made()[0], loader(), ckpt_path=path, verbose=False)
        losses.held_out.clear()
        trainer.fit(module, loader(), loader())
        self.is_same((module, losses), whole)

    def test_batches_have_the_structure_of_the_first(self):
        module, _, trainer = self.made(self.pipeline(), epochs=1)
        first, second, *_ = loader()
        turned = {"y": second["y"], "x": second["x"]}
        said = r"structure .*'y', 'x'.*, the first one had .*'x', 'y'.*: let the loader"
        with self.assertRaisesRegex(penstock.PenstockError, said):
            trainer.fit(module, torch.utils.data.DataLoader([first, turned], batch_size=None))

    def test_a_training_step_may_do_without_the_index(self):
        def training_step(self, batch):
            loss = self.loss_of(batch)
            self.log("train_loss", loss)
            return {"loss": loss}

        more = {"epochs": 1, "members": {"training_step": training_step}}
        self.is_same(self.trained(self.pipeline(), **more), self.trained(**more))

    def test_the_module_has_the_new_weights_after_an_exception(self):
        import lightning.pytorch as pl

        class Stop(pl.Callback):
            def on_train_batch_end(self, trainer, module, outputs, batch, index):
                if index == 2:
                    raise RuntimeError("stop")

        module, _, trainer = self.made(self.pipeline(), callbacks=[Stop()])
        before = module.head.weight.detach().clone()
        with self.assertRaisesRegex(RuntimeError, "^stop$"):
            trainer.fit(module, loader(), loader())
        self.assertGreater((module.head.weight - before).abs().max(), 1e-3)
        found = trainer.strategy.pipeline.state_dict()["module.head.weight"]
        self.assertTrue(torch.equal(found, module.head.weight))

    def test_it_says_what_it_does_not_follow_and_what_to_write(self):
        import lightning.pytorch as pl

        def own(name):
            return {name: lambda self, *_, **__: None}

        def callback(name):
            return type("Look", (pl.Callback,), own(name))()

        for given, said in (
            ({"accumulate_grad_batches": 2}, "accumulate_grad_batches=2: make batches"),
            ({"precision": "bf16-mixed"}, "precision='bf16-mixed': leave it out, and give"),
            ({"members": own("configure_optimizers")}, "0 optimisers of .*: return one"),
            *(({"members": own(name)}, f"Own.{name}: leave it out")
              for name in ("backward", "configure_gradient_clipping", "optimizer_zero_grad",
                           "on_before_optimizer_step", "on_after_backward")),
            ({"callbacks": [callback("on_before_optimizer_step")]}, "Look.on_before_optimizer_"),
        ):  # fmt: skip
            with self.subTest(said), self.assertRaisesRegex(penstock.PenstockError, said):
                self.trained(self.pipeline(), **given)


if __name__ == "__main__":
    unittest.main()
