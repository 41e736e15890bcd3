# SPDX-License-Identifier: Apache-2.0
"""Training a graph network with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....errors import RecordError
from .architectures import HEAD, Architecture
from .batches import FeatureBatch
from .estimator import ProgressCallback, silent
from .layers import Initial, Operations

Batches = Callable[[NDArray[np.int64]], FeatureBatch]
"""Makes the batch of samples with these numbers."""


class NetworkTrainingOptions(Struct, frozen=True):
    """Training settings.

    Attributes:
        patience: epochs without improvement in validation before the rate is halved; 0 to keep it.
        lowest_rate: training ends below it.
        cycle: raise the rate to ``rate`` and lower it to 0 over all epochs (Smith, 2018), instead of halving.
        loss: ``mse``, or ``huber`` with a threshold of ``knee`` deviations.
        validation: share of networks left out to choose the best epoch.
    """

    epochs: int = 500
    batch: int = 128
    rate: float = 1e-3
    patience: int = 5
    lowest_rate: float = 1e-6
    cycle: bool = False
    loss: Literal["mse", "huber"] = "mse"
    knee: float = 1.0
    validation: float = 0.15
    pcgrad: bool = False
    seed: int = 0


def train(
    architecture: Architecture,
    options: NetworkTrainingOptions,
    batches: Batches,
    targets: NDArray[np.float64],
    groups: Sequence[str],
    on_progress: ProgressCallback = silent,
) -> Initial:
    """Weights of the best epoch on the validation networks. Raises RecordError without PyTorch.

    Args:
        targets: (samples, outputs), scaled.
        groups: network of each sample, wholly in training or validation.
    """
    try:
        import torch
    except ImportError as error:
        raise RecordError(f"graph networks are trained by PyTorch, which is not installed here ({error})") from error
    rng = np.random.default_rng(options.seed)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # batches are small: threads wait for each other, for minutes where other programs run
    outputs = targets.shape[1]
    start = architecture.initial(outputs, rng)
    weights = {name: torch.from_numpy(value.copy()).requires_grad_() for name, value in start.items()}
    train_set, valid_set = _split(groups, options.validation, rng)
    wanted = torch.from_numpy(targets.astype(np.float32))
    optimizer = torch.optim.Adam(weights.values(), lr=options.rate)
    steps = options.epochs * -(-len(train_set) // options.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, total_steps=steps) if options.cycle else None
    best, best_error, waited, rate = start, np.inf, 0, options.rate
    ops = Operations(training=True)
    for epoch in range(options.epochs):
        rng.shuffle(train_set)
        for at in range(0, len(train_set), options.batch):
            numbers = np.sort(train_set[at : at + options.batch])
            found = architecture.forward(ops, weights, batches(numbers), outputs)
            losses = _losses(torch, options, found, wanted[numbers])
            optimizer.zero_grad()
            if options.pcgrad and outputs > 1:
                parts = [torch.autograd.grad(loss, list(weights.values()), retain_graph=True) for loss in losses]
                for name, gradient in project([dict(zip(weights, own, strict=True)) for own in parts], rng).items():
                    weights[name].grad = gradient
            else:
                losses.mean().backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
        reached = _error(torch, architecture, options, weights, batches, wanted, valid_set, outputs)
        on_progress(epoch + 1, options.epochs, f"epoch {epoch + 1}, loss {reached:.4g}")
        if reached < best_error:
            best_error, waited = reached, 0
            best = {name: value.detach().numpy().copy() for name, value in weights.items()}
            continue
        waited += 1
        if options.patience and waited >= options.patience:
            waited, rate = 0, rate / 2
            if rate < options.lowest_rate:
                break
            for group in optimizer.param_groups:
                group["lr"] = rate
    return best


def _split(groups: Sequence[str], share: float, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    names = sorted(set(groups))
    rng.shuffle(names)
    held = set(names[: round(share * len(names))])
    inside = np.array([group in held for group in groups])
    if inside.all() or not inside.any():
        inside[:] = False
        return np.arange(len(groups)), np.arange(len(groups))
    return np.flatnonzero(~inside), np.flatnonzero(inside)


def _losses(torch: Any, options: NetworkTrainingOptions, found: Any, measured: Any) -> Any:
    if options.loss == "huber":
        return torch.nn.functional.huber_loss(found, measured, reduction="none", delta=options.knee).mean(0)
    return ((found - measured) ** 2).mean(0)


def _error(
    torch: Any,
    architecture: Architecture,
    options: NetworkTrainingOptions,
    weights: Any,
    batches: Batches,
    measured: Any,
    numbers: NDArray[np.int64],
    outputs: int,
) -> float:
    total = 0.0
    with torch.no_grad():
        for at in range(0, len(numbers), options.batch):
            part = numbers[at : at + options.batch]
            found = architecture.forward(Operations(), weights, batches(part), outputs)
            total += float(_losses(torch, options, found, measured[part]).mean()) * len(part)
    return total / max(len(numbers), 1)


def project(gradients: Sequence[Mapping[str, Any]], rng: np.random.Generator) -> dict[str, Any]:
    """Mean over outputs of their gradients, after projection of conflicting ones (PCGrad; Yu et al., 2020, algorithm 1)."""
    shared = [name for name in gradients[0] if not name.startswith(HEAD)]
    projected = []
    for number, gradient in enumerate(gradients):
        own = dict(gradient)
        for at in rng.permutation(len(gradients)):
            other = gradients[at]
            along = sum((own[name] * other[name]).sum() for name in shared)
            if at != number and along < 0:
                share = along / sum((other[name] ** 2).sum() for name in shared)
                own |= {name: own[name] - share * other[name] for name in shared}
        projected.append(own)
    return {name: sum(own[name] for own in projected) / len(projected) for name in gradients[0]}
