"""A module's large tensors, out of the file that it was exported to.

A trainer has weights of its own. The module's are not changed, and seldom read again before they
get the trained ones. So they need no memory meanwhile: they become a private mapping of the file,
whose pages come back when somebody reads them. Writing to them is as before.
"""

from __future__ import annotations

import gc
import itertools
import json
import struct
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from penstock import _core

_LEAST_BYTES = 1 << 20
_CONFIG = "data/weights/model_weights_config.json"
_LOCAL_HEADER = struct.Struct("<26xHH")


def map_to_file(module: torch.nn.Module, path: Path) -> None:
    """Gives back the memory of the module's parameters and buffers, whose values are in the file.

    Those of 1 MiB and more on the CPU, as far as nobody else refers to their memory: an array of
    NumPy, a state dict or another view of it would otherwise see no more what is written to them.

    :param path: what `penstock.export` has made of the module as it is now
    """
    records = _records(path)
    try:
        file = np.memmap(path, np.uint8, "c")
    except OSError:
        return  # they stay in memory
    gc.collect()  # torch.export leaves circles
    tensors = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
    users = Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())
    for name, tensor in tensors.items():
        if users[tensor.untyped_storage().data_ptr()] > 1 or not _is_alone(tensor):
            continue
        offset, num_bytes = records.get(name, (0, 0))
        if num_bytes != tensor.nbytes:
            continue
        pages = torch.from_numpy(file[offset : offset + num_bytes])
        tensor.data = pages.view(tensor.dtype).view(tensor.shape)
    _core.give_back_freed_memory()


def _is_alone(tensor: torch.Tensor) -> bool:
    """Whether it is a plain large tensor that has its memory for itself."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    if count is None or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.nbytes < _LEAST_BYTES:
        return False
    storage = tensor.untyped_storage()
    own = 2  # the tensor, and this object
    return (
        storage.nbytes() == tensor.nbytes and not storage.is_shared()
        and count(storage._cdata) == own
    )  # fmt: skip


def _records(path: Path) -> dict[str, tuple[int, int]]:
    """By name: where a tensor's bytes begin in the file, and how many they are."""
    found = {}
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        config = next(name for name in archive.namelist() if name.endswith(_CONFIG))
        folder = config.removesuffix(Path(_CONFIG).name)
        for name, tensor in json.loads(archive.read(config))["config"].items():
            if tensor["use_pickle"]:
                continue
            record = archive.getinfo(folder + tensor["path_name"])
            if record.compress_type != zipfile.ZIP_STORED:
                continue
            file.seek(record.header_offset)
            lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            begin = record.header_offset + _LOCAL_HEADER.size + sum(lengths)
            found[name] = (begin, record.file_size)
    return found
