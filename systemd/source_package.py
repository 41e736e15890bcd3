# SPDX-License-Identifier: Apache-2.0
"""Make Debian's source package.

    python systemd/source_package.py ARCHIVE FOLDER   jetdvfs_*.orig.tar.gz, .debian.tar.xz and .dsc, of the source archive

Its rules run `make deb`: the packages are those of the system that builds it, named after it, and bring libraries that the
system does not have, which pip downloads meanwhile.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from package import APART, HERE, PRODUCT, made_at, maintainer

SOURCE = f"""\
Source: {PRODUCT}
Section: utils
Priority: optional
Maintainer: {maintainer()}
Build-Depends: python3-dev, python3-venv
Standards-Version: 4.6.2
Rules-Requires-Root: no
"""
#: Known where packages are built.
THERE_ONLY = re.compile(r"^(Version|Maintainer|Installed-Size|Depends): .*\n", re.MULTILINE)
OVERRIDES = """\
# Of the packages, which bring libraries.
superfluous-file-pattern usr/lib/*
"""
RULES = """\
#!/usr/bin/make -f
build build-arch build-indep:
	$(MAKE) deb
binary binary-arch binary-indep: build
	for package in dist/*.deb; do mv $$package .. && dpkg-distaddfile $$(basename $$package) utils optional; done
clean:
	$(MAKE) clean
	rm -rf dist debian/files
.PHONY: build build-arch build-indep binary binary-arch binary-indep clean
"""


def control() -> str:
    """Description of the source and its packages."""
    packages = {PRODUCT: ("control", "any", ""), **{name: ("control-apart", "all", summary) for name, summary in APART.items()}}
    found = [SOURCE]
    for name, (file, architecture, summary) in packages.items():
        text = re.sub(
            r"^(Version|Maintainer|Installed-Size|Depends): .*\n", "", (HERE / "debian" / file).read_text(), flags=re.M
        )
        found.append(text.format(name=name, architecture=architecture, summary=summary))
    return "\n".join(found)


def make(archive: Path, folder: Path) -> None:
    version = archive.name.removeprefix(f"{PRODUCT}-").removesuffix(".tar.gz")
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(archive, f"{scratch}/{PRODUCT}_{version}.orig.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        debian = Path(scratch, f"{PRODUCT}-{version}", "debian")
        (debian / "source").mkdir(parents=True)
        (debian / "source" / "format").write_text("3.0 (quilt)\n")
        (debian / "source" / "lintian-overrides").write_text(
            "# Of the packages, which bring libraries.\nsuperfluous-file-pattern usr/lib/*\n"
        )
        (debian / "control").write_text(control())
        (debian / "rules").write_text(RULES)
        (debian / "rules").chmod(0o755)
        entry = f"{PRODUCT} ({version}-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n"
        (debian / "changelog").write_text(f"{entry} -- {maintainer()}  {made_at()}\n")
        shutil.copy(HERE / "debian" / "copyright", debian)
        subprocess.run(["dpkg-source", "--build", debian.parent.name], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
        for path in Path(scratch).glob(f"{PRODUCT}_*"):
            shutil.copy(path, folder)


if __name__ == "__main__":
    os.umask(0o022)
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    make(Path(sys.argv[1]), Path(sys.argv[2]))
