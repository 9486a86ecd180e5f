"""Weights in safetensors files, beside a program that has none: models larger than the memory."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import torch

from penstock._parts import PathLike


#: In the folder `extra` of a .pt2 file.
REFERENCE = "penstock_weights.json"
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_LARGEST_HEADER = 32 << 20
_CHUNK = 64 << 20
_DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16,
    "I32": torch.int32, "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16,
    "F32": torch.float32, "F64": torch.float64,
}  # fmt: skip


@dataclass(frozen=True)
class _Stored:
    """A tensor in a file."""

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def in_words(self) -> str:
        return f"{self.dtype} of {list(self.shape)}"


class _Shard:
    """A safetensors file. Its header is read and checked; the weights are not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                length = file.read(8)
                count = int.from_bytes(length, "little")
                self.bytes = os.fstat(file.fileno()).st_size
                if len(length) < 8 or count > min(_LARGEST_HEADER, self.bytes - 8):
                    raise ValueError(f"'{path}' is no safetensors file: its header does not fit")
                header = file.read(count)
        except OSError as error:
            raise ValueError(f"'{path}' cannot be read: {error.strerror}") from error
        self.header_crc32 = zlib.crc32(header, zlib.crc32(length))
        self.data_begin = 8 + count
        self.tensors: dict[str, _Stored] = {}
        try:
            entries = json.loads(header)
            for name, entry in entries.items():
                if name == "__metadata__":
                    continue
                begin, end = (int(edge) for edge in entry["data_offsets"])
                shape = tuple(int(size) for size in entry["shape"])
                self.tensors[name] = _Stored(path.name, name, entry["dtype"], shape, begin, end)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"'{path}' is no safetensors file: {error!r}") from error
        for stored in self.tensors.values():
            if not 0 <= stored.begin <= stored.end <= self.bytes - self.data_begin:
                raise ValueError(
                    f"'{path}' is damaged: the tensor '{stored.name}' ends at byte {stored.end} of "
                    f"{self.bytes - self.data_begin}"
                )

    def crc32(self, stored: _Stored) -> int:
        """Of the tensor's bytes, which are read once, piece by piece."""
        value = 0
        with open(self.path, "rb") as file:
            if stored.begin == stored.end:
                return value
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
                begin, end = self.data_begin + stored.begin, self.data_begin + stored.end
                for place in range(begin, end, _CHUNK):
                    last = min(place + _CHUNK, end)
                    with memoryview(pages) as view, view[place:last] as piece:
                        value = zlib.crc32(piece, value)
                    if hasattr(pages, "madvise"):
                        first = place // mmap.PAGESIZE * mmap.PAGESIZE
                        pages.madvise(mmap.MADV_DONTNEED, first, last - first)
        return value


class Folder:
    """A folder of safetensors files as transformers writes it, or one such file.

    :raises ValueError: no such files, a file that is missing or damaged, an index that names what
        its files do not have
    """

    def __init__(self, path: PathLike) -> None:
        given = Path(path)
        self.path = given.parent if given.suffix == ".safetensors" else given
        self.shards: dict[str, _Shard] = {}
        self.tensors: dict[str, _Stored] = {}
        index = self.path / _INDEX
        if given != self.path:
            self._take(given.name)
        elif index.exists():
            self._take_index(index)
        elif (self.path / _SINGLE).exists():
            self._take(_SINGLE)
        else:
            raise ValueError(
                f"'{given}' has neither {_INDEX} nor {_SINGLE}: expected a folder as "
                "save_pretrained() of transformers writes it, or a file that ends in .safetensors"
            )

    def _take(self, name: str) -> None:
        self.tensors.update(self._shard(name).tensors)

    def _shard(self, name: str) -> _Shard:
        if name not in self.shards:
            self.shards[name] = _Shard(self.path / name)
        return self.shards[name]

    def _take_index(self, index: Path) -> None:
        try:
            named = json.loads(index.read_bytes())["weight_map"].items()
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"'{index}' is no index of safetensors files: {error!r}") from error
        for name, file in named:
            if not isinstance(file, str) or Path(file).name != file:
                raise ValueError(f"'{index}': '{name}' is in {file!r}: expected a file's name")
            if not (self.path / file).exists():
                raise ValueError(f"'{index}': '{file}' is missing, which has '{name}'")
            stored = self._shard(file).tensors.get(name)
            if stored is None:
                raise ValueError(f"'{index}': '{name}' is not in '{file}'")
            self.tensors[name] = stored

    def find(self, names: list[str]) -> _Stored | None:
        """The first of these names that the files have, as the module or its base has them."""
        for name in names:
            for form in (name, _of_base(name)):
                if form in self.tensors:
                    return self.tensors[form]
        return None


def _of_base(name: str) -> str:
    """The name of a weight in the model that PEFT has wrapped."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


@contextlib.contextmanager
def empty_weights() -> Iterator[None]:
    """Modules that are made meanwhile have parameters without values (on the device meta), and
    buffers with theirs: what a model computes when it is made, such as rotary tables, is there.

    >>> with empty_weights():
    ...     layer = torch.nn.Linear(1_000, 1_000)
    >>> layer.weight.device
    device(type='meta')
    """
    register = torch.nn.Module.register_parameter

    def emptied(module: torch.nn.Module, name: str, parameter: Any) -> None:
        register(module, name, parameter)
        if parameter is not None and not parameter.is_meta:
            kind, trained = type(parameter), parameter.requires_grad
            module._parameters[name] = kind(parameter.to("meta"), requires_grad=trained)

    torch.nn.Module.register_parameter = emptied  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register  # type: ignore[method-assign]


def has_empty(module: torch.nn.Module) -> str:
    """The name of a parameter or buffer without values; empty: there is none."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return next((name for name, tensor in tensors if tensor.is_meta), "")


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU. Nobody reads or writes its numbers, so the system gives it no memory."""
    storage = torch.UntypedStorage(tensor.numel() * tensor.element_size())
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(storage, 0, tensor.shape, tensor.contiguous().stride())


class Placed:
    """Which tensors of a module without values are where in the files.

    :raises ValueError: tensors that the files do not have, or of another type or shape; tensors
        that no state dict has
    """

    def __init__(self, module: torch.nn.Module, folder: Folder) -> None:
        self._module = module
        self._folder = folder
        self.stored: dict[str, _Stored] = {}
        empty = {
            name: tensor
            for name, tensor in module.state_dict(keep_vars=True).items()
            if isinstance(tensor, torch.Tensor) and tensor.is_meta
        }
        names: dict[int, list[str]] = {}  # of one tied weight
        for name, tensor in empty.items():
            names.setdefault(id(tensor), []).append(name)
        missing = []
        for name, tensor in empty.items():
            stored = folder.find([name, *names[id(tensor)]])
            if stored is None:
                missing.append(name)
                continue
            if _DTYPES.get(stored.dtype) != tensor.dtype or stored.shape != tuple(tensor.shape):
                raise ValueError(
                    f"'{folder.path / stored.file}': the tensor '{stored.name}' is "
                    f"{stored.in_words()}, the module's '{name}' is {tensor.dtype} of "
                    f"{list(tensor.shape)}: make the module in the type of its files"
                )
            self.stored[name] = stored
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ValueError(
                f"'{folder.path}' has no tensor '{missing[0]}'{more}, which the module has without "
                "values: give it values (torch.nn.init) where it is new, such as an adapter, or "
                "tie it to the weight that it shares"
            )
        if not empty:
            raise ValueError(
                "every tensor of the module has values, so none is read from files: make the "
                "module inside of penstock.empty_weights()"
            )
        self._refuse_lost()

    def _refuse_lost(self) -> None:
        """What is neither in the files nor has values."""
        kept = {id(tensor) for tensor in self._module.state_dict(keep_vars=True).values()}
        for prefix, part in self._module.named_modules():
            own = {**dict(part._buffers), **vars(part)}
            for name, tensor in own.items():
                if not isinstance(tensor, torch.Tensor) or not tensor.is_meta:
                    continue
                if id(tensor) not in kept:
                    raise ValueError(
                        f"the module's '{prefix + '.' if prefix else ''}{name}' has no values, and "
                        "no file has it, since it is computed when the module is made: make the "
                        "module inside of penstock.empty_weights(), which leaves such tensors on "
                        "the CPU, instead of torch.device('meta')"
                    )

    @contextlib.contextmanager
    def filled(self) -> Iterator[None]:
        """The module has tensors on the CPU meanwhile, which take no memory as long as nobody reads
        them: torch.export looks at sizes and types."""
        replaced: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
        made: dict[int, torch.Tensor] = {}
        for part in list(self._module.modules()):
            for tensors in (part._parameters, part._buffers):
                for name, tensor in list(tensors.items()):
                    if tensor is None or not tensor.is_meta:
                        continue
                    if id(tensor) not in made:
                        plain = _without_memory(tensor)
                        made[id(tensor)] = (
                            torch.nn.Parameter(plain, requires_grad=tensor.requires_grad)
                            if isinstance(tensor, torch.nn.Parameter)
                            else plain
                        )
                    replaced.append((part, name, tensor))
                    setattr(part, name, made[id(tensor)])
        try:
            yield
        finally:
            for part, name, tensor in replaced:
                setattr(part, name, tensor)

    def reference(self, path: Path, weights: PathLike) -> str:
        """What the .pt2 file at `path` says of its weights, for each of them with a check sum: all
        are read once. A folder that was not given as an absolute path is found from the file's
        folder on."""
        folder = self._folder.path
        if not Path(weights).is_absolute():
            folder = Path(os.path.relpath(folder, path.parent))
        sums: dict[tuple[str, str], int] = {}
        tensors = {}
        for key, stored in self.stored.items():
            place = (stored.file, stored.name)
            if place not in sums:
                sums[place] = self._folder.shards[stored.file].crc32(stored)
            tensors[key] = {"file": stored.file, "name": stored.name, "crc32": sums[place]}
        files = {
            name: {"bytes": shard.bytes, "header_crc32": shard.header_crc32}
            for name, shard in self._folder.shards.items()
            if any(stored.file == name for stored in self.stored.values())
        }
        return json.dumps(
            {"format": "penstock-weights", "version": 1, "folder": str(folder), "files": files,
             "tensors": tensors}
        )  # fmt: skip

    def emptied(self, program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        """The program without the values of what the files have."""
        for key in self.stored:
            tensor = program.state_dict[key]
            empty = torch.empty_like(tensor, device="meta")
            program.state_dict[key] = (
                torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
                if isinstance(tensor, torch.nn.Parameter)
                else empty
            )
        return program
