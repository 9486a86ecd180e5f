#!/usr/bin/env bash
# Pillow: a grey PNG of 16 bits becomes white when it is made RGB, as torchvision's ImageFolder does.
#
# One would guess: convert("RGB") maps 0..65535 to 0..255, as other readers do: the upper eight bits.
# The default loader of torchvision's ImageFolder and most Dataset classes is
# Image.open(file).convert("RGB").
#
# What happens: a value above 255 becomes 255. Of an image with 12 used bits, 15 of 16 shades are
# white; of one that uses all 16 bits, 255 of 256. No warning. Saving such an image as a JPEG raises,
# so one may think that the mode is known to be special.
#
# Versions: Pillow 12.0.0, numpy 2.4.6. Date: 2026-11-29.
# Source: Pillow's src/libImaging/Convert.c, I16 to L and RGB (clipping).
#
# Output seen:
#   mode I;16, 4096 shades from 0 to 4095
#   as RGB: 256 shades, 93.8 % are 255
#   upper eight bits: 16 shades, 0.0 % are 255
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pillow==12.0.0 numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
import io

import numpy
from PIL import Image

file = io.BytesIO()
Image.fromarray(numpy.arange(4096, dtype=numpy.uint16).reshape(64, 64)).save(file, "PNG")
image = Image.open(file)
values = numpy.asarray(image)
rgb = numpy.asarray(image.convert("RGB"))[:, :, 0]
upper = (values >> 8).astype(numpy.uint8)


def shades(pixels):
    white = 100 * numpy.mean(pixels == 255)
    return f"{len(numpy.unique(pixels))} shades, {white:.1f} % are 255"


print(f"mode {image.mode}, {len(numpy.unique(values))} shades from {values.min()} to {values.max()}")
print(f"as RGB: {shades(rgb)}")
print(f"upper eight bits: {shades(upper)}")
is_there = image.mode == "I;16" and len(numpy.unique(rgb)) == 256 and numpy.mean(rgb == 255) > 0.9
raise SystemExit(0 if is_there else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
