#!/usr/bin/env bash
# torch.linalg.eigh: a float32 Gram matrix with many zero rows is refused, and float64 is not.
#
# One would guess: a symmetric matrix always has eigenvectors, and zero rows are the easiest part of
# it. Gram matrices of gradients are of this kind: rows of an embedding that a batch has not read,
# units that ReLU has switched off. Optimisers such as Shampoo and SOAP decompose them.
#
# What happens: with 40 of 300 rows (13 %) that are not zero, the decomposition raises LinAlgError:
# "failed to converge because the input matrix is ill-conditioned or has too many repeated
# eigenvalues". The same matrix in float64 has its eigenvectors, and so has the float32 matrix when a
# millionth of its mean diagonal is added to the diagonal, which changes no eigenvector.
#
# Versions: torch 2.13.0 (CPU, MKL 2024.2). Date: 2026-11-30.
# Source: aten/src/ATen/native/BatchLinearAlgebraKernel.cpp calls LAPACK's syevd.
#
# Output seen:
#   float32: LinAlgError
#   float64: orthonormal to 1e-12
#   float32 and a millionth of the mean diagonal: orthonormal to 0.0001
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PYTHON'
import torch

torch.manual_seed(0)
gradient = torch.zeros(300, 16)
gradient[torch.randperm(300)[:40]] = torch.randn(40, 16)
gram = gradient @ gradient.T
shifted = gram + 1e-6 * gram.diagonal().mean() * torch.eye(300)


def found(matrix, tolerance):
    try:
        _, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:
        return "LinAlgError"
    error = (vectors.T @ vectors - torch.eye(300, dtype=matrix.dtype)).abs().max()
    return f"orthonormal to {tolerance:g}" if error < tolerance else f"off by {error:g}"


results = [found(gram, 1e-4), found(gram.double(), 1e-12), found(shifted, 1e-4)]
names = ["float32", "float64", "float32 and a millionth of the mean diagonal"]
for name, result in zip(names, results):
    print(f"{name}: {result}")
expected = ["LinAlgError", "orthonormal to 1e-12", "orthonormal to 0.0001"]
raise SystemExit(0 if results == expected else 1)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
