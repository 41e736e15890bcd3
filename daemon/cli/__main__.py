# SPDX-License-Identifier: Apache-2.0
"""``python -m jetdvfs.daemon.cli`` is ``jetdvfs``."""

from . import main

raise SystemExit(main())
