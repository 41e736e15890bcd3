# SPDX-License-Identifier: Apache-2.0
"""Small modules of ``torch.nn`` that together use most of the reader's operators and TorchScript's control flow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(64, 32, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Language(nn.Module):
    """A language model with an optional state among its inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 64)
        self.layer = nn.LSTM(64, 32)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None):
        out, last = self.layer(self.table(x), state)
        return self.head(out), last


class Encoder(nn.Module):
    def __init__(self, norm_first: bool = False, batch_first: bool = True, activation: str = "relu") -> None:
        super().__init__()
        self.table = nn.Embedding(100, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=batch_first, norm_first=norm_first, activation=activation)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(64, 100)

    def forward(self, x):
        return self.head(self.encoder(self.table(x)))


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(64, 4, 2, 2, 128, batch_first=True)

    def forward(self, source, target):
        return self.transformer(source, target)


class Causal(nn.Module):
    """Attention to what came before, with the heads split by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.packed = nn.Linear(32, 96)
        self.last = nn.Linear(32, 32)

    def forward(self, x: Tensor):
        batch, time, width = x.shape
        heads = [part.view(batch, time, 4, 8).transpose(1, 2) for part in self.packed(x).split(width, dim=2)]
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        return x + self.last(mixed.transpose(1, 2).reshape(batch, time, width))


class Copied(nn.Module):
    """Weights that are copied or cast before they are used: what is multiplied then is a result."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Parameter(torch.zeros(4, 8, 16))
        self.thin = nn.Parameter(torch.zeros(16, 8, dtype=torch.float16))

    def forward(self, x: Tensor):
        split = torch.einsum("bnd,hde->bhne", x, self.heads).mean(1)
        return torch.matmul(split, self.thin.float()) + torch.matmul(x, self.heads[0].t().contiguous().t().clone()[:, :8])


class Larger(nn.Module):
    """Images made larger by factors and to sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)

    def forward(self, x: Tensor, like: Tensor):
        x = F.interpolate(self.twice(x), scale_factor=(1.5, 2.0))
        return F.interpolate(x, size=like.shape[2:], mode="bicubic") + like


class Cells(nn.Module):
    """A loop over time whose length is the input's."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRUCell(16, 32)
        self.lstm = nn.LSTMCell(16, 32)

    def forward(self, x: Tensor):
        hidden = torch.zeros(x.size(0), 32, device=x.device)
        cell = hidden
        for step in range(x.size(1)):
            hidden = self.gru(x[:, step], hidden)
            hidden, cell = self.lstm(x[:, step], (hidden, cell))
        return hidden


class Containers(nn.Module):
    """Lists, dictionaries, loops over modules, ``while`` and an early return."""

    def __init__(self) -> None:
        super().__init__()
        self.named = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Linear(8, 8)})
        self.listed = nn.ModuleList([nn.Conv1d(8, 8, 3, padding=1) for _ in range(3)])

    def forward(self, x: Tensor, more: list[Tensor], early: bool = True):
        made: dict[str, Tensor] = {}
        for name, module in self.named.items():
            made[name] = module(x)
        total = made["a"] + made["b"]
        for tensor in more:
            total = total + tensor
        count = 0
        while count < 3:
            total = total * 2.0
            count += 1
            if count == 2 and early:
                return total
        for module in self.listed:
            total = module(total)
        return total

    @torch.jit.export
    def encode(self, x: Tensor):
        return torch.relu(x)


class Images(nn.Module):
    """Layers and functions on images."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.Sequential(nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), nn.PReLU())
        self.up = nn.Sequential(
            nn.ConvTranspose2d(8, 4, 3, 2, 1, 1),
            nn.Upsample(scale_factor=2.0, mode="bilinear"),
            nn.PixelShuffle(2),
            nn.ReflectionPad2d(1),
        )
        self.unfold = nn.Unfold(3)
        self.pool = nn.AdaptiveMaxPool2d(3)
        self.flat = nn.BatchNorm1d(8)

    def forward(self, x):
        x = self.norms(x)
        y = self.up(x)
        z = F.elu(y) + F.leaky_relu(y, 0.2) + F.softplus(y) + F.mish(y) + F.logsigmoid(y)
        z = z + F.hardtanh(z) + F.selu(z) + F.gelu(z, approximate="tanh") + torch.tanh(z).sigmoid()
        powers = torch.exp(z).log().sqrt().rsqrt().pow(2)
        rows = z[:, 0]
        return (
            [self.unfold(y).softmax(1), self.pool(z), self.flat(torch.mean(x, (2, 3))), F.log_softmax(z, 1)],
            [torch.max(z, dim=1)[0], z.argmax(1), z.amax((2, 3)), torch.clamp(z, 0, 1).std(dim=(2, 3)), z.norm(2, dim=1)],
            [powers.abs().sum(1, keepdim=True), z.unfold(2, 2, 1).mean(), z.topk(2, dim=-1)[0], z.flatten(1).cumsum(1)],
            [torch.where(z > 0, z, -z), z.permute(0, 2, 3, 1).contiguous(), z.permute(0, 2, 3, 1) + 1, torch.stack([z, z])],
            [F.normalize(z), F.interpolate(z, size=[7, 7]), F.glu(y.repeat(1, 2, 1, 1), 1), F.pad(z, [1, 1])],
            [z.half().float(), z.tril(), z.roll(1, 2), z.flip([1]), z.chunk(1, 1)[0], z.expand(2, -1, -1, -1).reshape(-1)],
            [torch.einsum("bchw,bdhw->bcd", z, z), torch.baddbmm(torch.zeros(1), rows, rows.transpose(1, 2))],
            [torch.cat([z, z], 2), F.layer_norm(z, z.shape[1:]), torch.bmm(rows, rows.transpose(1, 2)), 2 / z],
        )
