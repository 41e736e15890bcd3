# SPDX-License-Identifier: Apache-2.0
"""Quantised weights in safetensors: shapes and sizes from the headers of AWQ, GPTQ, FP8, MXFP4 and ModelOpt files.

A quantised weight is one tensor here: its logical shape, an element type of its bits, and the bytes of its scales and zero
points, which every product reads with it. Packing is as in the loaders of transformers and vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ModelError, UnsupportedOperator
from ..network import ScaledTensor, Shape, SizedTensor

#: Methods under the names of ``quantization_config``; those of ModelOpt are in ``hf_quant_config.json`` alone.
METHODS = ("awq", "compressed-tensors", "fbgemm_fp8", "fp8", "gptq", "modelopt", "mxfp4")
_BY_BITS = {4: "int4", 8: "int8"}
_PACKED = ("qweight", "weight_packed")
_READ_WITH = ("weight_scale", "weight_scale_inv", "weight_zero_point", "scales", "qzeros", "scale")
_NOT_READ = (
    "input_scale", "activation_scale", "g_idx", "weight_g_idx", "weight_shape", "weight_scale_2", "weight_global_scale",
    "input_global_scale", "k_scale", "v_scale", "output_scale", "pre_quant_scale",
)  # fmt: skip


def check_method(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The quantisation of a configuration; empty if it names none. Raises UnsupportedOperator."""
    found = config.get("quantization_config") or config.get("quantization") or {}
    if not isinstance(found, dict):
        raise ModelError(f"config.json: quantization_config is {found!r:.60}; expected an object")
    method = found.get("quant_method", "mlx" if "quantization" in config else "")
    if found and method not in METHODS:
        loaded = method or next((key for key in found if key.startswith("load_in_")), "an unnamed method")
        raise UnsupportedOperator(
            f"config.json: weights quantised by {loaded!r:.40} have no rules; valid: {', '.join(METHODS)}; or give a GGUF file"
        )
    return found


def stored_weights(tensors: Mapping[str, SizedTensor], quantisation: Mapping[str, Any]) -> dict[str, SizedTensor]:
    """The weights of a model by name, without ``.weight``: each quantised one with its logical shape.

    Raises UnsupportedOperator for a number of bits without rules, or ModelError.
    """
    kept: dict[str, SizedTensor] = {}
    for name, tensor in tensors.items():
        base, _, leaf = name.rpartition(".")
        if leaf in _NOT_READ or (leaf in _READ_WITH and any(f"{base}.{own}" in tensors for own in ("weight", *_PACKED))):
            continue
        if name.endswith("_blocks") and f"{name.removesuffix('_blocks')}_scales" in tensors and len(tensor.shape) >= 2:
            kept[name.removesuffix("_blocks")] = SizedTensor((*tensor.shape[:-2], tensor.shape[-2] * 32), "mxfp4")
        elif name.endswith("_scales") and f"{name.removesuffix('_scales')}_blocks" in tensors:
            continue
        elif leaf in _PACKED or (leaf == "weight" and tensor.dtype == "uint8"):
            kept[base] = _unpacked(base, leaf, tensor, tensors, quantisation)
        elif leaf == "weight":
            kept[base] = ScaledTensor(tensor.shape, tensor.dtype, extra) if (extra := _scale_bytes(base, tensors)) else tensor
        else:
            kept[name] = tensor
    return kept


def _unpacked(
    base: str, leaf: str, tensor: SizedTensor, tensors: Mapping[str, SizedTensor], quantisation: Mapping[str, Any]
) -> SizedTensor:
    scales = next((tensors[name] for end in ("scales", "weight_scale") if (name := f"{base}.{end}") in tensors), None)
    if scales is None or not scales.shape or len(tensor.shape) != 2:
        raise ModelError(f"{base}.{leaf} is packed, and has no scales of its own: quantised by a method without rules")
    rows, columns = tensor.shape
    if tensor.dtype == "uint8":  # NVFP4: two elements a byte, a scale of 8 bits for every 16
        return SizedTensor((rows, 2 * columns), "nvfp4")
    extra = _scale_bytes(base, tensors)
    if leaf == "qweight" and scales.shape[-1] != columns:  # AWQ packs outputs
        return _of_bits(base, (scales.shape[-1], rows), 32 * columns / scales.shape[-1], extra)
    bits = _bits(quantisation)
    if leaf == "qweight":  # GPTQ packs inputs
        order = tensors.get(f"{base}.g_idx")
        inputs = order.shape[0] if order is not None and order.shape else 32 * rows // bits
        return _of_bits(base, (columns, inputs), 32 * rows / inputs, extra)
    return _of_bits(base, (rows, 32 * columns // bits), bits, extra)


def _of_bits(base: str, shape: Shape, bits: float, extra: int) -> SizedTensor:
    dtype = _BY_BITS.get(int(bits)) if bits == int(bits) else None
    if dtype is None:
        raise UnsupportedOperator(f"{base}: weights of {bits:.3g} bits have no rules; valid: 4, 8")
    return ScaledTensor(shape, dtype, extra)


def _bits(quantisation: Mapping[str, Any]) -> int:
    groups = quantisation.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    bits = quantisation.get("bits", weights.get("num_bits") if isinstance(weights, dict) else 4)
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 8:
        raise UnsupportedOperator(f"config.json: weights of {bits!r:.20} bits have no rules; valid: 4, 8")
    return bits


def _scale_bytes(base: str, tensors: Mapping[str, SizedTensor]) -> int:
    return sum(tensors[name].nbytes for end in _READ_WITH if (name := f"{base}.{end}") in tensors)
