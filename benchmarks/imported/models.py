"""The models that are compared, as anyone writes them in PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn


def shortcut(inputs, outputs, stride):
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                         nn.BatchNorm2d(outputs))


class Basic(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut(inputs, width, stride)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(4 * width)
        self.shortcut = shortcut(inputs, 4 * width, stride)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, block, depths, classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(64)
        inputs, blocks = 64, []
        for i, depth in enumerate(depths):
            for k in range(depth):
                blocks.append(block(inputs, 64 << i, 2 if i > 0 and k == 0 else 1))
                inputs = (64 << i) * block.expansion
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Gpt(nn.Module):
    """GPT-2 small by default: 124 million weights, the head tied to the embedding."""

    def __init__(self, tokens=50257, places=1024, width=768, depth=12, heads=12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(places, width)
        self.norms1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.attentions = nn.ModuleList(Attention(width, heads) for _ in range(depth))
        self.norms2 = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.ups = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.downs = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        parts = zip(self.norms1, self.attentions, self.norms2, self.ups, self.downs)
        for norm1, attention, norm2, up, down in parts:
            x = x + attention(norm1(x))
            x = x + down(F.gelu(up(norm2(x)), approximate="tanh"))
        return self.head(self.norm(x))


def small_gpt():
    return Gpt(tokens=1000, places=128, width=384, depth=6, heads=6)


def resnet18(classes=10):
    return ResNet(Basic, (2, 2, 2, 2), classes)


def resnet50(classes=1000):
    return ResNet(Bottleneck, (3, 4, 6, 3), classes)


def mlp(width=4096, depth=5, classes=10):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def vgg_small(classes=10):
    layers, inputs = [], 3
    for width in (64, 128, 256):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(),
                   nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(),
                         nn.Linear(512, classes))


class Lstm(nn.Module):
    """Classifies rows of tokens."""

    def __init__(self, tokens=1000, width=512, depth=4, classes=10):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)[0]
        return self.head(x[:, -1])


def case(name):
    """A model, a batch of inputs and one of targets."""
    torch.manual_seed(1)
    if name == "resnet18":
        return resnet18(), torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    if name == "gpt2":
        ids = torch.randint(0, 50257, (2, 65))
        return Gpt(), ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    ids = torch.randint(0, 101, (2, 9))
    return Gpt(101, 16, 32, 2, 2), ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
