"""Which parts of the package are there: the program, and what trains with the PyTorch that is
installed. Imports no PyTorch."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from typing import Union

from penstock._errors import PenstockError

PathLike = Union[str, "os.PathLike[str]"]

_HERE = Path(__file__).parent


def tool_path() -> Path:
    """The program: installed in the package, or beside the folder in which CMake built it."""
    for candidate in (_HERE / "bin" / "penstock", _HERE.parent.parent / "penstock"):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise PenstockError(f"the program penstock is missing in {_HERE / 'bin'}: install the package")


def _built_for() -> dict[str, Path]:
    """Folders of a wheel by the PyTorch that they were built for: 2.13 is torch-2.13."""
    return {path.name.removeprefix("torch-"): path for path in sorted(_HERE.glob("torch-*"))}


def training_folder() -> Path | None:
    """Of a wheel: what was built for the PyTorch that is installed. None where the package was
    built for one PyTorch alone, and lies in one piece.

    :raises PenstockError: no PyTorch is installed, or one that nothing was built for
    """
    folders = _built_for()
    if not folders:
        return None
    wanted = ", ".join(folders)
    newest = max(folders, key=lambda name: [int(part) for part in name.split(".")])
    advice = f"pip install 'torch=={newest}.*' numpy jinja2"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise PenstockError(
            f"training needs PyTorch {wanted}, and none is installed: {advice}"
        ) from None
    folder = folders.get(".".join(version.split(".")[:2]))
    if folder is None:
        raise PenstockError(f"training needs PyTorch {wanted}, found {version}: {advice}")
    return folder


def add_training_part(path: list[str]) -> None:
    """Makes penstock._core importable from `path`, the package's own, where there is one."""
    with contextlib.suppress(PenstockError):
        if folder := training_folder():
            path.insert(0, str(folder))


def why_there_is_none() -> str:
    """Why penstock._core cannot be imported."""
    try:
        folder = training_folder()
    except PenstockError as error:
        return str(error)
    pythons = sorted(file.name.split("-")[1] for file in (folder or _HERE).glob("_core.*.so"))
    found = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"the compiled part of penstock is there for {', '.join(pythons) or 'no Python'}, this is "
        f"{found}; the command penstock runs with any"
    )


def environment() -> dict[str, str]:
    """That of the program, which is told where its training part is, or why there is none."""
    try:
        folder = training_folder()
    except PenstockError as error:
        return {**os.environ, "PENSTOCK_NO_TRAINING": str(error)}
    if folder is None:
        return dict(os.environ)
    paths = [os.environ.get("LD_LIBRARY_PATH", ""), *_libraries_of_torch()]
    return {
        **os.environ,
        "PENSTOCK_TRAINING_PART": str(folder / "penstock-train"),
        "LD_LIBRARY_PATH": ":".join(path for path in paths if path),
    }


def _libraries_of_torch() -> list[str]:
    """Where they are in another site-packages than this package, the program does not find them."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("torch")
        homes = [Path(one) for one in (spec and spec.submodule_search_locations) or ()]
        return [str(lib) for home in homes
                for lib in (home / "lib", home.parent / "nvidia" / "nccl" / "lib")
                if lib.is_dir()]  # fmt: skip
    return []
