"""ResNet-18 on one's own arrays, cut in two."""

import numpy as np
import penstock
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.short = None
        if inside != outside:
            self.short = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.short is None else self.short(x)))


def resnet18(classes, width=64):
    sizes = [width, width, 2 * width, 4 * width, 8 * width]
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    for inside, outside in zip(sizes, sizes[1:]):
        layers += [Block(inside, outside, 1 + (inside != outside)), Block(outside, outside, 1)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], classes)]
    return nn.Sequential(*layers)


rng = np.random.default_rng(1)  # your own arrays: images in float32, classes as whole numbers
labels = np.arange(512) % 4
images = rng.normal(size=(4, 3, 16, 16))[labels] + rng.normal(size=(512, 3, 16, 16))
images = images.astype(np.float32)

torch.manual_seed(1)
model = resnet18(classes=4, width=16)  # 64 is the usual width
trainer = penstock.Trainer(model, torch.tensor(images[:4]), workers=2, lr=0.02, momentum=0.9)
for epoch in trainer.fit(images, labels, epochs=4, batch_size=64):
    print(f"epoch {epoch['epoch'] + 1}: loss {epoch['loss']:.3f}, {epoch['accuracy']:.1%} right")
print(trainer.evaluate(images, labels))
model.load_state_dict(trainer.state_dict(), strict=True)  # back into the module
assert epoch["accuracy"] > 0.5
