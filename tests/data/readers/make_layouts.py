"""Folders of images as torchvision's ImageFolder counts them: writes layouts.json beside itself.

pip install torchvision==0.28.0 pillow==13.0.0
python make_layouts.py
"""

import json
import os
import tempfile
from pathlib import Path

from torchvision.datasets import ImageFolder

#: Name: files, a name that ends with '/' being a folder; `links`: place -> target, relative to the
#: place; `clutter`: what Penstock leaves out, and says so, where torchvision takes it; `left_out`:
#: all that is left out, in Penstock's words; `refused`: words of Penstock's refusal.
LAYOUTS = {
    "two classes": dict(files=["cat/1.jpg", "cat/2.jpg", "dog/1.jpg"]),
    "one class": dict(files=["cat/1.jpg"]),
    "classes are numbers": dict(files=["1/a.png", "2/a.png", "10/a.png"]),
    "numbers with zeros in front": dict(files=["01/a.png", "02/a.png", "10/a.png", "1/a.png"]),
    "negative numbers": dict(files=["-1/a.png", "0/a.png", "1/a.png", "-10/a.png"]),
    "numbers behind names": dict(files=[f"class_{i}/a.png" for i in range(12)]),
    "capital and small letters": dict(files=["Zebra/1.jpg", "apple/1.jpg", "Apple/1.jpg"]),
    "blanks in names": dict(files=["great tit/1.jpg", "great/my photo.jpg", " wren/1.jpg"]),
    "letters beyond ASCII": dict(files=["é/1.jpg", "e/1.jpg", "日本/写真.jpg", "z/1.jpg"]),
    "dots in names": dict(files=["v1.0/1.jpg", "v1.10/1.jpg", "v1/1.jpg"]),
    "dashes and underscores": dict(files=["a-b/1.jpg", "a_b/1.jpg", "a b/1.jpg", "ab/1.jpg"]),
    "long names": dict(files=["c" * 200 + "/" + "i" * 200 + ".jpg", "d/1.jpg"]),
    "a class named like an image": dict(files=["photo.jpg/1.png", "photo/1.png"]),
    "images one folder deeper": dict(files=["cat/images/1.png", "dog/images/1.png"]),
    "images five folders deeper": dict(files=["cat/a/b/c/d/e/1.png", "dog/1.png"]),
    "images and folders of images": dict(files=["cat/1.jpg", "cat/more/2.jpg", "dog/1.jpg"]),
    "equal names in two folders": dict(files=["a/x/1.jpg", "a/y/1.jpg", "b/x/1.jpg"]),
    "folders that sort between names": dict(
        files=["a/b-c/1.jpg", "a/b/1.jpg", "a/b/0/1.jpg", "a/b.jpg", "a/B/1.jpg", "a/z.jpg"]),
    "files that sort between folders": dict(files=["a/m/1.jpg", "a/l.jpg", "a/n.jpg", "a/1.jpg"]),
    "images are numbers": dict(files=[f"a/{i}.jpg" for i in (1, 2, 9, 10, 11, 100)]),
    "image numbers with zeros": dict(files=["a/001.jpg", "a/1.jpg", "a/01.jpg", "a/010.jpg"]),
    "image names in capitals": dict(files=["a/B.jpg", "a/a.jpg", "a/IMG_2.JPG", "a/IMG_10.JPG"]),
    "endings in capitals": dict(files=["a/1.JPG", "a/2.Png", "a/3.TIFF", "b/1.WebP"]),
    "every ending": dict(files=[f"a/1.{e}" for e in (
        "jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp")]),
    "a folder named like an image": dict(files=["a/x.jpg/1.png", "a/y.png", "b/1.png"]),
    "two endings": dict(files=["a/1.tar.jpg", "a/2.jpg.txt", "a/3.jpg~", "b/1..jpg"],
                        left_out="1 .jpg~, 1 .txt"),
    "other formats": dict(files=["a/1.jpg", "a/2.gif", "a/3.avif", "a/4.heic", "b/1.png"],
                          left_out="1 .avif, 1 .gif, 1 .heic"),
    "texts beside images": dict(files=["a/1.jpg", "a/1.txt", "a/list.csv", "b/1.png"],
                                left_out="1 .csv, 1 .txt"),
    "names without an ending": dict(files=["a/1.jpg", "a/scan", "a/jpg", "b/1.png"],
                                    left_out="2 without an ending"),
    "files of systems": dict(files=["a/1.jpg", "a/Thumbs.db", "b/desktop.ini", "b/1.png"],
                             left_out="1 .db, 1 .ini"),
    "texts beside classes": dict(files=["a/1.jpg", "b/1.jpg", "README.md", "labels.csv"],
                                 left_out="1 .csv, 1 .md"),
    "images beside classes": dict(files=["a/1.jpg", "b/1.jpg", "cover.jpg"],
                                  left_out="1 images beside the folders of classes"),
    "hidden images": dict(files=["a/1.jpg", "a/._1.jpg", "b/1.jpg"], clutter=["a/._1.jpg"],
                          left_out="1 hidden"),
    "a hidden folder in a class": dict(files=["a/1.jpg", "a/.cache/2.jpg", "b/1.jpg"],
                                       clutter=["a/.cache/2.jpg"], left_out="1 hidden"),
    "a hidden folder beside classes": dict(
        files=["a/1.jpg", "b/1.jpg", ".ipynb_checkpoints/1.jpg"],
        clutter=[".ipynb_checkpoints/1.jpg"], left_out="1 hidden"),
    "what macOS packs": dict(files=["a/1.jpg", "b/1.jpg", "__MACOSX/a/1.jpg"],
                             clutter=["__MACOSX/a/1.jpg"], left_out="1 __MACOSX"),
    "a link to a class": dict(files=["a/1.jpg", "a/2.jpg"], links={"b": "a"}),
    "a link to an image": dict(files=["a/1.jpg", "b/2.jpg"], links={"b/3.jpg": "../a/1.jpg"}),
    "a link to a folder of images": dict(files=["a/1.jpg", "b/2.jpg"], links={"a/x": "../b"}),
    "a link to nowhere": dict(files=["a/1.jpg", "b/1.jpg"], links={"b/2.jpg": "gone.jpg"},
                              clutter=["b/2.jpg"], left_out="1 no files (broken links, pipes)"),
    "a class without images": dict(files=["a/1.jpg", "b/"], refused="'b' holds no images"),
    "a class of texts": dict(files=["a/1.jpg", "notes/1.txt"], refused="'notes' holds no images"),
    "images without classes": dict(files=["1.jpg", "2.jpg"], refused="expected one per class"),
    "an empty folder": dict(files=[], refused="has no folders in it"),
    "a class called train": dict(files=["bus/1.jpg", "car/1.jpg", "train/1.jpg"]),
    "a nested class called train": dict(
        files=["bus/1.jpg", "car/1.jpg", "train/de/1.jpg", "train/fr/1.jpg"]),
    "train and test": dict(files=["train/a/1.jpg", "train/b/1.jpg", "test/a/1.jpg",
                                  "test/b/1.jpg"], parts=["train", "test"]),
    "train and validation": dict(files=["train/1/1.jpg", "train/10/1.jpg", "train/2/1.jpg",
                                        "validation/1/1.jpg", "validation/10/1.jpg",
                                        "validation/2/2.jpg"], parts=["train", "validation"]),
    "training and testing": dict(files=["Training/a/x/1.jpg", "Testing/a/2.jpg"],
                                 parts=["Training", "Testing"]),
    "train, val and test": dict(files=["train/a/1.jpg", "val/a/2.jpg", "test/a/3.jpg"],
                                parts=["train", "test"]),
}


def build(folder, layout, without=()):
    for name in layout["files"]:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        elif name not in without:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
    for place, target in layout.get("links", {}).items():
        if place not in without:
            os.symlink(target, folder / place)


def counted(layout, part="", without=()):
    """Classes, and "label path" of each image; nothing: torchvision refuses the folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder, layout, without)
        try:
            found = ImageFolder(folder / part)
        except FileNotFoundError:
            return None
        images = [f"{label} {Path(path).relative_to(folder / part)}"
                  for path, label in found.samples]
        return {"classes": found.classes, "images": images}


layouts = []
for name, layout in LAYOUTS.items():
    clutter = layout.get("clutter", ())
    entry = {"name": name, "files": layout["files"], "links": layout.get("links", {}),
             "left_out": layout.get("left_out", "")}
    if "parts" in layout:
        train, test = layout["parts"]
        entry |= {"train": train, "test": test, **counted(layout, train)}
        entry["test_images"] = counted(layout, test)["images"]
    elif "refused" in layout:
        assert counted(layout) is None, name
        entry["refused"] = layout["refused"]
    else:
        entry |= counted(layout, without=clutter)
        assert (counted(layout) == counted(layout, without=clutter)) == (not clutter), name
    layouts.append(entry)
lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in layouts)
Path(__file__).with_name("layouts.json").write_text(f"[\n{lines}\n]\n")
print(len(layouts), "layouts")
