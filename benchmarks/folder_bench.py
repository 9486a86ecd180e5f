#!/usr/bin/env python3
"""Reading a folder of small images, against torchvision's ImageFolder with a DataLoader.

    benchmarks/folder_bench.py build/release [--images 50000] [--rounds 5] [--threads 2]

Needs a build with benchmarks (-DPENSTOCK_BUILD_BENCHMARKS=ON) and OpenCV, and a Python with
torchvision and Pillow. Both sides give shuffled batches of normalised float32 images. Programs take
turns, and ratios are taken within a round. Prints the time to the first batch and the samples per
second of the first two epochs: median (lowest..highest) of both sides, and of the ratio, above 1
where Penstock is faster. The time begins when libtorch or torch is loaded, and OpenCV or
torchvision is not.
"""
import argparse
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

CLASSES, BATCH, EPOCHS = 10, 64, 2
MEASURES = ["seconds to the first batch", "samples/s, first epoch", "samples/s, second epoch"]


def make_images(folder, count, side):
    from PIL import Image

    draw = random.Random(1)
    for number in range(count):
        path = folder / f"class_{number % CLASSES}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        # Smooth, so that files have the size of photographs' and not of noise.
        small = Image.frombytes("RGB", (8, 8), draw.randbytes(192))
        small.resize((side, side), Image.Resampling.BICUBIC).save(path, quality=90)


def read_with_torchvision(folder, side, threads):
    import torch

    torch.set_num_threads(1)
    begin = time.perf_counter()  # what reads images is loaded within the time, on both sides
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    data = ImageFolder(folder, transforms.Compose([
        transforms.Resize(side), transforms.CenterCrop(side), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]))
    loader = torch.utils.data.DataLoader(data, BATCH, shuffle=True, num_workers=threads,
                                         persistent_workers=True)
    for epoch in range(EPOCHS):
        start = time.perf_counter() if epoch else begin
        samples = 0
        for images, _ in loader:
            if not samples and not epoch:
                print(f"{time.perf_counter() - begin:.3f}")
            samples += len(images)
        print(f"{samples / (time.perf_counter() - start):.0f}")


def numbers_of(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(line) for line in out.split()]


def spread(values):
    digits = 2 if max(values) < 100 else 0
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f}..{max(values):.{digits}f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torchvision", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    side, threads = arguments.side, arguments.threads
    if arguments.torchvision:
        return read_with_torchvision(arguments.torchvision, side, threads)
    own, other = [], []
    with tempfile.TemporaryDirectory() as name:
        make_images(pathlib.Path(name), arguments.images, side)
        for number in range(arguments.rounds):
            sides = [
                (own, [str(arguments.build / "benchmarks" / "folder_bench"), name,
                       *map(str, (side, CLASSES, BATCH, threads, EPOCHS))]),
                (other, [sys.executable, __file__, *sys.argv[1:], "--torchvision", name]),
            ]
            for values, command in sides if number % 2 else reversed(sides):
                values.append(numbers_of(command))
    for at, measure in enumerate(MEASURES):
        ours, theirs = [one[at] for one in own], [one[at] for one in other]
        ratios = [b / a if at == 0 else a / b for a, b in zip(ours, theirs)]
        print(f"{measure}: Penstock {spread(ours)}, torchvision {spread(theirs)}, "
              f"ratio {spread(ratios)}")


if __name__ == "__main__":
    main()
