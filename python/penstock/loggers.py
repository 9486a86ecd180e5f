"""Loggers for `Trainer.fit`: where the numbers of a training go.

    trainer.fit(x, y, loggers=[penstock.loggers.TensorBoard("runs/1"), wandb.log])
"""

from penstock._loggers import CSV, JSONLines, Logger, TensorBoard

__all__ = ["CSV", "JSONLines", "Logger", "TensorBoard"]
