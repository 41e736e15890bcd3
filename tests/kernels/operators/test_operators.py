# SPDX-License-Identifier: Apache-2.0
"""Single operators of ATen, traced, held against PyTorch's dispatcher."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.inputs import parse_input

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of decomposition; it is not installed")

from torch import nn  # noqa: E402

from jetdvfs.tests.support.models import oracle  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

ONE = """
frac exp2 log1p log2 erf erfc erfinv lgamma digamma reciprocal square sin cos tan asin acos atan sinh cosh asinh acosh
atanh deg2rad rad2deg logit sgn nan_to_num sinc abs neg rsqrt sign floor ceil round trunc exp log sqrt sigmoid tanh relu
isnan isinf isfinite isneginf isposinf signbit nansum median t conj angle fix positive logical_not any all min max mean
sum std var prod norm argmax argmin flatten ravel diag diagonal tril triu trace fliplr flipud clone contiguous
"""
TWO = """
maximum minimum fmax fmin atan2 hypot fmod remainder pow floor_divide true_divide logaddexp logaddexp2 xlogy copysign
dist heaviside float_power logical_and logical_or logical_xor eq ne lt le gt ge add sub mul div matmul mm inner
nextafter polar ldexp
"""
EXPRESSIONS = """
F.cosine_similarity(x, y)
F.pairwise_distance(x, y)
F.bilinear(x, y, torch.zeros(3, 4, 4, device=x.device))
F.rrelu(x)
torch.cdist(x, y)
torch.linalg.norm(x, dim=1, keepdim=True)
torch.linalg.vector_norm(x, dim=1)
x.norm(p=1)
torch.norm(x, dim=1)
x.cumprod(1)
torch.logcumsumexp(x, 1)
torch.logsumexp(x, 1)
torch.cummax(x, 1)[0]
torch.sort(x, 1)[0]
x.argsort(1) + 1
torch.kthvalue(x, 2, 1)[0]
x.median(1)[0]
x.mode(1)[0]
x.index_add(1, i[0], y)
x.index_fill(1, i[0], 0.0)
x.index_copy(1, i[0], y)
x.scatter(1, i, y)
x.scatter_add(1, i, y)
x.scatter(1, i, 1.0)
torch.take(x, i)
torch.diag_embed(x)
torch.diag(x[0])
torch.outer(x[0], y[0])
x[0].dot(y[0])
torch.cross(x[:3], y[:3], dim=0)
torch.addmv(x[0], x, y[0])
torch.addbmm(x, x[None], y[None])
torch.addmm(x, x, y)
torch.linalg.multi_dot([x, y, x])
torch.addr(x, x[0], y[0])
torch.var_mean(x, 1)
torch.std_mean(x, 1)
torch.aminmax(x, dim=1)
x.max(1)[0]
torch.count_nonzero(x, 1)
x.nansum(1)
torch.clamp(x, min=y, max=x)
x.clamp_max(6)
x.clamp_min(6)
x.clamp(max=6)
torch.lerp(x, y, 0.5)
torch.lerp(x, y, x)
torch.addcdiv(x, x, y)
torch.sub(x, y, alpha=2)
torch.div(x, y, rounding_mode='trunc')
x.mv(y[0])
torch.hstack([x, y])
torch.vstack([x, y])
torch.dstack([x, y])
torch.column_stack([x, y])
torch.block_diag(x, y)
torch.broadcast_tensors(x, y[0])[1] + 1
torch.hsplit(x, 2)[0] + torch.vsplit(x, 2)[0].T
x.rot90()
torch.atleast_3d(x) + 1
x.tile((1, 2))
x.repeat_interleave(2, dim=0)
x.view_as(y) + x.reshape_as(y) + x.expand_as(y)
x.unflatten(0, (2, -1)) + 1
x[None].squeeze((0,)) + x.squeeze()
torch.full((2, 2), 3.0, device=x.device) + torch.full_like(x, 1.0)[:2, :2]
torch.logspace(0, 1, 5, device=x.device)
torch.linspace(0, 1, 5, device=x.device)
torch.tril_indices(3, 3, device=x.device)
torch.randint(0, 5, (3,), device=x.device)
[x.half().float(), x.to(torch.float64).to(x), x.type_as(x.half())]
[x.int() + 1, x.long().float(), x.bool().int()]
[x.double().float(), x.bfloat16().float(), x.byte(), x.short(), x.char()]
F.mse_loss(x, y)
F.smooth_l1_loss(x, y)
F.huber_loss(x, y)
torch.searchsorted(x, y)
torch.bucketize(x, y[0])
torch.topk(x, 2)[0]
torch.fft.irfft2(torch.fft.rfft2(x))
torch.fft.rfft(x, n=6).real
torch.fft.rfft(x, n=3, dim=0)
torch.fft.rfftn(x, dim=(0, 1)).imag
torch.fft.irfft(torch.fft.rfft(x, dim=0), dim=0)
torch.fft.irfftn(torch.fft.rfftn(x, s=(5, 3)), s=(4, 6))
torch.fft.fft(torch.fft.fft(x), n=6, dim=-2).real
torch.fft.ifft2(torch.fft.fft2(x)).abs()
torch.fft.fftn(x, s=(3, 5)).abs()
torch.fft.fftshift(x)
torch.complex(x, y).imag
torch.diff(x, dim=0, n=2)
x.clone().tril_(-1)
torch.view_as_real(torch.view_as_complex(x.view(4, 2, 2)) * 2)
F.layer_norm(x, [4])
F.rms_norm(x, [4], x[0])
F.one_hot(i, 7)
F.group_norm(x[None], 2)
F.group_norm(x[None].transpose(1, 2), 2)
x[:, None].expand(4, 3, 4) + 1
x.as_strided((2, 2), (1, 2)) + 1
x.unfold(0, 2, 1) + 1
x.movedim(0, 1) + torch.permute(x, (1, 0)) + torch.moveaxis(x, 0, 1)
F.pad(x[None], (1, 1), mode='circular')
F.pad(x[None], (1, 1), mode='replicate') + F.pad(x[None], (1, 1), mode='reflect')
torch.renorm(x, 2, 0, 1.0)
torch.einsum('...e,ed->...d', x[None], y)
torch.einsum('...ij,jk->ik...', x[None], y)
torch.einsum('i...,...j->ij', x, y)
torch.einsum('...i->i', x[None])
torch.einsum('ii->i', x)
torch.einsum('bii,ij->bj', x[None], y)
torch.einsum('ij,jk->ki', x[:2], y[:, :3]).reshape(-1)
torch.einsum('bts,bct->bcs', x[None], y[None, :3]).reshape(1, -1)
torch.einsum('fts,bhfs->bhts', x[None].transpose(0, 1), y[None, None].expand(1, 3, 4, 4))
F.conv2d(x[None, None], y[None, None], padding='same')
F.conv1d(x[None], y[..., None].expand(4, 4, 2), padding='same', dilation=3)
F.embedding_bag(i, x, mode='mean')
F.embedding_bag(i[0], x, i[1], include_last_offset=True)
F.embedding_bag(i, x, per_sample_weights=y, mode='sum')
torch._weight_norm(x, y[:, :1], 0)
torch.stft(x, 4, 1, window=x[0], return_complex=True).abs()
torch.stft(x[0], 4, 2, 3, window=x[0, :3], return_complex=True, center=False, onesided=False).angle()
torch.istft(torch.stft(x, 4, 2, window=x[0], return_complex=True), 4, 2, window=x[0])
torch.istft(torch.stft(x[0], 4, 1, 3, window=x[0, :3], normalized=True, return_complex=True), 4, 1, 3, x[0, :3], length=5)
torch.istft(torch.stft(x, 4, 1, return_complex=True), 4, 1, center=False, length=9)
torch.ops.aten.max_unpool2d(x[None], i[None], [8, 8])
F.softmax(x, -1, dtype=torch.float64)
F.l1_loss(x, y)
torch.diff(x, prepend=x[:, :1])
torch.diff(x, 2, 0, prepend=x[:1], append=y[:2])
torch.diff(x > 0, append=(y > 0)[:, :1])
torch.cdist(x.repeat(8, 1), y)
torch.cdist(x.repeat(1, 8).t(), y.t())
torch.zeros_like(x.t()).contiguous()
torch.full_like(x.t(), 2.0).contiguous()
torch.ones_like(x.t(), memory_format=torch.contiguous_format).contiguous()
torch.cdist(x.repeat(8, 1), y, p=1.0)
torch.cdist(x[None].expand(2, 4, 4).repeat(1, 8, 1), y[None])
torch.cdist(x, y, compute_mode='use_mm_for_euclid_dist')
x.repeat_interleave(3) + y.repeat_interleave(3, 0).flatten()
x.to(torch.float32, copy=True)
x.to(torch.float64, copy=True)
F.grid_sample(x[None, None, None].expand(1, 2, 3, 4, 4), y[None, None, :, :, None].expand(1, 2, 4, 4, 3))
F.affine_grid(x[None, :2, :3], [1, 3, 8, 8])
F.grid_sample(x[None, None], F.affine_grid(x[None, :2, :3], [1, 1, 8, 8]))
torch.linalg.inv(x.tril())
torch.linalg.solve(x.tril(), y)
torch.histc(x, 4, 0, 1)
torch.hann_window(8, device=x.device) + torch.hamming_window(8, device=x.device)
F.local_response_norm(x[None, None], 2)
torch.scatter_reduce(x, 0, i, y, 'amax')
x.index_reduce(0, i[0], y, 'amin')
torch.multinomial(x, 3)
F.interpolate(x[None, None], (2, 2), mode='bicubic', antialias=True)
F.pixel_unshuffle(x[None, None], 2)
torch.std(x, unbiased=False) + torch.var(x, correction=0)
F.unfold(x[None, None], 3).sum() + F.fold(x[None].expand(9, 4, 4).reshape(1, 9, 16), (6, 6), 3)
F.normalize(x) + F.normalize(x, p=1.0)
F.scaled_dot_product_attention(x[None], y[None], y[None], scale=0.3)
x.bitwise_not() if x.dtype == torch.int64 else i.bitwise_xor(1).float()
torch.rand_like(x) + torch.randn_like(x) + torch.randn(4, 4, device=x.device)
x.swapaxes(0, 1) + x.swapdims(0, 1) + x.adjoint() + x.mH
"""


# From 2.14 on, PyTorch norms groups as they lie; the releases that boards have copy them first, and so does the list.
NORMS_AS_THEY_LIE = torch.__version__ >= "2.14"
OTHERWISE_NOW = ["F.group_norm(x[None].transpose(1, 2), 2)"] if NORMS_AS_THEY_LIE else []


class Traced(nn.Module):
    """Evaluates expressions over two matrices ``x`` and ``y`` and a matrix of indices ``i``."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__()
        self.codes = [compile(text, text, "eval") for text in texts]

    def forward(self, x: Any, y: Any, i: Any) -> list[Any]:
        names = {"torch": torch, "F": torch.nn.functional, "x": x, "y": y, "i": i}
        made = [eval(code, names) for code in self.codes]
        flat = [item for value in made for item in (value if isinstance(value, (list, tuple)) else [value])]
        # Views are followed too, by an operator that shows their shape.
        return [item + 1 if item.dtype.is_floating_point else item for item in flat]


def batches() -> list[list[str]]:
    texts = [f"x.{name}()" if hasattr(torch.Tensor, name) else f"torch.{name}(x)" for name in ONE.split()]
    texts += [f"torch.{name}(x, y)" for name in TWO.split()]
    texts += [text for text in EXPRESSIONS.strip().splitlines() if text not in OTHERWISE_NOW]
    return [texts[start : start + 16] for start in range(0, len(texts), 16)]


@pytest.mark.parametrize("texts", batches(), ids=lambda texts: texts[0])
def test_operators_are_what_pytorch_dispatches(texts: list[str]) -> None:
    inputs = [parse_input(text) for text in ("4x4", "4x4", "4x4:int64")]
    example = [torch.ones(4, 4), torch.ones(4, 4), torch.zeros(4, 4, dtype=torch.long)]
    module = Traced(texts)
    ours = decompose(oracle.archive_of(module, "trace", example), inputs)
    theirs = oracle.network_of(module, inputs)
    shown = [[msgspec.structs.replace(launch, scope="") for launch in network.launches] for network in (ours, theirs)]
    assert shown[0] == shown[1]


def traced(forward: Any) -> list[tuple[str, tuple[Any, ...]]]:
    example = torch.ones(4, 4)
    network = decompose(oracle.archive_of(torch.jit.trace(forward, example), "script"), [parse_input("4x4")])
    return [(launch.kind, launch.inputs) for launch in network.launches]


def test_where_a_traced_size_says_how_often_rows_repeat_they_are_picked_by_number() -> None:
    assert traced(lambda x: x[:1].repeat_interleave(x.shape[0], 0)) == [("index_select", ((1, 4), (4,)))]


def test_a_constant_without_dimensions_is_a_number_to_where_as_to_any_operator() -> None:
    assert traced(lambda x: torch.where(x > 0, torch.tensor(0.0), -1.0))[-1] == ("where", ((4, 4),))
    assert traced(lambda x: x + torch.tensor(2.0)) == [("add_scalar", ((4, 4),))]
