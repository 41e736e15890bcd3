# SPDX-License-Identifier: Apache-2.0
"""What a language model launches: for a prompt, and for each token after it.

The list is that of llama.cpp's graph with what it fuses: a norm with its scale, the two halves of a gated feed-forward part. A
product has the element type of its weights; what passes between launches has the runtime's. Products read their weights as they
are stored, attention reads all keys and values that are kept, and each token's are written once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..budget import Account
from ..errors import BudgetExceeded, ModelError, ShapeError
from ..kinds import flops
from ..network import KernelInvocation, Network, ParamValue, Shape, TensorSpec, numel, tensor_bytes
from ..sized import SizedTensor
from .model import LanguageModel

PREFILL, DECODE = "prefill", "decode"
_ASK = "say which phase: --prefill TOKENS, or --decode CONTEXT (as inputs prefill=TOKENS:int, decode=CONTEXT:int)"
_MOST_TOKENS = 1 << 22
_ROPE_FLOPS = 3  # for each element: of a pair, four products and two sums


def network_of(model: LanguageModel, inputs: Sequence[TensorSpec], account: Account, name: str) -> Network:
    """A model's launches in the phase that its input names.

    Args:
        model: the model.
        inputs: ``prefill=N:int``, the launches for a prompt of N tokens at once, or ``decode=N:int``, those for one token that
            sees N positions, itself among them.
        account: bounds on the list.
        name: a label.

    Raises:
        ShapeError: no phase is named, or an absurd one.
        ModelError: the weights do not fit together.
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
    """The launches of one pass over the model's blocks."""

    def __init__(self, model: LanguageModel, tokens: int, positions: int, account: Account) -> None:
        self._model, self._tokens, self._positions = model, tokens, positions
        self._account = account
        self._scope = ""
        self.calls: list[KernelInvocation] = []

    def run(self) -> None:
        model = self._model
        table = model.needed("token_embd")
        if len(table.shape) != 2 or table.shape[1] != model.width:
            raise ModelError(f"token_embd.weight has shape {list(table.shape)}; expected [tokens, {model.width}]")
        rows = (self._tokens, model.width)
        self._add("embedding", [], rows, reads=self._tokens * tensor_bytes(model.width, table.dtype), scope="token_embd")
        for number in range(model.layers):
            self._account.step()
            self._block(number)
        self._tokens = 1  # of a prompt, only the last token's result is wanted
        self._norm("output_norm")
        self._product("output", model.weight("output") or table, model.width, scope="output")

    def _block(self, number: int) -> None:
        model, block = self._model, f"blk.{number}"
        self._norm(f"{block}.attn_norm")
        q, k, v = model.heads * model.key_size, model.kv_heads * model.key_size, model.kv_heads * model.value_size
        joined = model.weight(f"{block}.attn_qkv")
        if joined is not None:
            self._product(f"{block}.attn_qkv", joined, model.width, q + k + v)
        else:
            for name, size in (("attn_q", q), ("attn_k", k), ("attn_v", v)):
                self._product(f"{block}.{name}", model.needed(f"{block}.{name}"), model.width, size)
        for name, heads in (("attn_q_norm", model.heads), ("attn_k_norm", model.kv_heads)):
            self._norm(f"{block}.{name}", (self._tokens * heads, model.key_size))
        for name, size in (("q", q), ("k", k)):
            shape = (self._tokens, size)
            self._add("rope", [shape], shape, work=_ROPE_FLOPS * numel(shape), scope=f"{block}.rope_{name}")
        for name, size in (("k", k), ("v", v)):
            shape = (self._tokens, size)
            kept = tensor_bytes(numel(shape), model.cache)
            self._add("copy", [shape], shape, dtype=model.cache, writes=kept, scope=f"{block}.cache_{name}")
        self._attention(number, block)
        self._product(f"{block}.attn_output", model.needed(f"{block}.attn_output"), model.heads * model.value_size, model.width)
        self._norm(f"{block}.post_attention_norm")
        self._sum(f"{block}.attn")
        self._norm(f"{block}.ffn_norm")
        if model.weight(f"{block}.ffn_gate_inp") is not None:
            self._mixture(block)
        else:
            self._feed_forward(block, "")
        self._norm(f"{block}.post_ffw_norm")
        self._sum(f"{block}.ffn")

    def _attention(self, number: int, block: str) -> None:
        model = self._model
        seen = looked = self._positions
        cycle = model.family.sliding
        if cycle and model.window > 0 and number % cycle < cycle - 1:
            # Of a prompt all positions are read, each by those tokens that still see it.
            seen, looked = min(seen, model.window + self._tokens - 1), min(seen, model.window)
        query = (1, model.heads, self._tokens, model.key_size)
        key, value = ((1, model.kv_heads, seen, size) for size in (model.key_size, model.value_size))
        output = (1, model.heads, self._tokens, model.value_size)
        work = flops("attention", [query, (*key[:2], looked, key[3]), (*value[:2], looked, value[3])], output, {})
        reads = tensor_bytes(numel(query), model.compute) + tensor_bytes(numel(key) + numel(value), model.cache)
        writes = tensor_bytes(numel(output), model.compute)
        inputs = [query, key, value]
        self._add("attention", inputs, output, None, work, reads=reads, writes=writes, dtype=model.cache, scope=f"{block}.attn")

    def _feed_forward(self, block: str, suffix: str) -> None:
        """A feed-forward part: gated or plain, its gate and its other half perhaps one product."""
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
            self._sum(f"{block}.ffn_shexp")

    def _experts(self, name: str, weight: SizedTensor, rows: int, k: int, n: int, experts: int) -> None:
        """One launch for all experts, each of which has some of the rows; those that have none are not read."""
        if weight.shape != (experts, n, k):
            raise ModelError(f"{name}.weight has shape {list(weight.shape)}; expected {[experts, n, k]}")
        read = min(experts, rows)
        params: dict[str, ParamValue] = {"m": rows, "k": k, "n": n, "batch": 1, "bias": False, "experts": read}
        own = tensor_bytes(n * k, weight.dtype) * read
        self._matmul(name, params, rows, k, n, weight.dtype, own)

    def _product(self, name: str, weight: SizedTensor, k: int, n: int | None = None, scope: str = "") -> None:
        n = weight.shape[0] if n is None else n
        if weight.shape != (n, k):
            raise ModelError(f"{name}.weight has shape {list(weight.shape)}; expected {[n, k]}")
        bias = self._model.weight(f"{name}.bias")
        params: dict[str, ParamValue] = {"m": self._tokens, "k": k, "n": n, "batch": 1, "bias": bias is not None}
        self._matmul(scope or name, params, self._tokens, k, n, weight.dtype, weight.nbytes + (bias.nbytes if bias else 0))

    def _matmul(self, scope: str, params: dict[str, ParamValue], m: int, k: int, n: int, dtype: str, weights: int) -> None:
        compute = self._model.compute
        reads = weights + tensor_bytes(m * k, compute)
        self._add("matmul", [(m, k)], (m, n), params, 2 * m * k * n, reads=reads, writes=tensor_bytes(m * n, compute),
                  dtype=dtype, scope=scope)  # fmt: skip

    def _norm(self, name: str, shape: Shape | None = None) -> None:
        """A norm with its scale, if the model has it there; with a bias, it is one that subtracts the mean."""
        scale, bias = self._model.weight(name), self._model.weight(f"{name}.bias")
        if scale is None:
            return
        shape = shape or (self._tokens, self._model.width)
        kind = "rms_norm" if bias is None else "layer_norm"
        params: dict[str, ParamValue] = {"normalized_shape": shape[-1:], "affine": True}
        reads = tensor_bytes(numel(shape), self._model.compute) + scale.nbytes + (bias.nbytes if bias else 0)
        self._add(kind, [shape], shape, params, flops(kind, [shape], shape, params), reads=reads, scope=name)

    def _sum(self, scope: str) -> None:
        shape = (self._tokens, self._model.width)
        self._add("add", [shape, shape], shape, work=numel(shape), scope=f"{scope}_residual")

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
