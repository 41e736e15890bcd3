# SPDX-License-Identifier: Apache-2.0
"""How a call of PyTorch's dispatcher is named: its kind, the tensors that count as its inputs, and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch


class Weights(Protocol):
    """What knows the weights of a network."""

    def is_parameter(self, tensor: torch.Tensor) -> bool: ...


Rule = Callable[[Weights, dict[str, Any], Any], tuple[str, list[torch.Tensor], dict[str, Any]]]


def ints(value: Any) -> tuple[int, ...]:
    """Sizes as a tuple."""
    return tuple(int(item) for item in value)


def _full(value: Sequence[int], rank: int) -> tuple[int, ...]:
    sizes = ints(value)
    return sizes * rank if len(sizes) == 1 else sizes


def _convolution(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    rank = a["weight"].dim() - 2
    params = {
        "weight": tuple(a["weight"].shape),
        "bias": a["bias"] is not None,
        "stride": _full(a["stride"], rank),
        "padding": _full(a["padding"], rank),
        "dilation": _full(a["dilation"], rank),
        "groups": int(a["groups"]),
    }
    if a["transposed"]:
        params["output_padding"] = _full(a["output_padding"], rank)
    return f"conv{'_transpose' if a['transposed'] else ''}{rank}d", [a["input"]], params


def _batch_norm(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "batch_norm", [a["input"]], {"affine": a["weight"] is not None}


def _matmul(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    left, right = (
        a[n] for n in (("mat1", "mat2") if "mat1" in a else ("batch1", "batch2") if "batch1" in a else ("self", "mat2"))
    )
    batch = left.shape[0] if left.dim() == 3 else 1
    k, n = (right.shape[-2], right.shape[-1]) if right.dim() > 1 else (right.shape[0], 1)
    bias = "mat1" in a or "batch1" in a
    params = {"m": left.shape[-2], "k": k, "n": n, "batch": batch, "bias": bias}
    operands = [left, right]
    return "matmul", [t for t in operands if not network.is_parameter(t)] or operands, params


def _mv(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    left, right = a["self"], a["vec"] if "vec" in a else a["tensor"]
    m = left.shape[0] if left.dim() == 2 else 1
    params = {"m": m, "k": right.shape[0], "n": 1, "batch": 1, "bias": False}
    return "matmul", [t for t in (left, right) if not network.is_parameter(t)] or [left, right], params


def _pool(kind: str) -> Rule:
    def rule(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        rank = int(kind[-2])
        kernel = _full(a["kernel_size"], rank)
        params: dict[str, Any] = {
            "kernel_size": kernel,
            "stride": _full(a["stride"], rank) if a["stride"] else kernel,
            "padding": _full(a["padding"], rank),
        }
        if kind.startswith("max"):
            params["dilation"] = _full(a["dilation"], rank)
        params["ceil_mode"] = bool(a["ceil_mode"])
        return kind, [a["self"]], params

    return rule


def _norm(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    affine = a["weight"] is not None
    if "normalized_shape" in a:
        return "layer_norm", [a["input"]], {"normalized_shape": ints(a["normalized_shape"]), "affine": affine}
    return "group_norm", [a["input"]], {"groups": int(a["group"]), "affine": affine}


def _dims(network: Weights, a: dict[str, Any], out: Any) -> dict[str, Any]:
    """The dimensions an operator works along, counted from the front."""
    rank = a["self"].dim()
    params: dict[str, Any] = {}
    if "dim" in a:
        dims = a["dim"]
        if dims is None or (isinstance(dims, (list, tuple)) and not dims):
            params["dim"] = tuple(range(rank))
        elif isinstance(dims, int):
            params["dim"] = (dims % max(rank, 1),)
        else:
            params["dim"] = tuple(sorted(d % rank for d in dims))
    if "keepdim" in a:
        params["keepdim"] = bool(a["keepdim"])
    return params


def _all_dims(a: dict[str, Any]) -> dict[str, Any]:
    """What a reduction without dimensions works along."""
    return {"dim": tuple(range(a["self"].dim())), "keepdim": False}


def _reduction(kind: str) -> Rule:
    def rule(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [a["self"]], _all_dims(a) | _dims(network, a, out)

    return rule


def _extreme(kind: str) -> Rule:
    def rule(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [a["self"]], _all_dims(a) | _dims(network, a, out)

    return rule


def _softmax(kind: str) -> Rule:
    def rule(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [a["self"]], {"dim": a["dim"] % max(a["self"].dim(), 1)}

    return rule


def _cat(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "cat", list(a["tensors"]), {"dim": a.get("dim", 0) % out.dim()}


def _made(kind: str) -> Rule:
    def rule(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [], {}

    return rule


def _copy(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    """Writing one number everywhere is a fill: the meta device makes a tensor of the number first, a GPU does not."""
    if not any(a["src"].stride()):
        return "fill", [], {}
    return "copy", [a["src"]], {}


def _embedding(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "embedding", [a["indices"]], {"weight": tuple(a["weight"].shape)}


def _embedding_bag(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    inputs = [tensor for tensor in (a["indices"], a["offsets"], a["per_sample_weights"]) if tensor is not None]
    return "embedding_bag", inputs, {"weight": tuple(a["weight"].shape)}


def _index(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "index", [a["self"], *(tensor for tensor in a["indices"] if tensor is not None)], {}


def _prelu(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "prelu", [a["self"]], {}


def _adaptive(kind: str) -> Rule:
    def rule(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
        return kind, [a["self"]], {"output_size": ints(a["output_size"])}

    return rule


def _stack(network: Weights, a: dict[str, Any], out: Any) -> tuple[str, list[torch.Tensor], dict[str, Any]]:
    return "stack", list(a["tensors"]), {"dim": a.get("dim", 0) % (a["tensors"][0].dim() + 1)}


RULES: dict[str, Rule] = {
    "convolution": _convolution,
    "batch_norm": _batch_norm,
    "mm": _matmul,
    "addmm": _matmul,
    "bmm": _matmul,
    "baddbmm": _matmul,
    "mv": _mv,
    "dot": _mv,
    "max_pool2d": _pool("max_pool2d"),
    "max_pool3d": _pool("max_pool3d"),
    "avg_pool2d": _pool("avg_pool2d"),
    "avg_pool3d": _pool("avg_pool3d"),
    "layer_norm": _norm,
    "group_norm": _norm,
    "mean": _reduction("mean"),
    "sum": _reduction("sum"),
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "cat": _cat,
    **{f"adaptive_{how}_pool{rank}d": _adaptive(f"adaptive_{how}_pool{rank}d") for how in ("avg", "max") for rank in (1, 2, 3)},
    "stack": _stack,
    "std": _reduction("std"),
    "zeros": _made("zeros"),
    "ones": _made("ones"),
    "full": _made("full"),
    "fill": _made("fill"),
    "arange": _made("arange"),
    "copy": _copy,
    "embedding": _embedding,
    "_embedding_bag_forward_only": _embedding_bag,
    "index": _index,
    "_prelu_kernel": _prelu,
    "amax": _reduction("amax"),
    "norm": _reduction("norm"),
    "logsumexp": _reduction("logsumexp"),
    "var": _reduction("var"),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "any": _reduction("any"),
    "all": _reduction("all"),
    "prod": _reduction("prod"),
    "argmax": _reduction("argmax"),
    "argmin": _reduction("argmax"),
}
#: Calls that do not read what they overwrite.
