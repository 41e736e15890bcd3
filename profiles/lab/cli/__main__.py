# SPDX-License-Identifier: Apache-2.0
"""``python -m jetdvfs.profiles.lab.cli`` is ``jetdvfs-lab``."""

from . import main

if __name__ == "__main__":  # processes that it begins import this as well
    raise SystemExit(main())
