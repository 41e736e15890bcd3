# SPDX-License-Identifier: Apache-2.0
"""Random networks of known families, varied as by PerfSeer, DNNPerf and DIPPM."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any

_ACTIVATIONS = ("ReLU", "ReLU6", "SiLU", "Hardswish")


class _Lazy:
    """``torch.nn``, loaded at first use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("torch.nn"), name)


nn: Any = _Lazy()


@cache
def _blocks() -> Any:
    """Modules that torch.nn lacks; deriving classes needs PyTorch loaded."""
    import torch

    class BranchSum(nn.Module):  # type: ignore[misc]
        """Sum of branches."""

        def __init__(self, *branches: Any) -> None:
            super().__init__()
            self.branches = nn.ModuleList(branches)

        def forward(self, x: Any) -> Any:
            total = self.branches[0](x)
            for branch in self.branches[1:]:
                total = total + branch(x)
            return total

    class ChannelJoin(nn.Module):  # type: ignore[misc]
        def __init__(self, *branches: Any) -> None:
            super().__init__()
            self.branches = nn.ModuleList(branches)

        def forward(self, x: Any) -> Any:
            return torch.cat([branch(x) for branch in self.branches], 1)

    class SqueezeExcitation(nn.Module):  # type: ignore[misc]
        """Squeeze and excitation."""

        def __init__(self, channels: int, squeezed: int) -> None:
            super().__init__()
            self.pool, self.down, self.up = (
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(channels, squeezed, 1),
                nn.Conv2d(squeezed, channels, 1),
            )

        def forward(self, x: Any) -> Any:
            return x * torch.sigmoid(self.up(torch.relu(self.down(self.pool(x)))))

    class ShuffleUnit(nn.Module):  # type: ignore[misc]
        """ShuffleNetV2 unit."""

        def __init__(self, channels: int, kernel: int) -> None:
            super().__init__()
            half = channels // 2
            self.work = nn.Sequential(
                *_conv(half, half, 1), *_conv(half, half, kernel, groups=half, act=None), *_conv(half, half, 1)
            )

        def forward(self, x: Any) -> Any:
            batch, channels, height, width = x.shape
            kept, worked = x.chunk(2, 1)
            x = torch.cat([kept, self.work(worked)], 1)
            return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)

    class NasBenchCell(nn.Module):  # type: ignore[misc]
        """NAS-Bench-201 cell."""

        def __init__(self, channels: int, rng: Random) -> None:
            super().__init__()
            self.edges = nn.ModuleList([_cell_operation(channels, rng) for _ in range(6)])

        def forward(self, x: Any) -> Any:
            one = self.edges[0](x)
            two = self.edges[1](x) + self.edges[2](one)
            return self.edges[3](x) + self.edges[4](one) + self.edges[5](two)

    class Attention(nn.Module):  # type: ignore[misc]
        """Attention over all tokens or in image windows, optionally shifted as in Swin."""

        def __init__(self, width: int, heads: int, window: int = 0, shift: int = 0) -> None:
            super().__init__()
            self.heads, self.window, self.shift = heads, window, shift
            self.read, self.write = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def attended(self, x: Any) -> Any:
            batch, tokens, width = x.shape
            parts = self.read(x).reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            found = torch.nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
            return self.write(found.transpose(1, 2).reshape(batch, tokens, width))

        def forward(self, x: Any) -> Any:
            if not self.window:
                return self.attended(x)
            batch, height, wide, width = x.shape
            side, rows, columns = self.window, height // self.window, wide // self.window
            if self.shift:
                x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
            x = x.view(batch, rows, side, columns, side, width).transpose(2, 3).reshape(-1, side * side, width)
            x = self.attended(x).view(batch, rows, columns, side, side, width).transpose(2, 3)
            x = x.reshape(batch, height, wide, width)
            return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x

    class TokenEmbedding(nn.Module):  # type: ignore[misc]
        def __init__(self, channels: int, image: int, flat: bool) -> None:
            super().__init__()
            self.flat = flat
            self.position = nn.Parameter(torch.zeros(1, channels, image, image))

        def forward(self, x: Any) -> Any:
            x = x + self.position
            return x.flatten(2).transpose(1, 2) if self.flat else x.permute(0, 2, 3, 1)

    class PatchMerging(nn.Module):  # type: ignore[misc]
        """Merge of four neighbouring tokens, as in Swin."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

        def forward(self, x: Any) -> Any:
            parts = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
            return self.reduce(self.norm(torch.cat(parts, -1)))

    class TokenMean(nn.Module):  # type: ignore[misc]
        """Mean over tokens."""

        def forward(self, x: Any) -> Any:
            return x.flatten(1, -2).mean(1)

    class PoolingMixer(nn.Module):  # type: ignore[misc]
        """PoolFormer's mixer: mean of neighbours minus the input."""

        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

        def forward(self, x: Any) -> Any:
            return self.pool(x) - x

    blocks = [BranchSum, ChannelJoin, SqueezeExcitation, ShuffleUnit, NasBenchCell]
    blocks += [Attention, TokenEmbedding, PatchMerging, TokenMean, PoolingMixer]
    return SimpleNamespace(**{block.__name__: block for block in blocks})


def _cell_operation(channels: int, rng: Random) -> Any:
    choice = rng.randrange(4)
    if choice == 0:
        return nn.Identity()
    if choice == 1:
        return nn.AvgPool2d(3, 1, 1)
    return nn.Sequential(*_conv(channels, channels, 1 if choice == 2 else 3))


def _conv(read: int, written: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: str | None = "ReLU") -> list[Any]:
    layers: list[Any] = [nn.Conv2d(read, written, kernel, stride, kernel // 2, groups=groups, bias=False)]
    layers.append(nn.BatchNorm2d(written))
    return layers + ([getattr(nn, act)()] if act else [])


def _head(channels: int, rng: Random) -> list[Any]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, rng.choice((10, 100, 1000)))]


def _width(base: float, rng: Random) -> int:
    return max(8, round(base * rng.uniform(0.5, 1.5) / 8) * 8)


def vgg(rng: Random) -> Any:
    layers: list[Any] = []
    channels = 3
    for base in (64, 128, 256, 512, 512)[: rng.randint(3, 5)]:
        for _ in range(rng.randint(1, 3)):
            width = _width(base * 0.35, rng)
            layers += [nn.Conv2d(channels, width, rng.choice((3, 3, 5)), padding="same"), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    hidden = rng.choice((256, 512, 1024))
    dense = [nn.Linear(channels * 9, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, rng.choice((10, 100, 1000)))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), *dense)


def resnet(rng: Random) -> Any:
    bottleneck, groups = rng.random() < 0.5, rng.choice((1, 1, 4, 8, 16))
    channels = _width(48, rng)
    layers = [*_conv(3, channels, rng.choice((3, 5, 7)), 2), nn.MaxPool2d(3, 2, 1)]
    for stage in range(rng.randint(2, 4)):
        inner = max(16, _width(48 << stage, rng) // 16 * 16)
        written = inner * (rng.choice((2, 4)) if bottleneck else 1)
        for block in range(rng.randint(1, 4)):
            stride = 2 if stage and not block else 1
            if bottleneck:
                way = [*_conv(channels, inner, 1), *_conv(inner, inner, 3, stride, groups), *_conv(inner, written, 1, act=None)]
            else:
                way = [*_conv(channels, inner, 3, stride), *_conv(inner, written, 3, act=None)]
            other: Any = nn.Identity()
            if stride > 1 or channels != written:
                other = nn.Sequential(*_conv(channels, written, 1, stride, act=None))
            layers += [_blocks().BranchSum(nn.Sequential(*way), other), nn.ReLU()]
            channels = written
    return nn.Sequential(*layers, *_head(channels, rng))


def mobilenet(rng: Random) -> Any:
    channels = _width(32, rng)
    layers = _conv(3, channels, 3, 2, act="ReLU6")
    for base, most, stride in ((64, 2, 1), (128, 3, 2), (256, 3, 2), (512, 6, 2), (1024, 2, 2)):
        for block in range(rng.randint(1, most)):
            width, kernel = _width(base * 0.75, rng), rng.choice((3, 3, 5))
            layers += _conv(channels, channels, kernel, 1 if block else stride, channels, act="ReLU6")
            layers += _conv(channels, width, 1, act="ReLU6")
            channels = width
    return nn.Sequential(*layers, *_head(channels, rng))


def _inverted(rng: Random, gated: bool, act: str, kernels: Sequence[int]) -> Any:
    channels = _width(32, rng)
    layers = _conv(3, channels, 3, 2, act=act)
    for base, most, stride in ((16, 1, 1), (24, 3, 2), (40, 3, 2), (80, 4, 2), (112, 3, 1), (192, 4, 2)):
        for block in range(rng.randint(1, most)):
            written = channels if block else _width(base, rng)
            step, inner, kernel = 1 if block else stride, channels * rng.choice((1, 3, 4, 6)), rng.choice(kernels)
            way = [*_conv(channels, inner, 1, act=act), *_conv(inner, inner, kernel, step, inner, act=act)]
            way += [_blocks().SqueezeExcitation(inner, max(channels // 4, 4))] if gated else []
            work = nn.Sequential(*way, *_conv(inner, written, 1, act=None))
            layers.append(_blocks().BranchSum(work, nn.Identity()) if step == 1 and channels == written else work)
            channels = written
    last = _width(960, rng)
    return nn.Sequential(*layers, *_conv(channels, last, 1, act=act), *_head(last, rng))


def mobilenet_v2(rng: Random) -> Any:
    return _inverted(rng, False, "ReLU6", (3,))


def mnasnet(rng: Random) -> Any:
    return _inverted(rng, rng.random() < 0.5, "ReLU", (3, 5))


def efficientnet(rng: Random) -> Any:
    return _inverted(rng, True, rng.choice(("SiLU", "Hardswish")), (3, 5))


def densenet(rng: Random) -> Any:
    growth, channels = rng.choice((8, 12, 16, 24, 32)), _width(48, rng)
    layers = [*_conv(3, channels, 7, 2), nn.MaxPool2d(3, 2, 1)]
    stages = rng.randint(2, 4)
    for stage in range(stages):
        for _ in range(rng.randint(2, 8)):
            inner = growth * rng.choice((2, 4))
            way = [
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                *_conv(channels, inner, 1),
                nn.Conv2d(inner, growth, 3, padding=1, bias=False),
            ]
            layers.append(_blocks().ChannelJoin(nn.Identity(), nn.Sequential(*way)))
            channels += growth
        if stage < stages - 1:
            half = channels // 2
            layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, half, 1, bias=False), nn.AvgPool2d(2)]
            channels = half
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), *_head(channels, rng))


def googlenet(rng: Random) -> Any:
    channels = _width(64, rng)
    layers = [*_conv(3, channels, 7, 2), nn.MaxPool2d(3, 2, 1), *_conv(channels, channels, 3), nn.MaxPool2d(3, 2, 1)]
    for stage in range(rng.randint(1, 3)):
        for _ in range(rng.randint(1, 4)):
            one, three, five, pooled = (_width(base * (1 + stage), rng) for base in (48, 72, 24, 24))
            small, smaller = _width(48, rng), _width(16, rng)
            layers.append(
                _blocks().ChannelJoin(
                    nn.Sequential(*_conv(channels, one, 1)),
                    nn.Sequential(*_conv(channels, small, 1), *_conv(small, three, 3)),
                    nn.Sequential(*_conv(channels, smaller, 1), *_conv(smaller, five, 5)),
                    nn.Sequential(nn.MaxPool2d(3, 1, 1), *_conv(channels, pooled, 1)),
                )
            )
            channels = one + three + five + pooled
        layers.append(nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*layers, *_head(channels, rng))


def squeezenet(rng: Random) -> Any:
    channels = _width(64, rng)
    layers: list[Any] = [nn.Conv2d(3, channels, rng.choice((3, 7)), 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)]
    for base in (16, 32, 48, 64)[: rng.randint(2, 4)]:
        for _ in range(rng.randint(1, 3)):
            small, wide = _width(base, rng), _width(4 * base, rng)
            one, three = nn.Conv2d(small, wide, 1), nn.Conv2d(small, wide, 3, padding=1)
            layers += [
                nn.Conv2d(channels, small, 1),
                nn.ReLU(),
                _blocks().ChannelJoin(nn.Sequential(one, nn.ReLU()), nn.Sequential(three, nn.ReLU())),
            ]
            channels = 2 * wide
        layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
    classes = rng.choice((10, 100, 1000))
    return nn.Sequential(*layers, nn.Conv2d(channels, classes, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def shufflenet(rng: Random) -> Any:
    channels = _width(24, rng)
    layers = [*_conv(3, channels, 3, 2), nn.MaxPool2d(3, 2, 1)]
    for base in (96, 192, 384)[: rng.randint(2, 3)]:
        half, kernel = _width(base // 2, rng), rng.choice((3, 5))
        way = [*_conv(channels, half, 1), *_conv(half, half, kernel, 2, half, act=None), *_conv(half, half, 1)]
        other = [*_conv(channels, channels, kernel, 2, channels, act=None), *_conv(channels, half, 1)]
        channels = 2 * half
        layers += [
            _blocks().ChannelJoin(nn.Sequential(*other), nn.Sequential(*way)),
            *(_blocks().ShuffleUnit(channels, kernel) for _ in range(rng.randint(1, 6))),
        ]
    last = _width(768, rng)
    return nn.Sequential(*layers, *_conv(channels, last, 1), *_head(last, rng))


def cells(rng: Random) -> Any:
    channels = _width(24, rng)
    layers = _conv(3, channels, 3, rng.choice((1, 2)), act=rng.choice(_ACTIVATIONS))
    for stage in range(rng.randint(2, 3)):
        if stage:
            layers += _conv(channels, 2 * channels, 3, 2)
            channels *= 2
        layers += [_blocks().NasBenchCell(channels, rng) for _ in range(rng.randint(1, 4))]
    return nn.Sequential(*layers, *_head(channels, rng))


def _encoder(width: int, mixer: Any, hidden: int) -> list[Any]:
    dense = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
    return [
        _blocks().BranchSum(nn.Identity(), nn.Sequential(nn.LayerNorm(width), mixer)),
        _blocks().BranchSum(nn.Identity(), dense),
    ]


def vit(rng: Random, image: int) -> Any:
    patch, head = rng.choice((8, 16, 16, 32)), rng.choice((32, 64))
    heads, times = rng.randint(2, 12), rng.choice((2, 3, 4))
    width = head * heads
    layers = [nn.Conv2d(3, width, patch, patch), _blocks().TokenEmbedding(width, image // patch, flat=True)]
    for _ in range(rng.randint(2, 12)):
        layers += _encoder(width, _blocks().Attention(width, heads), times * width)
    return nn.Sequential(*layers, nn.LayerNorm(width), _blocks().TokenMean(), nn.Linear(width, rng.choice((10, 100, 1000))))


def swin(rng: Random, image: int) -> Any:
    width, side, times = rng.choice((48, 64, 96, 128)), image // 4, rng.choice((2, 3, 4))
    layers = [nn.Conv2d(3, width, 4, 4), _blocks().TokenEmbedding(width, side, flat=False)]
    stages = rng.randint(2, 4)
    for stage in range(stages):
        window = next(size for size in (7, 8, 6, 5, 4, 3, 2, 1) if side % size == 0)
        for block in range(2 * rng.randint(1, 3)):
            shift = window // 2 if block % 2 and window < side else 0
            layers += _encoder(width, _blocks().Attention(width, width // 16, window, shift), times * width)
        if stage == stages - 1 or side % 2:
            break
        layers.append(_blocks().PatchMerging(width))
        width, side = 2 * width, side // 2
    return nn.Sequential(*layers, nn.LayerNorm(width), _blocks().TokenMean(), nn.Linear(width, rng.choice((10, 100, 1000))))


def poolformer(rng: Random, image: int) -> Any:
    channels = _width(64, rng)
    layers: list[Any] = [nn.Conv2d(3, channels, 7, 4, 2)]
    for stage in range(rng.randint(2, 4)):
        if stage:
            wider = _width(64 << stage, rng)
            layers.append(nn.Conv2d(channels, wider, 3, 2, 1))
            channels = wider
        for _ in range(rng.randint(1, 4)):
            hidden = channels * rng.choice((2, 4))
            dense = [nn.GroupNorm(1, channels), nn.Conv2d(channels, hidden, 1), nn.GELU(), nn.Conv2d(hidden, channels, 1)]
            layers += [
                _blocks().BranchSum(nn.Identity(), nn.Sequential(nn.GroupNorm(1, channels), _blocks().PoolingMixer())),
                _blocks().BranchSum(nn.Identity(), nn.Sequential(*dense)),
            ]
    return nn.Sequential(*layers, nn.GroupNorm(1, channels), *_head(channels, rng))


def _of_any_image(made: Callable[[Random], Any]) -> Callable[[Random, int], Any]:
    return lambda rng, image: made(rng)


_CONVOLUTIONAL = (
    vgg, resnet, mobilenet, mobilenet_v2, mnasnet, efficientnet, densenet, googlenet, squeezenet, shufflenet, cells,
)  # fmt: skip
FAMILIES: Mapping[str, Callable[[Random, int], Any]] = {
    **{made.__name__: _of_any_image(made) for made in _CONVOLUTIONAL},
    "vit": vit,
    "swin": swin,
    "poolformer": poolformer,
}
"""Families by name; MobileNet's two forms are a family each."""

IMAGES = (64, 96, 128, 160, 192, 224)
BATCHES = (1, 1, 2, 4, 8)


def make(family: str, number: int) -> tuple[Any, tuple[int, int, int, int]]:
    """Network of a family and its input shape, determined by number."""
    import torch

    rng = Random(f"{family}:{number}")
    image, batch = rng.choice(IMAGES), rng.choice(BATCHES)
    torch.manual_seed(number)
    return FAMILIES[family](rng, image).eval(), (batch, 3, image, image)
