"""Compiles a piece of a model ahead of time: python3 compile_piece.py FOLDER, with request.json.

A piece is a run of layers as steps of ATen's operators. It becomes two packages of AOTInductor: the
forward pass, and the backward pass, which takes what the forward pass has saved. Weights are
arguments of both. piece.json says what goes in and comes out. A failure is one line in
failure.txt, and exit code 4 where nothing can be compiled here, 3 where the piece is the reason.
"""

import json
import sys
import traceback
import zlib
from pathlib import Path

try:
    import torch
    from torch._functorch.aot_autograd import aot_export_joint_simple
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor import ir, lowering, mkldnn_ir
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.package import package_aoti
    from torch._subclasses.fake_tensor import FakeTensorMode
except ImportError as error:
    text = f"{sys.executable} has no PyTorch that compiles ({error}): see PENSTOCK_PYTHON"
    (Path(sys.argv[1]) / "failure.txt").write_text(text)
    sys.exit(4)

_TYPES = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64,
    6: torch.float16, 7: torch.float32, 8: torch.float64, 12: torch.bool, 13: torch.bfloat16,
}  # fmt: skip
_ORDERS = {
    1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d,
    4: torch.preserve_format,
}  # fmt: skip


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
               enable_gqa=False, keep=None):  # fmt: skip
    """With dropout's mask, as special_operators.h has it."""
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    scores = torch.matmul(query * (scale or query.size(-1) ** -0.5), key.transpose(-2, -1))
    if is_causal:
        seen = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    if attn_mask is None:
        return torch.matmul(torch.softmax(scores, -1) * keep, value)
    if attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    else:
        scores = scores + attn_mask
    unseen = (scores == -torch.inf).all(-1, True)  # queries that see nothing: zero
    shares = torch.softmax(scores.masked_fill(unseen, 0), -1).masked_fill(unseen, 0)
    return torch.matmul(shares * keep, value)


def _target(name):
    if name == "attention":
        return _attention
    found = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def _value(text, values):
    """An argument, as the request writes it."""
    if isinstance(text, list):
        return [_value(one, values) for one in text]
    if not isinstance(text, dict):
        return text
    ((kind, what),) = text.items()
    if kind == "tensor":
        return values[what]
    if kind == "type":
        return _TYPES[what]
    if kind == "order":
        return _ORDERS[what]
    if kind == "float":
        return float(what)
    if kind == "device":
        return torch.device("cpu")
    if kind == "layout":
        return torch.strided
    raise ValueError(f"a value of the unknown kind '{kind}'")


class _Forward:
    """The piece as a pure function: buffers that its steps change come out as new ones."""

    def __init__(self, piece):
        self._piece = piece
        self._steps = [(_target(step["target"]), step) for step in piece["steps"]]

    def __call__(self, *arguments):
        piece, values = self._piece, {}
        for tensor, given in zip(piece["arguments"], arguments):
            values[tensor["name"]] = given.clone() if tensor["role"] == "buffer" else given
        for target, step in self._steps:
            self._run(target, step, values)
        outputs = [values[name] for name in piece["outputs"]]
        if piece["shares_output"]:
            outputs[0] = outputs[0].reshape([1]).expand([piece["samples"]])
        # No result is a view of another one, nor an argument itself. Gradients come contiguous.
        outputs = [
            torch.ops.aten.clone.default(one, memory_format=torch.contiguous_format)
            for one in outputs
        ]
        changed = [values[t["name"]] for t in piece["arguments"] if t["role"] == "buffer"]
        return tuple(outputs) + tuple(one.detach() for one in changed)

    @staticmethod
    def _run(target, step, values):
        given, named = [], {}
        for one in step["inputs"]:
            value = _value(one["value"], values)
            if one["keyword"]:
                named[one["name"]] = value
            else:
                given.append(value)
        with torch.set_grad_enabled(step["gradient"] and torch.is_grad_enabled()):
            made = target(*given, **named)
        if not isinstance(made, (tuple, list)):
            made = [made]
        elif len(step["outputs"]) == 1 and isinstance(step["outputs"][0], list):
            made = [made]
        for name, value in zip(step["outputs"], made):
            if isinstance(name, list):
                values.update(zip(name, value))
            elif name:
                values[name] = value


def _example(tensor, mode):
    with mode:
        made = torch.empty(tensor["sizes"], dtype=_TYPES[tensor["type"]])
    return made.requires_grad_(tensor["gradient"])


def _joint(piece, arguments):
    """Forward and backward as one graph, as AOTAutograd traces them."""
    return aot_export_joint_simple(
        _Forward(piece),
        tuple(arguments),
        trace_joint=True,
        decompositions=select_decomp_table(),
    )


def _split(joint, results):
    """The graphs of the forward pass, which has so many results beside what it saves, and of the
    backward pass."""
    given = [node.meta["val"] for node in joint.graph.find_nodes(op="placeholder")]
    joint = joint_graph_passes(joint)
    return min_cut_rematerialization_partition(
        joint, given, compiler="inductor", num_fwd_outputs=results
    )


def _without(graph, kept):
    """The graph with these of its results alone."""
    (output,) = graph.graph.find_nodes(op="output")
    output.args = (tuple(output.args[0][i] for i in kept),)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _saved(forward, results):
    """What the backward pass reads, each tensor once; the forward graph gives no argument back."""
    (output,) = forward.graph.find_nodes(op="output")
    places = forward.graph.find_nodes(op="placeholder")
    made, kept, saved = list(output.args[0]), list(range(results)), []
    for i in range(results, len(made)):
        if made[i] in places:
            saved.append({"what": "argument", "place": places.index(made[i])})
            continue
        first = made.index(made[i])
        if first == i:
            kept.append(i)
        saved.append({"what": "result", "place": kept.index(first)})
    _without(forward, kept)
    return saved


def _blocked_product(x, weight, bias, attribute, scalars, algorithm):
    """oneDNN's product of any weight; the compiler's own lowering wants constant ones."""
    kernel = mkldnn_ir.LinearUnary
    x = kernel.require_contiguous(kernel.realize_input(x))
    inputs = [x, kernel.realize_input(weight)]
    rest = [attribute, scalars or [-1], algorithm]
    if bias is None:
        rest.insert(0, None)
    else:
        inputs.append(kernel.require_contiguous(kernel.realize_input(bias)))
    size = [x.get_size()[0], weight.get_size()[0]]
    layout = ir.FixedLayout(x.get_device(), x.get_dtype(), size)
    return ir.TensorBox.create(mkldnn_ir._create_output_node(kernel(layout, inputs, rest)))


def _transposed(graph, node):
    """The transpose of a matrix: what it is the transpose of, if it is one."""
    if node.target is torch.ops.aten.permute.default and list(node.args[1]) == [1, 0]:
        return node.args[0]
    made = graph.call_function(torch.ops.aten.permute.default, (node, [1, 0]))
    made.meta["val"] = node.meta["val"].permute(1, 0)
    return made


def _block(module, least):
    """Products of at least so many multiply-adds by oneDNN: blocked_product.h says where."""
    blocked = torch.ops.mkldnn._linear_pointwise.default
    lowering.register_lowering(blocked, type_promotion_kind=None)(_blocked_product)
    graph = module.graph
    for node in [*graph.nodes]:
        if node.target is torch.ops.aten.mm.default:
            bias, (x, right) = None, node.args
        elif node.target is torch.ops.aten.addmm.default and not node.kwargs:
            bias, x, right = node.args
            if bias.meta["val"].dim() != 1 or len(bias.meta["val"]) != node.meta["val"].size(1):
                continue
        else:
            continue
        rows = x.meta["val"]
        work = rows.numel() * right.meta["val"].size(1)
        # Where both operands are transposed MKL's product is the faster one.
        if work < least or rows.dtype != torch.float32 or not rows.is_contiguous():
            continue
        with graph.inserting_before(node):
            weight = _transposed(graph, right)
            made = graph.call_function(blocked, (x, weight, bias, "none", [], ""))
        made.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(made)
        graph.erase_node(node)
    graph.eliminate_dead_code()
    module.recompile()


def _package(graph, path, threads):
    given = tuple(node.meta["val"] for node in graph.graph.find_nodes(op="placeholder"))
    options = {"aot_inductor.package": True, "cpp.threads": threads}
    with torch.no_grad():
        package_aoti(str(path), torch._inductor.aot_compile(graph, given, options=options))
    return zlib.crc32(path.read_bytes())


def _compile(piece, folder):
    """What piece.json says."""
    mode = FakeTensorMode()
    arguments = [_example(tensor, mode) for tensor in piece["arguments"]]
    with mode, torch.enable_grad():
        results = _Forward(piece)(*arguments)
    count = len(piece["outputs"])
    tangents = [i for i in range(count) if results[i].requires_grad]
    if not tangents:
        raise ValueError("no result depends on a weight")
    forward, backward = _split(_joint(piece, arguments), len(results))
    about = {"saved": _saved(forward, len(results)), "tangents": tangents}
    (output,) = backward.graph.find_nodes(op="output")
    about["gradients"] = [i for i, made in enumerate(output.args[0]) if made is not None]
    _without(backward, about["gradients"])
    if piece["blocked_from"]:
        _block(forward, piece["blocked_from"])
        _block(backward, piece["blocked_from"])
    about["forward_crc"] = _package(forward, folder / "forward.pt2", piece["threads"])
    about["backward_crc"] = _package(backward, folder / "backward.pt2", piece["threads"])
    return about


def _try(piece, about, folder):
    """Runs both packages once: some operators compile and fail when they run."""
    given = []
    for tensor in piece["arguments"]:
        type = _TYPES[tensor["type"]]
        fill = torch.rand if type.is_floating_point else torch.zeros
        given.append(fill(tensor["sizes"]).to(type))
    run = [torch._inductor.aoti_load_package(str(folder / f"{name}.pt2")).loader.run
           for name in ("forward", "backward")]  # fmt: skip
    with torch.no_grad():
        results = run[0](given)
        of = {"argument": given, "result": results}
        saved = [of[one["what"]][one["place"]] for one in about["saved"]]
        run[1](saved + [torch.ones_like(results[i]) for i in about["tangents"]])


def _check(piece):
    """Raises ValueError where this Python cannot compile for the program."""
    version = torch.__version__.split("+")[0]
    if version != piece["torch"]:
        raise ValueError(
            f"the PyTorch of {sys.executable} is {version}, the program's libtorch is "
            f"{piece['torch']}: expected the same"
        )
    try:
        get_cpp_compiler()
    except Exception:
        raise ValueError("there is no C++ compiler: install g++, or name one by CXX") from None


def _main(folder):
    piece = json.loads((folder / "request.json").read_text())
    torch.set_num_threads(piece["threads"])
    code = 4
    try:
        _check(piece)
        code = 3
        about = _compile(piece, folder)
        _try(piece, about, folder)
    except Exception as error:
        traceback.print_exc()
        if isinstance(error, (OSError, MemoryError)):
            code = 4  # another time it may go well
        text = str(error).strip().split("\n")[0] or type(error).__name__
        (folder / "failure.txt").write_text(text)
        return code
    (folder / "piece.json").write_text(json.dumps(about))
    return 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
