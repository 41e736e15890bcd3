# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms and complex numbers (ATen's ``SpectralOps.cpp``): one launch, cut or padded before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError, UnsupportedOperator
from ...network import numel
from .. import pointwise
from ..elementwise import launch_pointwise, unary
from ..layout import dim_of, show, view_of
from ..memory import views
from ..memory.indexing import cat, constant_pad
from ..recorder import Recorder
from ..reduction import reduce
from ..registry import operator
from ..values import Tensor

_REAL_OF = {"complex64": "float32", "complex128": "float64"}


def _complex_of(dtype: str) -> str:
    return dtype if dtype in _REAL_OF else "complex128" if dtype == "float64" else "complex64"


def _places(x: Tensor, s: Any, dim: Any) -> tuple[list[int], list[int]]:
    sizes = [] if s is None else [s] if isinstance(s, int) else list(s)
    if dim is None:
        dim = list(range(x.rank - len(sizes), x.rank)) if sizes else list(range(x.rank))
    places = [dim_of(x.rank, place) for place in ([dim] if isinstance(dim, int) else dim)]
    sizes = sizes or [-1] * len(places)
    if not places or len(set(places)) != len(places) or len(sizes) != len(places):
        raise ShapeError(f"a Fourier transform of shape {show(x.shape)} along {places[:8]} to the sizes {sizes[:8]}")
    return places, sizes


def _fitted(recorder: Recorder, x: Tensor, places: Sequence[int], sizes: Sequence[int]) -> Tensor:
    padding = [0] * (2 * x.rank)
    shape = list(x.shape)
    for place, size in zip(places, sizes, strict=True):
        if 0 <= size < x.shape[place]:
            shape[place] = size
        elif size > x.shape[place]:
            padding[2 * (x.rank - 1 - place) + 1] = size - x.shape[place]
    if tuple(shape) != x.shape:
        x = view_of(recorder, x, shape, x.strides, "slice")
    return constant_pad(recorder, x, padding) if any(padding) else x


def _real_to_complex(name: str, dim: Any) -> None:
    @operator(name)
    def rule(recorder: Recorder, self: Tensor, s: Any = None, dim: Any = dim, norm: str | None = None) -> Tensor:
        places, sizes = _places(self, s, dim)
        x = _fitted(recorder, self, places, sizes)
        shape = list(x.shape)
        shape[places[-1]] = shape[places[-1]] // 2 + 1
        return recorder.launch("_fft_r2c", [x], recorder.tensor(shape, _complex_of(x.dtype)))


def _complex_to_real(name: str, dim: Any) -> None:
    @operator(name)
    def rule(recorder: Recorder, self: Tensor, s: Any = None, dim: Any = dim, norm: str | None = None) -> Tensor:
        x = _as_complex(recorder, self)
        places, sizes = _places(x, s, dim)
        length = sizes[-1] if sizes[-1] >= 0 else 2 * (x.shape[places[-1]] - 1)
        x = _fitted(recorder, x, places, [*sizes[:-1], length // 2 + 1])
        shape = list(x.shape)
        shape[places[-1]] = length
        return recorder.launch("_fft_c2r", [x], recorder.tensor(shape, _REAL_OF[x.dtype]))


def _complex_to_complex(name: str, dim: Any) -> None:
    @operator(name)
    def rule(recorder: Recorder, self: Tensor, s: Any = None, dim: Any = dim, norm: str | None = None) -> Tensor:
        one = name in ("fft_fft", "fft_ifft") and self.dtype not in _REAL_OF
        x = self if one else _as_complex(recorder, self)
        x = _fitted(recorder, x, *_places(x, s, dim))
        return recorder.launch("_fft_r2c" if one else "_fft_c2c", [x], recorder.tensor(x.shape, _complex_of(x.dtype)))


def _as_complex(recorder: Recorder, x: Tensor) -> Tensor:
    return x if x.dtype in _REAL_OF else recorder.launch("to", [x], recorder.tensor(x.shape, _complex_of(x.dtype)))


for _ending, _dim in (("", -1), ("2", (-2, -1)), ("n", None)):
    _real_to_complex(f"fft_rfft{_ending}", _dim)
    _complex_to_real(f"fft_irfft{_ending}", _dim)
for _ending, _dim in (("fft", -1), ("fft2", (-2, -1)), ("fftn", None)):
    _complex_to_complex(f"fft_{_ending}", _dim)
    _complex_to_complex(f"fft_i{_ending}", _dim)


@operator("fft_fftshift", "fft_ifftshift")
def fftshift(recorder: Recorder, self: Tensor, dim: Any = None) -> Tensor:
    return recorder.launch("roll", [self], recorder.tensor(self.shape, self.dtype))


def _part(name: str) -> None:
    @operator(name)
    def rule(recorder: Recorder, self: Tensor) -> Tensor:
        if self.dtype not in _REAL_OF:
            return self
        recorder.host("view_as_real")
        recorder.host("select")
        strides = [2 * stride for stride in self.strides]
        return recorder.tensor(self.shape, _REAL_OF[self.dtype], strides, of=self)


_part("real")
_part("imag")


@operator("complex")
def complex_number(recorder: Recorder, real: Tensor, imag: Tensor) -> Tensor:
    return launch_pointwise(recorder, "complex", [real, imag], _complex_of(real.dtype))


@operator("diff")
def difference(
    recorder: Recorder, self: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Added ends are joined first; truth values differ by ``logical_xor``."""
    if prepend is not None or append is not None:
        self = cat(recorder, [x for x in (prepend, self, append) if x is not None], dim)
    place = dim_of(self.rank, dim)
    for _ in range(min(n, self.shape[place])):
        shape = (*self.shape[:place], self.shape[place] - 1, *self.shape[place + 1 :])
        later, earlier = (view_of(recorder, self, shape, self.strides, "slice") for _ in range(2))
        if self.dtype == "bool":
            self = launch_pointwise(recorder, "logical_xor", [later, earlier], "bool")
        else:
            self = pointwise.sub(recorder, later, earlier)
    return self


@operator("stft")
def stft(
    recorder: Recorder,
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    *options: Any,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    **_: Any,
) -> Tensor:
    """Frames of the signal (views) times the window, each transformed."""
    if len(options) > 2:
        onesided, return_complex = options[1:3]
    hop = n_fft // 4 if hop_length is None else hop_length
    if n_fft < 1 or hop < 1 or self.rank not in (1, 2) or self.shape[-1] < n_fft or not return_complex:
        raise ShapeError(f"stft of {n_fft} points every {hop} on a signal of shape {show(self.shape)}")
    if window is not None and window.numel < n_fft:
        padded = recorder.launch("zeros", [], recorder.tensor((n_fft,), self.dtype))
        recorder.host("slice")
        recorder.launch("copy", [window], recorder.tensor(window.shape, window.dtype))
        window = padded
    signals = numel(self.shape[:-1])
    shape = (signals, 1 + (self.shape[-1] - n_fft) // hop, n_fft)
    frames = view_of(recorder, self, shape, (self.shape[-1], hop, 1), "as_strided")
    if window is not None:
        frames = pointwise.mul(recorder, frames, window)
    full = onesided is False
    wide = "complex128" if self.dtype == "float64" else "complex64"
    points = n_fft if full else n_fft // 2 + 1
    made = recorder.launch("_fft_r2c", [frames], recorder.tensor((*shape[:2], points), wide))
    result = views.transpose(recorder, made, 1, 2)
    return result if self.rank == 2 else view_of(recorder, result, result.shape[1:], result.strides[1:], "squeeze")


@operator("istft")
def istft(
    recorder: Recorder,
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Each frame is transformed back and windowed; overlapping frames and squared windows are summed.

    The check for zero sums of windows is included (``SpectralOps.cpp``).
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    if onesided is False or return_complex:
        raise UnsupportedOperator("istft of a signal that is complex or has both sides has no shape rule")
    if n_fft < 2 or hop < 1 or self.rank not in (2, 3) or self.shape[-2] != n_fft // 2 + 1 or self.dtype not in _REAL_OF:
        raise ShapeError(f"istft of {n_fft} points every {hop} on a spectrum of shape {show(self.shape)}, {self.dtype}")
    real = _REAL_OF[self.dtype]
    short = (n_fft if win_length is None else win_length) - n_fft if window is None else window.numel - n_fft
    if window is None:
        window = recorder.launch("ones", [], recorder.tensor((n_fft + short,), real))
    if short < 0:
        window = constant_pad(recorder, window, [-short // 2, -short - -short // 2])
    signals, frames = numel(self.shape[:-2]), self.shape[-1]
    shape, total = (signals, frames, n_fft), n_fft + hop * (frames - 1)
    framed = recorder.launch("_fft_c2r", [_spectra(recorder, self)], recorder.tensor(shape, real))
    framed = pointwise.mul(recorder, framed, view_of(recorder, window, (1, 1, n_fft), None, "view"))
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - start
    if not start < min(end, total):
        raise ShapeError(f"istft of {frames} frames, a signal of {total}, has nothing between {start} and {end}")
    kept = min(end, total) - start
    added = _overlapped(recorder, framed, (signals, total), (signals, kept))
    squares = view_of(recorder, pointwise.pow_(recorder, window, 2), (1, frames, n_fft), (0, 0, 1), "expand")
    envelope = _overlapped(recorder, squares, (1, total), (1, kept))
    least = reduce(recorder, "min", unary(recorder, "abs", envelope), None, False)
    below = launch_pointwise(recorder, "lt_scalar", [least], "bool")
    true = recorder.launch("ones", [], recorder.tensor((), "bool"))
    reduce(recorder, "all", launch_pointwise(recorder, "eq", [below, true], "bool"), None, False)
    made = pointwise.div(recorder, added, envelope)
    made = constant_pad(recorder, made, [0, end - total]) if end > total else made
    return view_of(recorder, made, made.shape[1:], None, "squeeze") if self.rank == 2 else made


def _spectra(recorder: Recorder, x: Tensor) -> Tensor:
    batch = x if x.rank == 3 else view_of(recorder, x, (1, *x.shape), (0, *x.strides), "unsqueeze")
    return views.transpose(recorder, batch, 1, 2)


def _overlapped(recorder: Recorder, frames: Tensor, shape: tuple[int, ...], kept: tuple[int, ...]) -> Tensor:
    whole = recorder.launch("unfold_backward", [frames], recorder.tensor(shape, frames.dtype))
    return view_of(recorder, whole, kept, whole.strides, "slice")
