#!/usr/bin/env python3
"""What PyTorch's own modules compute of the zoo's sequence models: zoo_reference.py gpt

Weights are named as in the zoo. Of the i-th of the sorted names, number k is sin(0.7 k + i) / 2;
token k of input j is (7 k + 5 + j) modulo the vocabulary, numbers of frames a tenth of that. Prints
the loss and, of each weight, the sum of the absolute values of its gradient: what
penstock/model/zoo_test.cpp expects.
"""
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        parts = [part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                 for part in self.c_attn(x).chunk(3, 2)]
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width),
                                  "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        hidden = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](hidden)


class Gpt(nn.Module):
    """4 tokens of 11, width 8, depth 2, heads 2."""
    inputs, classes = [(2, 4)], 11

    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(11, 8), "wpe": nn.Embedding(4, 8),
            "h": nn.ModuleList(Block(8, 2) for _ in range(2)), "ln_f": nn.LayerNorm(8)})

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"].weight
        for block in parts["h"]:
            x = block(x)
        return F.linear(parts["ln_f"](x), parts["wte"].weight)


class AwdLm(nn.Module):
    """5 tokens of 11, embedding 6, width 7, depth 3; nothing is left out."""
    inputs, classes = [(2, 5)], 11

    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(11, 6)
        self.rnns = nn.ModuleList(nn.LSTM(of, to, batch_first=True)
                                  for of, to in ((6, 7), (7, 7), (7, 6)))
        self.decoder = nn.Linear(6, 11)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens):
        x = self.encoder(tokens)
        for rnn in self.rnns:
            x, _ = rnn(x)
        return self.decoder(x)


class AdditiveAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear_q = nn.Linear(width, width, bias=False)
        self.linear_k = nn.Linear(width, width, bias=False)
        self.linear_att = nn.Parameter(torch.empty(width))
        self.normalize_bias = nn.Parameter(torch.empty(width))
        self.normalize_scalar = nn.Parameter(torch.empty(1))

    def forward(self, query, context, lengths):
        pairs = (self.linear_q(query).unsqueeze(2) + self.linear_k(context).unsqueeze(1)
                 + self.normalize_bias)
        direction = self.normalize_scalar * self.linear_att / self.linear_att.norm()
        scores = torch.tanh(pairs) @ direction
        beyond = torch.arange(context.shape[1]) >= lengths.unsqueeze(1)
        return scores.masked_fill(beyond.unsqueeze(1), -torch.inf).softmax(2) @ context


class Gnmt(nn.Module):
    """5 and 4 tokens of 11, width 6, depth 4; the first layer reads packed sentences."""
    inputs, classes = [(3, 5), (3, 4)], 11

    def __init__(self):
        super().__init__()
        rnns = lambda *inputs: nn.ModuleList(nn.LSTM(size, 6, batch_first=True) for size in inputs)
        both = nn.LSTM(6, 6, batch_first=True, bidirectional=True)
        self.encoder = nn.ModuleDict({"embedder": nn.Embedding(11, 6, padding_idx=0),
                                      "rnn_layers": nn.ModuleList([both, *rnns(12, 6, 6)])})
        self.decoder = nn.ModuleDict({
            "embedder": nn.Embedding(11, 6, padding_idx=0),
            "att_rnn": nn.ModuleDict({"rnn": nn.LSTM(6, 6, batch_first=True),
                                      "attn": AdditiveAttention(6)}),
            "rnn_layers": rnns(12, 12, 12),
            "classifier": nn.ModuleDict({"classifier": nn.Linear(6, 11)})})

    def encoded(self, source, lengths):
        layers = self.encoder["rnn_layers"]
        packed = nn.utils.rnn.pack_padded_sequence(self.encoder["embedder"](source), lengths,
                                                   batch_first=True, enforce_sorted=False)
        x, _ = nn.utils.rnn.pad_packed_sequence(layers[0](packed)[0], batch_first=True,
                                                total_length=source.shape[1])
        x, _ = layers[1](x)
        for rnn in layers[2:]:
            x = rnn(x)[0] + x
        return x

    def forward(self, source, target):
        places = torch.arange(1, source.shape[1] + 1)
        lengths = ((source != 0) * places).amax(1).clamp(min=1)
        context = self.encoded(source, lengths)
        first = self.decoder["att_rnn"]
        x, _ = first["rnn"](self.decoder["embedder"](target))
        answer = first["attn"](x, context, lengths)
        layers = self.decoder["rnn_layers"]
        x, _ = layers[0](torch.cat((x, answer), 2))
        for rnn in layers[1:]:
            x = rnn(torch.cat((x, answer), 2))[0] + x
        return self.decoder["classifier"]["classifier"](x)


class S2vt(nn.Module):
    """4 frames of 5 numbers, 3 tokens of 11, width 6, embedding 4."""
    inputs, classes = [(2, 4, 5), (2, 3)], 11

    def __init__(self):
        super().__init__()
        self.frame_embed = nn.Linear(5, 4)
        self.word_embed = nn.Embedding(11, 4, padding_idx=0)
        self.lstm1 = nn.LSTM(4, 6, batch_first=True)
        self.lstm2 = nn.LSTM(10, 6, batch_first=True)
        self.predict = nn.Linear(6, 11)

    def forward(self, frames, target):
        seen = F.pad(self.frame_embed(frames), (0, 0, 0, target.shape[1]))
        words = F.pad(self.word_embed(target), (0, 0, frames.shape[1], 0))
        x, _ = self.lstm2(torch.cat((self.lstm1(seen)[0], words), 2))
        return self.predict(x[:, frames.shape[1]:])


MODELS = {"gpt": Gpt, "awd_lm": AwdLm, "gnmt8": Gnmt, "s2vt": S2vt}


def filled(numbers, index):
    return torch.sin(0.7 * torch.arange(numbers, dtype=torch.float64) + index) / 2


def main():
    model = MODELS[sys.argv[1]]()
    weights = dict(sorted(model.named_parameters()))
    with torch.no_grad():
        for index, weight in enumerate(weights.values()):
            weight.copy_(filled(weight.numel(), index).view_as(weight))
    count = lambda shape, j: ((7 * torch.arange(math.prod(shape)) + 5 + j)
                              % model.classes).view(shape) * (1 if len(shape) == 2 else 0.1)
    logits = model(*(count(shape, j) for j, shape in enumerate(model.inputs)))
    targets = count(model.inputs[-1], len(model.inputs))
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    print(f'{{"loss", {loss.item():.6g}}},')
    for name, weight in weights.items():
        print(f'{{"{name}", {weight.grad.abs().sum().item():.6g}}},')


if __name__ == "__main__":
    main()
