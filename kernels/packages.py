# SPDX-License-Identifier: Apache-2.0
"""Optional Python packages, and how to install them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_SYSTEM_PACKAGES = {"plot": "python3-matplotlib", "notebook": "python3-pandas"}


@contextlib.contextmanager
def needing(what: str, extras: str, refusal: type[Exception]) -> Iterator[None]:
    """Report an import that fails in this context as one line that names the package and how to install it.

    Args:
        what: the verb or feature that needs the package.
        extras: of ``setup.cfg``, as ``plot`` or ``train,plot``.
        refusal: the error to raise.
    """
    try:
        yield
    except ImportError as error:
        missing = f"the Python package {error.name}" if isinstance(error, ModuleNotFoundError) else f"a package ({error})"
        system = _SYSTEM_PACKAGES.get(extras)
        install = f"{f'sudo apt-get install {system}, or ' if system else ''}from a clone: pip install '.[{extras}]'"
        raise refusal(f"{what}: needs {missing} ({install})") from error
