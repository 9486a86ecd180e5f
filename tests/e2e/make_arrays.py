"""make_arrays.py FOLDER: writes the .npz and .npy files of data.sh, without NumPy."""

import struct
import sys
import zipfile
from pathlib import Path


def npy(kind, shape, values):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    code = {"<f4": "f", "<i8": "q", "<u2": "H", "<i4": "i"}[kind]
    body = struct.pack(f"<{len(values)}{code}", *values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body


def write(path, **arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            archive.writestr(name + ".npy", npy(*array))


def numbers(count, bits=16, seed=1):
    result = []
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        result.append(seed >> (64 - bits))
    return result


folder = Path(sys.argv[1])
count = 96
ids = ("<i4", (count, 8), numbers(count * 8, 4))
lengths = [4 + n for n in numbers(count, 2, 5)]
mask = [int(i < length) for length in lengths for i in range(8)]
masks = ("<i8", (count, 8), mask)
# The tokens that follow; what is masked has no target.
following = [(x + 1) % 16 if m else -100 for x, m in zip(ids[2], mask)]
labels = ("<i8", (count, 8), following)
write(folder / "tokens.npz", input_ids=ids, attention_mask=masks, labels=labels)
write(folder / "ignored.npz", input_ids=ids, attention_mask=masks,
      labels=("<i8", (count, 8), [-100] * (count * 8)))
write(folder / "no_mask.npz", input_ids=ids, labels=labels)
write(folder / "other_rows.npz", input_ids=("<i4", (count, 7), ids[2][: count * 7]),
      attention_mask=masks, labels=labels)
large = [16 if i == 8 * 17 else x for i, x in enumerate(ids[2])]
write(folder / "large.npz", input_ids=("<i4", (count, 8), large), attention_mask=masks,
      labels=labels)
(folder / "row.npy").write_bytes(npy("<u2", (1000,), [5 * i % 16 for i in range(1000)]))

pixels = [n / 2**15 - 1 for n in numbers(count * 784)]
images = ("<f4", (count, 784), pixels)
means = [sum(pixels[784 * i + 10 * k : 784 * i + 10 * k + 10]) for i in range(count)
         for k in range(10)]
write(folder / "regression.npz", x=images, y=("<f4", (count, 10), means))
write(folder / "binary.npz", x=images, y=("<f4", (count, 10), [float(m > 0) for m in means]))
write(folder / "beyond.npz", x=images, y=("<f4", (count, 10), [m - 1e3 for m in means]))
bad = list(pixels)
bad[784 * 5] = float("nan")
classes = [i % 10 for i in range(count)]
classes[9] = 10
write(folder / "bad.npz", x=("<f4", (count, 784), bad), y=("<i8", (count,), classes))

# Images of three kinds of stripes, in a folder per kind; sizes that are not the model's.
stripes = {"across": lambda x, y: y, "down": lambda x, y: x, "diagonal": lambda x, y: x + y}
for part, each in (("train", 40), ("val", 10)):
    for name, at in stripes.items():
        (folder / "photos" / part / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            width, height = 28 + 3 * i % 17, 28 + 5 * i % 19
            noise = numbers(width * height, 6, i)
            pixels = bytearray()
            for y in range(height):
                for x in range(width):
                    value = 180 * (at(x, y) // 5 % 2) + noise[y * width + x]
                    pixels += bytes((value, value, value))
            (folder / "photos" / part / name / f"{i}.ppm").write_bytes(
                b"P6\n%d %d\n255\n" % (width, height) + pixels)
