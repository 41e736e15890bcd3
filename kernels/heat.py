# SPDX-License-Identifier: Apache-2.0
"""Power and the die's temperature: leakage grows by a factor of e per fixed number of degrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from .errors import CostModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
else:
    from .lazy import numpy as np

DIE_RANGE_C = (-40.0, 125.0)
"""Range of a working die."""


class Heat(Struct, frozen=True):
    """Leakage at temperature ``temperature_c`` of the measurements; a rise by ``fold_c`` multiplies it by e."""

    temperature_c: Annotated[float, Meta(ge=DIE_RANGE_C[0], le=DIE_RANGE_C[1])]
    fold_c: Annotated[float, Meta(ge=1.0, le=1e6)]

    def __post_init__(self) -> None:
        if not self.fold_c > 0:
            raise ValueError(f"expected leakage to grow e-fold within a positive number of degrees, got {self.fold_c}")

    def growth(self, temperature_c: ArrayLike) -> NDArray[np.float64]:
        """Relative growth of leakage since the measurements; below 0 if colder. Raises CostModelError outside
        :data:`DIE_RANGE_C`.
        """
        low, high = DIE_RANGE_C
        degrees = np.asarray(temperature_c, np.float64)
        if not ((degrees >= low) & (degrees <= high)).all():
            strange = float(degrees.max() if degrees.max() > high else degrees.min())
            raise CostModelError(f"temperature {strange:g} C: expected one of a die that works, {low:g} to {high:g}")
        return np.asarray(np.expm1((degrees - self.temperature_c) / self.fold_c))
