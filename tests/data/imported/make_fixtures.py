"""Exports small PyTorch models and writes what they compute, for the tests of penstock/imported.

    python make_fixtures.py FOLDER

Writes NAME.pt2 (torch.export.save) and NAME.safetensors: "input.0", "input.1"..., "output" and
"mask" of one forward pass in training mode, "grad.KEY" (the gradient of sum(output * mask)) and
"after.KEY" (buffers after the pass). Dropout has probability 0 where results are compared.
"""

import json
import re
import struct
import sys
import zipfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


class Cnn(nn.Module):
    """Batch norm, an in-place activation, a skip connection, dropout."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.ReLU(inplace=True))
        self.drop = nn.Dropout(0.0)
        self.fc = nn.Linear(4 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.norm(self.conv1(x))), 2)
        x = x + self.block(x)
        return self.fc(self.drop(x.flatten(1)))


class Branches(nn.Module):
    """Chunks, squeeze and excitation, sizes of the batch, no_grad, a frozen layer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, stride=4)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.squeeze = nn.Linear(8, 8)
        self.norm = nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 10)
        self.stem.requires_grad_(False)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8))

    def forward(self, x):
        x = F.silu(self.stem(x))
        left, right = x.chunk(2, dim=1)
        x = torch.cat([self.depthwise(left), F.relu_(right + 0)], dim=1)
        gate = torch.sigmoid(self.squeeze(x.mean((2, 3)) * self.scale) + x.shape[0])
        with torch.no_grad():
            level = x.detach().abs().mean((1, 2, 3), keepdim=True)
        x = self.norm(x * gate.view(x.shape[0], -1, 1, 1) + level)
        return self.head(F.adaptive_avg_pool2d(x, 1).reshape(x.shape[0], -1))


class Transformer(nn.Module):
    """Attention over patches, a class token, layer norm, one weight used twice."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 16, 7, stride=7)
        self.token = nn.Parameter(torch.randn(1, 1, 16) * 0.1)
        self.position = nn.Parameter(torch.randn(1, 17, 16) * 0.1)
        self.norm1 = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.norm2 = nn.LayerNorm(16)
        self.up = nn.Linear(16, 16)
        self.down = nn.Linear(16, 16)
        self.down.weight = self.up.weight
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(x[:, 0])


class Random(nn.Module):
    """Dropout of all kinds: results depend on Penstock's seed only."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=4)
        self.drop2 = nn.Dropout2d(0.25)
        self.fc1 = nn.Linear(196, 32)
        self.drop = nn.Dropout(0.5)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = self.drop2(torch.relu(self.conv(x)))
        x = torch.relu(F.dropout(self.fc1(x.flatten(1)), 0.3, self.training, True))
        return self.fc2(self.drop(x) + 0.01 * torch.rand_like(x))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x, visible):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + self.out(a.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Tokens(nn.Module):
    """Two inputs of whole numbers; a mask made of them is read by every block; a tied head."""

    def __init__(self, values=16, length=8, width=16):
        super().__init__()
        self.embed = nn.Embedding(values, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Linear(width, values, bias=False)
        self.head.weight = self.embed.weight
        with torch.no_grad():
            self.embed.weight *= 0.2

    def forward(self, input_ids, attention_mask):
        length = input_ids.shape[1]
        places = torch.arange(length)
        earlier = places[:, None] >= places[None, :]
        visible = earlier[None, None] & attention_mask.bool()[:, None, None, :]
        x = self.embed(input_ids) + self.place(places)
        for block in self.blocks:
            x = block(x, visible)
        return self.head(x)


class Letters(Tokens):
    """One input: the bytes of a text."""

    def __init__(self):
        super().__init__(values=256, length=16, width=16)

    def forward(self, text):
        return super().forward(text, torch.ones_like(text))


class OwnLoss(Tokens):
    """The program makes its loss itself, out of an input with the labels."""

    def forward(self, input_ids, labels):
        logits = super().forward(input_ids, torch.ones_like(input_ids))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), logits


class Counted(nn.Module):
    """Divides by the number of targets that it is given, as models of Hugging Face do."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 4)
        self.head = nn.Linear(4, 16)

    def forward(self, input_ids, labels, num_items_in_batch):
        logits = self.head(torch.tanh(self.embed(input_ids))).view(-1, 16)
        count = num_items_in_batch.clamp(min=1)
        labels = F.pad(labels, (0, 1), value=-100)[:, 1:].contiguous().view(-1)
        return 0.5 * (F.cross_entropy(logits, labels, reduction="sum") / count)


class Extremes(nn.Module):
    """What libtorch 1.13 has no derivative for."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, stride=4)
        self.middle = nn.Linear(24, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = F.channel_shuffle(self.conv(x), 2).flatten(2)
        smallest, largest = torch.aminmax(x, dim=2)
        some = torch.narrow_copy(x[:, :, 0], 1, 0, 8)
        return self.head(torch.tanh(self.middle(torch.cat([smallest, largest, some], 1))))


class DataDependent(nn.Module):
    """Cannot be trained: draws numbers that cannot be repeated."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 10)

    def forward(self, x):
        return self.fc(F.alpha_dropout(x.flatten(1), 0.1, True))


def rms_norm(x, weight):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class GroupedBlock(nn.Module):
    """As Llama and Qwen3: grouped heads, norms of queries and keys, rotated places, a packed gate;
    a bias for each head and distance, as T5 has; weights that are transposed for their product."""

    def __init__(self, width, heads, groups, size):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, size
        self.norm1 = nn.Parameter(torch.ones(width))
        self.q_proj = nn.Parameter(0.2 * torch.randn(heads * size, width))
        self.k_proj = nn.Linear(width, groups * size, bias=False)
        self.v_proj = nn.Linear(width, groups * size, bias=False)
        self.q_norm = nn.Parameter(torch.linspace(0.5, 1.5, size))
        self.k_norm = nn.Parameter(torch.linspace(1.5, 0.5, size))
        self.distances = nn.Embedding(4, heads)
        self.o_proj = nn.Parameter(0.2 * torch.randn(width, heads * size))
        self.norm2 = nn.Parameter(torch.ones(width))
        self.gate_up = nn.Linear(width, 2 * 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width)

    def rotated(self, x, cosine, sine):
        first, second = x[..., : self.size // 2], x[..., self.size // 2 :]
        return x * cosine + torch.cat((-second, first), -1) * sine

    def forward(self, x):
        batch, time = x.shape[0], x.shape[1]
        places = torch.arange(time)
        angles = places[:, None] / 10.0 ** torch.arange(self.size // 2)
        cosine, sine = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
        h = rms_norm(x, self.norm1)
        q = (h @ self.q_proj.T).view(batch, time, -1, self.size).transpose(1, 2)
        k = self.k_proj(h).view(batch, time, -1, self.size).transpose(1, 2)
        v = self.v_proj(h).view(batch, time, -1, self.size).transpose(1, 2)
        q = self.rotated(rms_norm(q, self.q_norm), cosine, sine)
        k = self.rotated(rms_norm(k, self.k_norm), cosine, sine)
        times = self.heads // self.groups
        k = k[:, :, None].expand(-1, -1, times, -1, -1).reshape(batch, self.heads, time, self.size)
        v = v.repeat_interleave(times, 1)
        scores = q @ k.transpose(2, 3) / self.size**0.5
        apart = (places[:, None] - places[None, :]).clamp(0, 3)
        scores += self.distances(apart).permute(2, 0, 1).unsqueeze(0)
        scores = scores.masked_fill(places[:, None] < places[None, :], -1e9)
        shares = F.dropout(torch.softmax(scores, -1), 0.1, self.training)
        x = x + (shares @ v).transpose(1, 2).reshape(batch, time, -1) @ self.o_proj.T
        gate, up = self.gate_up(rms_norm(x, self.norm2)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class TransposedBlock(nn.Module):
    """As GPT-2: weights [in, out], queries, keys and values side by side; tokens of all samples in
    one dimension."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        for name, read, made in [
            ("qkv", width, 3 * width),
            ("out", width, width),
            ("up", width, 2 * width),
            ("down", 2 * width, width),
        ]:
            self.register_parameter(name, nn.Parameter(0.2 * torch.randn(read, made)))
            self.register_parameter(name + "_bias", nn.Parameter(0.2 * torch.randn(made)))

    def product(self, x, name):
        weight, bias = self.get_parameter(name), self.get_parameter(name + "_bias")
        made = torch.addmm(bias, x.view(-1, x.shape[-1]), weight)
        return made.view(x.shape[0], x.shape[1], weight.shape[1])

    def forward(self, x):
        width = x.shape[2]
        q, k, v = (
            one.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)
            for one in self.product(self.norm1(x), "qkv").split(width, 2)
        )
        a = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        x = x + self.product(a.transpose(1, 2).reshape(x.shape[0], x.shape[1], width), "out")
        return x + F.dropout(self.product(F.gelu(self.product(self.norm2(x), "up")), "down"), 0.1)


class Grouped(nn.Module):
    """A language model of both blocks, with its own loss: for teams of workers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(21, 16, padding_idx=3)
        self.one = GroupedBlock(16, 8, 4, 4)
        self.other = TransposedBlock(16, 4)
        self.head = nn.Linear(16, 21)

    def forward(self, input_ids, labels):
        logits = self.head(self.other(self.one(self.embed(input_ids))))
        labels = F.pad(labels, (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(logits.view(-1, 21), labels.reshape(-1), label_smoothing=0.1)


class SharedBlock(nn.Module):
    """Fewer heads of keys and values than a team has members, which the operator repeats."""

    def __init__(self, width, heads, groups, size):
        super().__init__()
        self.heads, self.groups = heads, groups
        self.norm = nn.LayerNorm(width)
        self.q_proj = nn.Linear(width, heads * size)
        self.k_proj = nn.Linear(width, groups * size)
        self.v_proj = nn.Linear(width, groups * size)
        self.o_proj = nn.Linear(heads * size, width)

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (
            project(h).view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)
            for project, heads in [
                (self.q_proj, self.heads),
                (self.k_proj, self.groups),
                (self.v_proj, self.groups),
            ]
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return x + self.o_proj(a.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))


class Shared(nn.Module):
    """A language model whose keys and values have two heads: copied in teams of more members."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(24, 16)
        self.one = GroupedBlock(16, 8, 2, 4)
        self.other = SharedBlock(16, 8, 2, 4)
        self.head = nn.Linear(16, 24)

    def forward(self, tokens):
        return self.head(self.other(self.one(self.embed(tokens))))


class Recurrent(nn.Module):
    """Two layers of an LSTM in both directions with dropout in between, and one, places first, of
    which the last hidden states are read."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.both = nn.LSTM(8, 7, num_layers=2, dropout=0.3, bidirectional=True, batch_first=True)
        self.last = nn.LSTM(14, 6, bias=False)
        self.fc = nn.Linear(12, 5)

    def forward(self, tokens):
        x, _ = self.both(self.embed(tokens))
        y, (hidden, _) = self.last(x.transpose(0, 1))
        return self.fc(torch.cat([y.mean(0), hidden[0]], dim=1))


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        tensor = tensor.to(torch.float32).clone(memory_format=torch.contiguous_format)
        raw = bytes(tensor.untyped_storage())
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def without_paths(path):
    """The same archive without the folders of the machine that made it."""
    with zipfile.ZipFile(path) as old:
        members = [(i, old.read(i)) for i in old.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for info, data in members:
            if info.filename.endswith(".json"):
                line = rb'File \\"[^"]*?/(site-packages/[^"]*?|[^/"]*?)\\"'
                data = re.sub(line, rb'File \\"\1\\"', data)
            new.writestr(zipfile.ZipInfo(info.filename, (2026, 1, 1, 0, 0, 0)), data)


def with_target(path, other, old, new):
    """A copy in which one operator is another."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(other, "w", zipfile.ZIP_STORED) as copy:
        for info in archive.infolist():
            copy.writestr(info, archive.read(info).replace(old, new))


def sample(name, batch):
    """The inputs of the model of that name."""
    if name == "counted":
        ids = torch.randint(0, 16, (batch, 8))
        return ids, ids.clone(), torch.tensor(1)  # one tensor would be one input
    if name == "recurrent":
        return (torch.randint(0, 20, (batch, 9)),)
    if name == "shared":
        return (torch.randint(0, 24, (batch, 6)),)
    if name == "grouped":
        ids = torch.randint(0, 21, (batch, 6))
        return ids, ids.clone()
    if name in ("tokens", "ownloss"):
        ids = torch.randint(0, 16, (batch, 8))
        mask = torch.arange(8) < torch.randint(4, 9, (batch, 1))
        return (ids, mask.long()) if name == "tokens" else (ids, ids)
    if name == "letters":
        return (torch.randint(0, 256, (batch, 16)),)
    return (torch.randn(batch, 1, 28, 28),)


def export(folder, name, model, dynamic=True):
    x = sample(name, 4)
    model.train()
    batch = torch.export.Dim("batch", min=1)
    shapes = tuple({0: batch} if one.dim() else None for one in x) if dynamic else None
    program = torch.export.export(model, x, dynamic_shapes=shapes)
    torch.export.save(program, folder / f"{name}.pt2")
    without_paths(folder / f"{name}.pt2")


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, kind in [
        ("cnn", Cnn),
        ("branches", Branches),
        ("transformer", Transformer),
        ("tokens", Tokens),
        ("extremes", Extremes),
    ]:
        torch.manual_seed(1)
        model = kind()
        export(folder, name, model)
        x = sample(name, 3)
        output = model(*x)
        mask = torch.randn(output.shape)
        (output * mask).sum().backward()
        results = {"output": output, "mask": mask}
        results.update({f"input.{i}": value for i, value in enumerate(x)})
        for key, parameter in model.named_parameters(remove_duplicate=False):
            if parameter.grad is not None:
                results["grad." + key] = parameter.grad
        for key, buffer in model.named_buffers():
            results["after." + key] = buffer
        write_safetensors(folder / f"{name}.safetensors", results)
    torch.manual_seed(1)
    export(folder, "random", Random())
    export(folder, "unseeded", DataDependent())
    export(folder, "fixed_batch", Cnn(), dynamic=False)
    unseeded, forbidden = folder / "unseeded.pt2", folder / "forbidden.pt2"
    with_target(unseeded, forbidden, b"alpha_dropout.default", b"from_file.default")
    with torch.device("meta"):
        model = Cnn()
    torch.export.save(
        torch.export.export(
            model,
            (torch.randn(4, 1, 28, 28, device="meta"),),
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        ),
        folder / "meta.pt2",
    )
    without_paths(folder / "meta.pt2")
    export(folder, "letters", Letters())
    export(folder, "ownloss", OwnLoss())
    export(folder, "counted", Counted())
    export(folder, "grouped", Grouped())
    export(folder, "recurrent", Recurrent())
    export(folder, "shared", Shared())


if __name__ == "__main__":
    main()
