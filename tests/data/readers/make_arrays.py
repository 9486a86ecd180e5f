"""Files of NumPy's and their numbers as NumPy reads them: writes arrays.json beside itself.

pip install numpy==2.4.6
python make_arrays.py
"""

import io
import json
import tempfile
import zipfile
from pathlib import Path

import numpy as np

rng = np.random.default_rng(1)


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(save=np.savez, *arrays, **named):
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def mapped(array):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mapped.npy"
        np.lib.format.open_memmap(path, "w+", array.dtype, array.shape)[...] = array
        return path.read_bytes()


def stored_by_hand(array):
    """Without what NumPy adds for archives beyond 4 GB."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", saved(array))
    return file.getvalue()


counting = np.arange(24)
cube = counting.reshape(2, 3, 4)
edges = [np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7976931348623157e308]
structure = np.zeros(2, [("a", "<f4"), ("b", "<i4")])

#: Name: the file, and the words of a refusal where it is one.
FILES = {
    "bool": saved(counting % 3 == 0),
    "uint8": saved(np.array([0, 1, 127, 128, 255], np.uint8)),
    "int8": saved(np.array([-128, -1, 0, 127], np.int8)),
    "int16": saved(np.array([-32768, -1, 0, 32767], np.int16)),
    "uint16": saved(np.array([0, 1, 32768, 65535], np.uint16)),
    "int32": saved(np.array([-(2**31), -1, 0, 2**31 - 1], np.int32)),
    "uint32": saved(np.array([0, 1, 2**31, 2**32 - 1], np.uint32)),
    "int64": saved(np.array([-(2**63), -1, 0, 2**63 - 1], np.int64)),
    "uint64": saved(np.array([0, 1, 2**63 - 1], np.uint64)),
    "float16": saved(np.array([0, 1, -65504, 6e-8, np.inf, np.nan], np.float16)),
    "float32": saved(np.array([0, 1 / 3, -3.4e38, 1e-45, np.inf, np.nan], np.float32)),
    "float64": saved(np.array(edges)),
    "one number": saved(np.float32(7.5)),
    "one row": saved(counting),
    "a matrix": saved(counting.reshape(4, 6)),
    "three dimensions": saved(cube),
    "five dimensions": saved(counting.reshape(1, 2, 3, 2, 2)),
    "no rows": saved(np.zeros((0, 3), np.float32)),
    "rows of nothing": saved(np.zeros((3, 0), np.float32)),
    "columns first": saved(np.asfortranarray(cube[0])),
    "columns first, three dimensions": saved(np.asfortranarray(cube.astype(np.float32))),
    "columns first, uint16": saved(np.asfortranarray(cube[0].astype(np.uint16))),
    "columns first, one row": saved(np.asfortranarray(counting)),
    "every second number": saved(counting[::2]),
    "backwards": saved(cube[:, ::-1]),
    "turned": saved(cube.T),
    "spread": saved(np.broadcast_to(np.float32(3), (2, 3))),
    "a memory map": mapped(cube.astype(np.float64)),
    "format 2": npy(cube, version=(2, 0)),
    "format 3": npy(cube, version=(3, 0)),
    "a matrix object": saved(np.matrix([[1, 2], [3, 4]])),
    "random numbers": saved(rng.standard_normal((5, 7))),
    "an archive": npz(np.savez, x=cube, y=counting),
    "a packed archive": npz(np.savez_compressed, x=cube.astype(np.float32), y=counting),
    "an archive without names": npz(np.savez, cube, counting),
    "an archive with other names": npz(np.savez, **{"train/x": cube, "é": counting, "a.b": cube}),
    "columns first in an archive": npz(np.savez, x=np.asfortranarray(cube)),
    "texts in an archive": npz(np.savez, x=cube, names=np.array(["a", "b"])),
    "an archive by zipfile": stored_by_hand(counting.astype(np.int16)),
    "big-endian": (saved(np.array([1.0, 2.0], ">f4")), "big-endian"),
    "complex": (saved(np.array([1 + 2j])), "complex numbers"),
    "texts": (saved(np.array(["a", "bc"])), "texts"),
    "bytes": (saved(np.array([b"a", b"bc"])), "texts"),
    "objects": (saved(np.array([{}, None], object)), "objects"),
    "dates": (saved(np.array(["2026-11-29"], "datetime64[D]")), "times"),
    "durations": (saved(np.array([1], "timedelta64[s]")), "times"),
    "structures": (saved(structure), ""),
    "bytes without a type": (saved(np.zeros(2, "V3")), "bytes without a type"),
    "uint64 beyond int64": (saved(np.array([2**63], np.uint64)), "2^63"),
}


def value_of(array):
    """Type, shape, and numbers row by row: whole ones as they are, others in hexadecimal."""
    if array.dtype.kind not in "biuf":
        return {"refused": "texts"}
    flat = [one.item() for one in array.ravel(order="C")]
    if array.dtype.kind == "f":
        return {"shape": array.shape, "reals": [float(one).hex() for one in flat]}
    return {"shape": array.shape, "integers": [int(one) for one in flat]}


files = []
for name, file in FILES.items():
    content, refused = file if isinstance(file, tuple) else (file, None)
    entry = {"name": name, "file": content.hex()}
    if refused is not None:
        entry["refused"] = refused
    else:
        loaded = np.load(io.BytesIO(content))
        is_archive = isinstance(loaded, np.lib.npyio.NpzFile)
        arrays = dict(loaded) if is_archive else {"": loaded}
        entry["arrays"] = {key: value_of(array) for key, array in arrays.items()}
    files.append(entry)
lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in files)
Path(__file__).with_name("arrays.json").write_text(f"[\n{lines}\n]\n")
print(len(files), "files")
