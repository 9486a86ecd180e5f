"""Trains PyTorch models through pipelines of workers.

>>> import penstock, torch
>>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
>>> trainer = penstock.Trainer(model, torch.randn(4, 8), workers=2, lr=0.1, progress=False)
>>> x = torch.randn(64, 8)
>>> history = trainer.fit(x, x[:, :3].argmax(1), epochs=5, batch_size=16)
>>> history[-1]["loss"] < history[0]["loss"]
True
>>> model.load_state_dict(trainer.state_dict(), strict=True)
<All keys matched successfully>
"""

import importlib
from typing import TYPE_CHECKING, Any

from penstock._errors import PenstockError
from penstock._parts import add_training_part, training_folder
from penstock._tool import plan, profile, report, schedule, simulate, verify

if TYPE_CHECKING:
    from penstock._callbacks import Callback, EarlyStopping
    from penstock._export import export
    from penstock._trainer import Trainer
    from penstock._weights import empty_weights

__all__ = [
    "Callback",
    "EarlyStopping",
    "PenstockError",
    "Trainer",
    "empty_weights",
    "export",
    "plan",
    "profile",
    "report",
    "schedule",
    "simulate",
    "verify",
]
__version__ = "0.1.0"
add_training_part(__path__)


# What needs PyTorch. Planning does not, and starts without it.
_OF_TRAINING = {
    "Callback": "_callbacks",
    "EarlyStopping": "_callbacks",
    "Trainer": "_trainer",
    "empty_weights": "_weights",
    "export": "_export",
}


def __getattr__(name: str) -> Any:
    """What most programs do not need is imported when it is named."""
    if name in ("data", "lightning", "loggers", "pytorch", "text", "transformers"):
        return importlib.import_module(f"penstock.{name}")
    if name not in _OF_TRAINING:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    training_folder()  # says what is missing
    value = getattr(importlib.import_module(f"penstock.{_OF_TRAINING[name]}"), name)
    globals()[name] = value
    return value
