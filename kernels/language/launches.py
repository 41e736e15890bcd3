# SPDX-License-Identifier: Apache-2.0
"""Launches of a language model: for a prompt, and for each token after it.

The list is that of llama.cpp's graph with its fusions: a norm with its scale, the two halves of a gated feed-forward part. A
product has the element type of its weights, all other launches that of the runtime.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..budget import Account
from ..errors import BudgetExceeded, ModelError, ShapeError
from ..kinds import flops
from ..network import KernelInvocation, Network, ParamValue, Shape, SizedTensor, TensorSpec, numel, tensor_bytes
from .model import Block, LanguageModel

PREFILL, DECODE = "prefill", "decode"
_ASK = "say which phase: --prefill TOKENS, or --decode CONTEXT (as inputs prefill=TOKENS:int, decode=CONTEXT:int)"
_MOST_TOKENS = 1 << 22
_ROPE_FLOPS = 3  # for each element: of a pair, four products and two sums


def network_of(model: LanguageModel, inputs: Sequence[TensorSpec], account: Account, name: str) -> Network:
    """A model's launches for a prompt (``prefill=N:int``), or for one token that sees N positions (``decode=N:int``).

    Raises ModelError, or ShapeError without a valid phase.
    """
    if len(inputs) != 1 or inputs[0].name not in (PREFILL, DECODE) or inputs[0].dtype != "int" or not inputs[0].value:
        raise ShapeError(f"a language model takes tokens, not {', '.join(map(str, inputs)) or 'nothing'}; {_ASK}")
    count = inputs[0].value[0]
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= _MOST_TOKENS:
        raise ShapeError(f"{inputs[0].name} of {count!r:.40} tokens; expected 1 to {_MOST_TOKENS}")
    tokens = count if inputs[0].name == PREFILL else 1
    work = _Pass(model, tokens, count, account)
    work.run()
    return Network(name, tuple(inputs), tuple(work.calls), runtime=model.runtime)


class _Pass:
    def __init__(self, model: LanguageModel, tokens: int, positions: int, account: Account) -> None:
        self._model, self._tokens, self._positions = model, tokens, positions
        self._account = account
        self.calls: list[KernelInvocation] = []

    def run(self) -> None:
        model = self._model
        table = model.needed("token_embd")
        if len(table.shape) != 2 or table.shape[1] != model.width:
            raise ModelError(f"token_embd.weight has shape {list(table.shape)}; expected [tokens, {model.width}]")
        self._embedding("token_embd", table)
        if model.family.scales_embedding or "embedding" in model.scaled:
            self._scale("token_embd", model.width)
        self._per_layer_inputs()
        for number, block in enumerate(model.blocks):
            self._account.step()
            self._block(f"blk.{number}", block)
        self._tokens = 1  # only the result of a prompt's last token is computed
        self._norm("output_norm" if model.weight("output_norm") else "token_embd_norm")
        head = model.weight("output") or table
        self._product("output", head, model.width)
        if "logits" in model.scaled:
            self._scale("output", head.shape[0])
        if model.softcap:
            for kind in ("mul_scalar", "tanh", "mul_scalar"):
                self._pointwise(kind, (1, head.shape[0]), "output_softcap")

    def _embedding(self, name: str, table: SizedTensor) -> None:
        size = table.shape[-1]
        self._add("embedding", [], (self._tokens, size), reads=self._tokens * tensor_bytes(size, table.dtype), scope=name)

    def _per_layer_inputs(self) -> None:
        """Inputs of each block by token, from a table and from the embedding (Gemma 3n and 4)."""
        model = self._model
        table = model.weight("per_layer_token_embd")
        if table is None:
            return
        whole, size = table.shape[-1], model.needed("per_layer_proj_norm").shape[-1]
        self._embedding("per_layer_token_embd", table)
        self._scale("per_layer_token_embd", whole)
        self._product("per_layer_model_proj", model.needed("per_layer_model_proj"), model.width, whole)
        self._scale("per_layer_model_proj", whole)
        self._norm("per_layer_proj_norm", (self._tokens * whole // size, size))
        self._sum("per_layer_inputs", whole)
        self._scale("per_layer_inputs", whole)

    def _block(self, name: str, block: Block) -> None:
        model = self._model
        self._norm(f"{name}.attn_norm")
        if model.weight(f"{name}.shortconv.in_proj") is not None:
            self._short_convolution(name)
        else:
            block.check()
            self._attention(name, block)
        self._norm(f"{name}.post_attention_norm")
        self._residual(f"{name}.attn")
        routed = model.weight(f"{name}.ffn_gate_inp") is not None
        self._norm(f"{name}.ffn_norm")
        if not routed or model.weight(f"{name}.ffn_up") is not None:
            self._feed_forward(name, "")
            self._norm(f"{name}.post_ffw_norm_1")
            self._norm(f"{name}.pre_ffw_norm_2")
        if routed:
            self._mixture(name)
            self._norm(f"{name}.post_ffw_norm_2")
            if model.weight(f"{name}.ffn_up") is not None:
                self._sum(f"{name}.ffn_exps")
        self._norm(f"{name}.post_ffw_norm")
        self._residual(f"{name}.ffn")
        gate = model.weight(f"{name}.inp_gate")
        if gate is not None:
            self._product(f"{name}.inp_gate", gate, model.width)
            self._activation(name, "_per_layer", self._tokens, gate.shape[0], gated=True)
            self._product(f"{name}.proj", model.needed(f"{name}.proj"), gate.shape[0], model.width)
            self._norm(f"{name}.post_norm")
            self._sum(f"{name}.per_layer")
        if model.weight(f"{name}.layer_output_scale") is not None:
            self._scale(f"{name}.layer_output", model.width)

    def _short_convolution(self, name: str) -> None:
        """A gated causal convolution over the last few tokens of each channel (LFM2)."""
        model, width = self._model, self._model.width
        kernel = model.needed(f"{name}.shortconv.conv")
        taps = kernel.shape[-1]
        if numel(kernel.shape) != width * taps:
            raise ModelError(f"{name}.shortconv.conv.weight has shape {list(kernel.shape)}; expected [{width}, taps]")
        scope = f"{name}.shortconv"
        self._product(f"{scope}.in_proj", model.needed(f"{scope}.in_proj"), width, 3 * width)
        self._pointwise("mul", (self._tokens, width), scope, 2)
        state, joined = (1, width, taps - 1), (1, width, self._tokens + taps - 1)
        self._add("cat", [state, (1, width, self._tokens)], joined, {"dim": 2}, scope=scope)
        self._add("copy", [state], state, scope=f"{scope}.state")
        params: dict[str, ParamValue] = {
            "weight": (width, 1, taps), "bias": False, "stride": (1,), "padding": (0,), "dilation": (1,), "groups": width,
        }  # fmt: skip
        output = (1, width, self._tokens)
        reads = tensor_bytes(numel(joined), model.compute) + kernel.nbytes
        self._add(
            "conv1d", [joined], output, params, flops("conv1d", [joined], output, params), reads=reads, scope=f"{scope}.conv"
        )
        self._pointwise("mul", (self._tokens, width), scope, 2)
        self._product(f"{scope}.out_proj", model.needed(f"{scope}.out_proj"), width, width)

    def _attention(self, name: str, block: Block) -> None:
        model = self._model
        q, k, v = block.heads * block.key_size, block.kv_heads * block.key_size, block.kv_heads * block.value_size
        joined = model.weight(f"{name}.attn_qkv")
        if joined is not None:
            self._product(f"{name}.attn_qkv", joined, model.width, q + k + v)
        else:
            self._product(f"{name}.attn_q", model.needed(f"{name}.attn_q"), model.width, q)
            if not block.shares_cache:
                self._product(f"{name}.attn_k", model.needed(f"{name}.attn_k"), model.width, k)
                values = model.weight(f"{name}.attn_v")
                if values is not None or not model.family.normalizes_values:  # else values are the keys before their norm
                    self._product(f"{name}.attn_v", values or model.needed(f"{name}.attn_v"), model.width, v)
        own = [("q", block.heads, q)] + [("k", block.kv_heads, k)] * (not block.shares_cache)
        for part, heads, size in own:
            scale = model.weight(f"{name}.attn_{part}_norm")
            whole = scale is not None and scale.shape == (size,)  # one norm over all heads (OLMo 2)
            self._norm(f"{name}.attn_{part}_norm", (self._tokens, size) if whole else (self._tokens * heads, block.key_size))
        if model.family.normalizes_values and not block.shares_cache:
            self._plain_norm(f"{name}.attn_v", (self._tokens * block.kv_heads, block.value_size))
        for part, _, size in own if block.rope else []:
            shape = (self._tokens, size)
            self._add("rope", [shape], shape, work=_ROPE_FLOPS * numel(shape), scope=f"{name}.rope_{part}")
        for part, size in () if block.shares_cache else (("k", k), ("v", v)):
            shape = (self._tokens, size)
            kept = tensor_bytes(numel(shape), model.cache)
            self._add("copy", [shape], shape, dtype=model.cache, writes=kept, scope=f"{name}.cache_{part}")
        self._scores(name, block)
        self._product(f"{name}.attn_output", model.needed(f"{name}.attn_output"), block.heads * block.value_size, model.width)

    def _scores(self, name: str, block: Block) -> None:
        model = self._model
        seen = looked = self._positions
        if block.window:
            # All positions of a prompt are read, each by the tokens that still see it.
            seen, looked = min(seen, block.window + self._tokens - 1), min(seen, block.window)
        query = (1, block.heads, self._tokens, block.key_size)
        key, value = ((1, block.kv_heads, seen, size) for size in (block.key_size, block.value_size))
        output = (1, block.heads, self._tokens, block.value_size)
        work = flops("attention", [query, (*key[:2], looked, key[3]), (*value[:2], looked, value[3])], output, {})
        reads = tensor_bytes(numel(query), model.compute) + tensor_bytes(numel(key) + numel(value), model.cache)
        writes = tensor_bytes(numel(output), model.compute)
        inputs = [query, key, value]
        self._add("attention", inputs, output, None, work, reads=reads, writes=writes, dtype=model.cache, scope=f"{name}.attn")

    def _feed_forward(self, block: str, suffix: str) -> None:
        model = self._model
        up = model.needed(f"{block}.ffn_up{suffix}")
        down = model.needed(f"{block}.ffn_down{suffix}")
        gate = model.weight(f"{block}.ffn_gate{suffix}")
        wide, inner = up.shape[0], down.shape[-1]
        for name, weight in (("ffn_gate", gate), ("ffn_up", up)):
            if weight is not None:
                self._product(f"{block}.{name}{suffix}", weight, model.width)
        gated = gate is not None or wide == 2 * inner
        if (not gated and wide != inner) or (gate is not None and not gate.shape[0] == wide == inner):
            raise ModelError(f"{block}: ffn_up{suffix} makes {wide} where ffn_down{suffix} takes {inner}")
        self._activation(block, suffix, self._tokens, inner, gated)
        self._product(f"{block}.ffn_down{suffix}", down, inner, model.width)

    def _activation(self, block: str, suffix: str, rows: int, inner: int, gated: bool) -> None:
        kind, shape = self._model.family.activation, (rows, inner)
        work = flops(kind, [shape], shape, {})
        if not gated:
            self._add(kind, [shape], shape, work=work, scope=f"{block}.ffn{suffix}")
            return
        params: dict[str, ParamValue] = {"kinds": f"{kind}+mul", "outputs": 1}
        self._add("fused_pointwise", [shape, shape], shape, params, work + numel(shape), scope=f"{block}.ffn{suffix}")

    def _mixture(self, block: str) -> None:
        """A mixture of experts: a router, the experts that each token takes, and perhaps one that all take."""
        model = self._model
        router = model.needed(f"{block}.ffn_gate_inp")
        if model.weight(f"{block}.ffn_gate_inp.scale") is not None:  # a router with a norm and a scale of its own (Gemma 4)
            self._plain_norm(f"{block}.router", (self._tokens, model.width))
            self._scale(f"{block}.router", model.width)
            self._pointwise("mul", (self._tokens, model.width), f"{block}.router", 2)
        experts, used = router.shape[0], model.experts_used
        if not 0 < used <= experts:
            raise ModelError(f"{block}: {used} of {experts} experts for each token")
        self._product(f"{block}.ffn_gate_inp", router, model.width)
        choice = (self._tokens, experts)
        self._add("softmax", [choice], choice, work=flops("softmax", [choice], choice, {}), scope=f"{block}.router")
        self._add("topk", [choice], (self._tokens, used), scope=f"{block}.router")
        down = model.needed(f"{block}.ffn_down_exps")
        rows, inner = self._tokens * used, down.shape[-1]
        joined = model.weight(f"{block}.ffn_gate_up_exps")
        if joined is not None:
            self._experts(f"{block}.ffn_gate_up_exps", joined, rows, model.width, 2 * inner, experts)
        else:
            for name in ("ffn_gate_exps", "ffn_up_exps"):
                self._experts(f"{block}.{name}", model.needed(f"{block}.{name}"), rows, model.width, inner, experts)
        self._activation(block, "_exps", rows, inner, gated=True)
        self._experts(f"{block}.ffn_down_exps", down, rows, inner, model.width, experts)
        shape: Shape = (self._tokens, model.width)
        params: dict[str, ParamValue] = {"kinds": "mul+sum", "outputs": 1}
        self._add("fused_reduction", [(rows, model.width)], shape, params, 2 * rows * model.width, scope=f"{block}.ffn_exps")
        if model.weight(f"{block}.ffn_up_shexp") is not None:
            self._feed_forward(block, "_shexp")
            self._sum(f"{block}.ffn_shexp_residual")

    def _experts(self, name: str, weight: SizedTensor, rows: int, k: int, n: int, experts: int) -> None:
        """One launch for all experts, each of which has some of the rows; experts without rows are not read."""
        if weight.shape != (experts, n, k):
            raise ModelError(f"{name}.weight has shape {list(weight.shape)}; expected {[experts, n, k]}")
        read = min(experts, rows)
        bias = self._model.weight(f"{name}.bias")
        params: dict[str, ParamValue] = {"m": rows, "k": k, "n": n, "batch": 1, "bias": bias is not None, "experts": read}
        own = (weight.nbytes + (bias.nbytes if bias else 0)) * read // experts
        self._matmul(name, params, rows, k, n, weight.dtype, own)

    def _product(self, name: str, weight: SizedTensor, k: int, n: int | None = None) -> None:
        n = weight.shape[0] if n is None else n
        if weight.shape != (n, k):
            raise ModelError(f"{name}.weight has shape {list(weight.shape)}; expected {[n, k]}")
        bias = self._model.weight(f"{name}.bias")
        params: dict[str, ParamValue] = {"m": self._tokens, "k": k, "n": n, "batch": 1, "bias": bias is not None}
        self._matmul(name, params, self._tokens, k, n, weight.dtype, weight.nbytes + (bias.nbytes if bias else 0))
        if self._model.weights.get(f"{name}.scale") is not None and self._model.runtime == "llama.cpp":
            self._scale(name, n)

    def _matmul(self, scope: str, params: dict[str, ParamValue], m: int, k: int, n: int, dtype: str, weights: int) -> None:
        compute = self._model.compute
        reads = weights + tensor_bytes(m * k, compute)
        self._add("matmul", [(m, k)], (m, n), params, 2 * m * k * n, reads=reads, writes=tensor_bytes(m * n, compute),
                  dtype=dtype, scope=scope)  # fmt: skip

    def _norm(self, name: str, shape: Shape | None = None) -> None:
        scale, bias = self._model.weight(name), self._model.weight(f"{name}.bias")
        if scale is None:
            return
        shape = shape or (self._tokens, self._model.width)
        kind = "rms_norm" if bias is None else "layer_norm"
        params: dict[str, ParamValue] = {"normalized_shape": shape[-1:], "affine": True}
        reads = tensor_bytes(numel(shape), self._model.compute) + scale.nbytes + (bias.nbytes if bias else 0)
        self._add(kind, [shape], shape, params, flops(kind, [shape], shape, params), reads=reads, scope=name)

    def _plain_norm(self, scope: str, shape: Shape) -> None:
        params: dict[str, ParamValue] = {"normalized_shape": shape[-1:], "affine": False}
        self._add("rms_norm", [shape], shape, params, flops("rms_norm", [shape], shape, params), scope=scope)

    def _residual(self, scope: str) -> None:
        if "residual" in self._model.scaled:
            self._scale(scope, self._model.width)
        self._sum(f"{scope}_residual")

    def _sum(self, scope: str, size: int | None = None) -> None:
        self._pointwise("add", (self._tokens, size or self._model.width), scope, 2)

    def _scale(self, scope: str, size: int) -> None:
        self._pointwise("mul_scalar", (self._tokens, size), f"{scope}_scale")

    def _pointwise(self, kind: str, shape: Shape, scope: str, operands: int = 1) -> None:
        self._add(kind, [shape] * operands, shape, work=numel(shape), scope=scope)

    def _add(
        self,
        kind: str,
        inputs: Sequence[Shape],
        output: Shape,
        params: dict[str, ParamValue] | None = None,
        work: int = 0,
        *,
        reads: int | None = None,
        writes: int | None = None,
        dtype: str = "",
        scope: str,
    ) -> None:
        compute = self._model.compute
        if len(self.calls) >= self._account.budget.calls:
            raise BudgetExceeded(f"the model launches more than {self._account.budget.calls} kernels")
        largest = max(map(numel, (*inputs, output)))
        if largest > self._account.budget.elements or work >= 1 << 62:
            raise BudgetExceeded(
                f"{scope} would work on {largest} elements; at most {self._account.budget.elements} are followed"
            )
        moved = sum(tensor_bytes(numel(shape), compute) for shape in inputs) if reads is None else reads
        moved += tensor_bytes(numel(output), compute) if writes is None else writes
        call = KernelInvocation(kind, scope, tuple(inputs), output, dtype or compute, params or {}, work, moved)
        self.calls.append(call)
