# SPDX-License-Identifier: Apache-2.0
"""Where CUDA's kernels lay memory out, or copy it, otherwise than the dispatcher tells: each row of ``docs/models.md``."""

from __future__ import annotations

from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import Network, TensorSpec

torch = pytest.importorskip("torch", reason="PyTorch's own account of its kernels is the oracle; it is not installed")

from jetdvfs.tests.support.models import oracle  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

PICTURE, TOKENS = (2, 3, 16, 16), (2, 6, 8)


class Applied(torch.nn.Module):  # type: ignore[name-defined]
    """Layers around a function."""

    def __init__(self, function: Any, *layers: Any) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*layers)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.layers, x)


def convolutions() -> list[Any]:
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, groups=8)
    return [*layers, torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 4, 1), torch.nn.Conv2d(4, 4, 3)]


def attended(f: Any, x: Any, expanded: bool) -> Any:
    heads = x.view(2, 6, 2, 4).transpose(1, 2)
    mask = (x[0, 0, :6] > 0).view(1, 1, 6, 1).expand(2, 1, 6, 6) if expanded else (x[:, :, :6] > 0).view(2, 1, 6, 6)
    return f(torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, mask).transpose(1, 2).reshape(2, 6, 8))


def means(x: Any) -> Any:
    return torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)


def last(module: Any) -> Any:
    return module.to(memory_format=torch.channels_last)


def listed(module: Any, shape: tuple[int, ...], dtype: Any = torch.float32) -> Network:
    module = module.eval().requires_grad_(False).to(dtype)
    return decompose(oracle.archive_of(module, "trace", [torch.rand(shape, dtype=dtype)]), [spec(shape, dtype)])


def spec(shape: tuple[int, ...], dtype: Any) -> TensorSpec:
    return TensorSpec(shape, str(dtype).removeprefix("torch."))


def essence(network: Network) -> list[Any]:
    return [(launch.kind, launch.inputs, launch.output, launch.bytes) for launch in network.launches]


def copies(network: Network) -> list[tuple[int, ...]]:
    return [launch.output for launch in network.launches if launch.kind == "clone"]


CASES: dict[str, tuple[Any, tuple[int, ...], list[tuple[int, ...]]]] = {
    "a network whose weights have their channels last": (
        lambda: last(torch.nn.Sequential(*convolutions())), PICTURE, [PICTURE],
    ),
    "a picture with its channels last, weights as they are by default": (
        lambda: Applied(lambda f, x: f(x.contiguous(memory_format=torch.channels_last)), *convolutions()), PICTURE,
        [PICTURE, (8, 3, 3, 3), (4, 4, 3, 3)],
    ),
    "back to rows after channels last": (
        lambda: last(torch.nn.Sequential(*convolutions(), torch.nn.Flatten())), PICTURE, [PICTURE, (2, 4, 4, 4)],
    ),
    "a transposed convolution with channels last": (
        lambda: last(torch.nn.Sequential(torch.nn.ConvTranspose2d(3, 4, 2))), PICTURE, [PICTURE],
    ),
    "group_norm of channels last": (
        lambda: last(torch.nn.Sequential(*convolutions(), torch.nn.GroupNorm(2, 4))), PICTURE, [PICTURE, (2, 4, 4, 4)],
    ),
    "layer_norm over channels": (
        lambda: Applied(lambda f, x: f(x.permute(0, 2, 3, 1)), torch.nn.LayerNorm(3)), PICTURE, [(2, 16, 16, 3)],
    ),
    "softmax of what is transposed": (lambda: Applied(lambda f, x: x.transpose(1, 2).softmax(-1)), TOKENS, [(2, 8, 6)]),
    "log_softmax of a part": (lambda: Applied(lambda f, x: x[:, :, 1:].log_softmax(-1)), TOKENS, [(2, 6, 7)]),
    "a convolution along time of tokens": (
        lambda: Applied(lambda f, x: f(x.transpose(1, 2)), torch.nn.Conv1d(8, 4, 3)), TOKENS, [(2, 8, 6)],
    ),
    "a convolution of a part of a picture": (
        lambda: Applied(lambda f, x: f(x[:, :, ::2]), torch.nn.Conv2d(3, 4, 3)), PICTURE, [(2, 3, 8, 16)],
    ),
    "a convolution of the mean of channels that are last": (
        lambda: Applied(
            lambda f, x: f(means(x.contiguous(memory_format=torch.channels_last))),
            torch.nn.Conv2d(2, 4, 3),
        ), PICTURE, [PICTURE],
    ),
    "a convolution of channels last that are pooled to one": (
        lambda: last(torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Conv2d(3, 4, 3, padding=1))), PICTURE,
        [],
    ),
    "tokens that are pooled along time": (
        lambda: Applied(lambda f, x: f[1](f[0](x.mT).mT), torch.nn.AvgPool1d(2), torch.nn.LayerNorm(8)),
        TOKENS, [],
    ),
    "a linear layer and a norm after a recurrent layer whose batch comes first": (
        lambda: Applied(lambda f, x: f[2](f[1](f[0](x)[0])), torch.nn.LSTM(8, 4, batch_first=True), torch.nn.Linear(4, 5),
                        torch.nn.LayerNorm(5)),
        TOKENS, [],
    ),
    "a norm after a recurrent layer whose batch comes first": (
        lambda: Applied(lambda f, x: f[1](f[0](x)[0]), torch.nn.GRU(8, 4, batch_first=True), torch.nn.LayerNorm(4)),
        TOKENS, [(2, 6, 4)],
    ),
    "a batch norm of tokens": (
        lambda: Applied(lambda f, x: f[1](f[0](x.mT).mT), torch.nn.BatchNorm1d(8), torch.nn.LayerNorm(8)),
        TOKENS, [(2, 8, 6), (2, 6, 8)],
    ),
    "attention with a mask": (lambda: Applied(lambda f, x: attended(f, x, expanded=False), torch.nn.Linear(8, 8)), TOKENS, []),
    "attention with a mask expanded from a column": (
        lambda: Applied(lambda f, x: attended(f, x, expanded=True), torch.nn.Linear(8, 8)), TOKENS, [(2, 6, 2, 4)],
    ),
    "layers on what is contiguous": (
        lambda: torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Softmax(-1)), TOKENS, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_copies_are_those_that_cudas_kernels_make(case: str) -> None:
    make, shape, copied = CASES[case]
    ours = listed(make(), shape)
    assert copies(ours) == copied
    if case == "group_norm of channels last" and torch.__version__ >= "2.14":
        return  # from then on PyTorch norms groups as they lie; the releases that boards have copy them first
    assert essence(ours) == essence(oracle.network_of(make().eval().requires_grad_(False), [spec(shape, torch.float32)]))


def test_double_precision_never_has_its_channels_last() -> None:
    ours = listed(last(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 4, 3))), PICTURE, torch.float64)
    assert copies(ours) == [(4, 3, 3, 3), (4, 4, 3, 3)]


def test_a_bias_is_part_of_its_convolution() -> None:
    """cuDNN's convolution is followed by a sum on CUDA; models of convolutions are trained on both together."""
    made = listed(torch.nn.Conv2d(3, 4, 3), PICTURE)
    assert [(launch.kind, launch.params["bias"]) for launch in made.launches] == [("conv2d", True)]


@pytest.mark.parametrize("repeated", [True, False])
def test_attention_with_a_mask_of_one_repeated_column_is_products_and_a_softmax(
    repeated: bool,
) -> None:
    """As masks of transformers' encoders; the contiguous result is copied back to tokens (seen on an H200, PyTorch 2.11)."""

    def attend(layers: Any, x: Any) -> Any:
        heads = x.view(2, 6, 2, 4).transpose(1, 2)
        mask = x.sum(-1)[:, None, :, None].ge(0).expand(2, 1, 6, 6)
        mask = mask if repeated else mask.contiguous()
        mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
        return mixed.transpose(1, 2).reshape(2, 6, 8)

    ours = listed(Applied(attend), TOKENS)
    (attention,) = (launch for launch in ours.launches if launch.kind == "attention")
    assert bool(attention.params.get("math")) is repeated
    assert [shape for shape in copies(ours) if shape != (2, 1, 6, 6)] == [(2, 6, 2, 4)] * repeated


@pytest.mark.parametrize(("lay", "expected"), [(last, {"conv2d", "batch_norm", "max_pool2d"}), (lambda module: module, set())])
def test_kernels_of_images_say_that_their_channels_are_last(lay: Any, expected: set[str]) -> None:
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.MaxPool2d(2), torch.nn.ReLU()
    made = listed(lay(torch.nn.Sequential(*layers)), PICTURE)
    assert {launch.kind for launch in made.launches if launch.params.get("channels_last")} == expected
