"""A model of transformers, or any state dict, as a folder of safetensors files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import Any, Mapping

import torch

from penstock import _core

_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
_PREFIX = "base_model.model."
_INDEX = "model.safetensors.index.json"


def merge(
    weights: Mapping[str, torch.Tensor], alpha: float, transposed: bool,
    known: Mapping[str, bool] = MappingProxyType({}),
) -> dict[str, torch.Tensor]:  # fmt: skip
    """The base's weights, with what their adapters add: B A alpha / R, rounded once to the type of
    the weight. Where the shape does not tell, `known` says whether the weight of a module is
    [inputs, outputs], and `transposed` for all others."""
    parts = {name.removeprefix(_PREFIX).removesuffix(".lora_A.weight")
             for name in weights if name.endswith(".lora_A.weight")}  # fmt: skip
    merged: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        if name.endswith((".lora_A.weight", ".lora_B.weight")):
            continue
        module = name.removesuffix(".weight")
        if module not in parts or name == module:
            merged[name] = weight
            continue
        down = weights[f"{_PREFIX}{module}.lora_A.weight"].double()
        up = weights[f"{_PREFIX}{module}.lora_B.weight"].double()
        added = up @ down * (alpha / down.shape[0])
        is_square = added.shape[0] == added.shape[1]
        if known.get(module, transposed) if is_square else added.shape != weight.shape:
            added = added.T
        merged[name] = (weight.double() + added).to(weight.dtype)
        parts.remove(module)
    if parts:
        raise _core.PenstockError(f"the adapter of '{min(parts)}' has no weight to be merged into")
    return merged


def transposed_in(root: Any) -> dict[str, bool]:
    """Of modules by their names, whether their weight is [inputs, outputs], as that of Conv1D of
    transformers is. Empty for what is no module, such as an exported program."""
    if not isinstance(root, torch.nn.Module):
        return {}
    return {
        name: type(module).__name__ == "Conv1D"
        for name, module in root.named_modules()
        if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
    }


def _without_copies(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A tied weight under its first name, as transformers saves it."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    kept = {}
    for name, tensor in weights.items():
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if tensor.numel() == 0 or place not in seen:
            kept[name] = tensor
        seen.add(place)
    return kept


def _write_file(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise _core.PenstockError(f"'{name}': safetensors files have no {tensor.dtype}")
        end = at + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [at, end]}  # fmt: skip
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            plain = tensor.detach().cpu().contiguous().reshape(-1)
            file.write(plain.view(torch.uint8).numpy().data if plain.numel() else b"")
        file.flush()
        os.fsync(file.fileno())


def _shards(tensors: Mapping[str, torch.Tensor], most: int) -> list[dict[str, torch.Tensor]]:
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        found = tensor.numel() * tensor.element_size()
        if shards[-1] and size + found > most:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += found
    return shards


def write(
    folder: Path, weights: Mapping[str, torch.Tensor], base: Path | None, config: Any, most: int
) -> None:
    """Everything goes to a folder beside it first, so that nothing half written has its name.
    Raises PenstockError."""
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise _core.PenstockError(f"'{folder}' is there already: name a new folder")
    part = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        part.chmod(0o755)
        shards = _shards(_without_copies(weights), most)
        index: dict[str, str] = {}
        for number, shard in enumerate(shards, 1):
            name = "model.safetensors" if len(shards) == 1 else (
                f"model-{number:05}-of-{len(shards):05}.safetensors")  # fmt: skip
            _write_file(part / name, shard)
            index |= dict.fromkeys(shard, name)
        if len(shards) > 1:
            total = sum(one.numel() * one.element_size() for s in shards for one in s.values())
            document = {"metadata": {"total_size": total}, "weight_map": index}
            (part / _INDEX).write_text(json.dumps(document, indent=1))
        if base is not None:
            _copy_rest(base, part)
        elif config is not None:
            config.save_pretrained(part)
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    except OSError as error:
        raise _core.PenstockError(
            f"cannot write the model to '{folder}': {error.strerror or error}"
        ) from None
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def _copy_rest(base: Path, folder: Path) -> None:
    """What a folder of transformers has beside weights: configuration, tokenizer, template."""
    for path in sorted(base.iterdir()):
        is_text = path.suffix in (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
        if path.is_file() and is_text and ".index." not in path.name:
            shutil.copyfile(path, folder / path.name)
