#!/usr/bin/env bash
# PyTorch's C++ headers: edge.h compiled alone up to 2.12 and does not from 2.13 on.
#
# One would guess: a header of libtorch that declares a value, torch::autograd::Edge, can be included
# alone, as for years: it names torch::autograd::Node only by a forward declaration, and a
# std::shared_ptr<Node> member asks for no more.
#
# What happens: since 2.13 the member is a c10::intrusive_ptr<Node>, whose destructor needs the whole
# class. Every function that destroys an Edge asks for Node, the header's own among them, so that
# `#include <torch/csrc/autograd/edge.h>` alone fails with "incomplete type". A precompiled header or
# torch/torch.h hides it. Including torch/csrc/autograd/function.h, before or after, mends it.
#
# Versions: torch 2.12.1 and 2.13.0 (headers), g++ 12.2. Date: 2026-11-29.
# Source: torch/csrc/autograd/edge.h, c10/util/intrusive_ptr.h (reset_not_null_).
#
# Output seen:
#   2.12.1: edge.h alone: compiles
#   2.13.0: edge.h alone: incomplete type
#   2.13.0: edge.h, then function.h: compiles
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"

echo '#include <torch/csrc/autograd/edge.h>' >"$folder/alone.cpp"
printf '#include <torch/csrc/autograd/%s.h>\n' edge function >"$folder/both.cpp"

# get VERSION: its headers.
get() {
  "$folder/venv/bin/pip" install --quiet --no-deps --target "$folder/$1" "torch==$1"
}

# said VERSION FILE: what the compiler thinks of it.
said() {
  local include="$folder/$1/torch/include"
  if g++ -std=c++20 -fsyntax-only -isystem "$include" \
    -isystem "$include/torch/csrc/api/include" "$folder/$2" 2>"$folder/errors"; then
    echo "compiles"
  elif grep -q 'incomplete type' "$folder/errors"; then
    echo "incomplete type"
  else
    echo "another error"
  fi
}

get 2.12.1
get 2.13.0
found="2.12.1: edge.h alone: $(said 2.12.1 alone.cpp)
2.13.0: edge.h alone: $(said 2.13.0 alone.cpp)
2.13.0: edge.h, then function.h: $(said 2.13.0 both.cpp)"
echo "$found"
[[ "$found" == "2.12.1: edge.h alone: compiles
2.13.0: edge.h alone: incomplete type
2.13.0: edge.h, then function.h: compiles" ]]
