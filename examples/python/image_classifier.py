"""A convolutional network on Fashion-MNIST (or random images), on two workers."""

import gzip
from pathlib import Path

import numpy as np
import penstock
import torch
from torch import nn

FOLDER = Path("/usr/share/datasets/fashion-mnist")  # Debian's dataset-fashion-mnist


def load(part, count):
    if not FOLDER.exists():
        labels = torch.arange(count) % 10
        patterns = torch.randn(10, 1, 28, 28, generator=torch.Generator().manual_seed(1))
        return patterns[labels] + 0.5 * torch.randn(count, 1, 28, 28), labels
    images, labels = (
        np.frombuffer(gzip.open(FOLDER / f"{part}-{name}-ubyte.gz").read(), np.uint8, -1, skip)
        for name, skip in [("images-idx3", 16), ("labels-idx1", 8)]
    )
    x = torch.tensor(images[: count * 784].reshape(count, 1, 28, 28)) / 255 - 0.5
    return x, torch.tensor(labels[:count], dtype=torch.long)


model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(16 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
images, labels = load("train", 4096)
trainer = penstock.Trainer(model, images[:4], workers=2, batch_size=64, lr=0.05, momentum=0.9)
for epoch in trainer.fit(images, labels, epochs=2):
    print(f"epoch {epoch['epoch'] + 1}: loss {epoch['loss']:.3f}, {epoch['accuracy']:.1%} right")
test = trainer.evaluate(*load("t10k", 1024))
print(f"test: loss {test['loss']:.3f}, {test['accuracy']:.1%} right")
model.load_state_dict(trainer.state_dict(), strict=True)  # the module has the weights now
assert test["accuracy"] > 0.6
