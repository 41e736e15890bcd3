# SPDX-License-Identifier: Apache-2.0
"""Compare the libraries that Debian packages bring with the known vulnerabilities.

    python systemd/audit.py    exit code 0 without a vulnerability, 1 with one, 75 if the database cannot be asked

Python must be that of the environment of release-tools.txt.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LIBRARIES = Path(__file__).with_name("packed-libraries.txt")
UNKNOWN = 75


def verdict(output: str) -> int:
    """Exit code for the JSON of pip-audit; the reason is printed."""
    try:
        packages = json.loads(output)["dependencies"]
    except ValueError:
        print("the database of vulnerabilities does not answer")
        return UNKNOWN
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    found = [f"{package['name']} {one['id']}" for package in packages for one in package.get("vulns", ())]
    if skipped:
        print(f"not in the database of vulnerabilities: {', '.join(skipped)}")
    if found:
        print(f"vulnerabilities: {', '.join(found)}")
    return 1 if found else UNKNOWN if skipped else 0


if __name__ == "__main__":
    audit = (sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--format", "json")
    command = [*audit, "--disable-pip", "--no-deps", "--requirement", str(LIBRARIES)]
    sys.exit(verdict(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout))
