# SPDX-License-Identifier: Apache-2.0
"""Bill of materials of a release, as CycloneDX JSON.

    python systemd/sbom.py FOLDER VERSION SECONDS    FOLDER/jetdvfs-VERSION.cdx.json, dated SECONDS after 1970

It names the files in FOLDER with their sums, the declared dependencies with licences and bounds, and the libraries that
each Debian package brings. Python must be that of the environment of release-tools.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from dependencies import REQUIRED, closure, declared, listed
from packageurl import PackageURL
from packaging.utils import canonicalize_name

#: A library of a Debian package, by the folder of its metadata.
_BROUGHT = re.compile(r"/site-packages/([^/]+)-([^/-]+)\.dist-info/METADATA$", re.MULTILINE)


def library(name: str, licence: str, version: str | None = None) -> Component:
    suffix = f"@{version}" if version else ""
    return Component(
        name=name,
        version=version,
        bom_ref=f"pypi/{name}{suffix}",
        licenses=[LicenseFactory().make_from_string(licence)],
        purl=PackageURL("pypi", name=name, version=version),
    )


def bill(folder: Path, version: str, made: datetime) -> Bom:
    """Bill of materials of the files in a folder."""
    licences, wanted = listed(), declared()
    product = Component(name="jetdvfs", version=version, type=ComponentType.APPLICATION, bom_ref="jetdvfs")
    product.licenses.add(LicenseFactory().make_from_string("Apache-2.0"))
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"jetdvfs {version} {made}"))
    bom.metadata.timestamp, bom.metadata.component = made, product
    libraries = {name: library(name, one.licence) for name, one in licences.items()}
    required = closure((canonicalize_name(one.name) for one in wanted[REQUIRED]), licences)
    direct = []
    for extra, requirements in wanted.items():
        for one in requirements:
            if component := libraries.get(canonicalize_name(one.name)):
                direct.append(component)
                bound = f"{one.specifier}" or "any version"
                component.properties.add(Property(name=f"jetdvfs:{extra or 'required'}", value=bound))
    for name, component in libraries.items():
        component.scope = ComponentScope.REQUIRED if name in required else ComponentScope.OPTIONAL
        bom.components.add(component)
        bom.register_dependency(component, (libraries[other] for other in licences[name].needs))
    bom.register_dependency(product, direct)
    for path in sorted(folder.iterdir()):
        content = HashType(alg=HashAlgorithm.SHA_256, content=sha256(path.read_bytes()).hexdigest())
        file = Component(name=path.name, type=ComponentType.FILE, bom_ref=path.name, hashes=[content])
        bom.components.add(file)
        brought = [library(name, licences[name].licence, number) for name, number in brought_by(path)]
        for component in brought:
            bom.components.add(component)
            bom.register_dependency(component)
        bom.register_dependency(file, brought)
    return bom


def brought_by(path: Path) -> list[tuple[str, str]]:
    """Names and versions of the libraries inside a Debian package."""
    if path.suffix != ".deb":
        return []
    listing = subprocess.run(["dpkg-deb", "--contents", path], capture_output=True, text=True, check=True).stdout
    return [(canonicalize_name(name), number) for name, number in _BROUGHT.findall(listing)]


def main(folder: Path, version: str, seconds: int) -> None:
    made = datetime.fromtimestamp(seconds, timezone.utc)
    text = JsonV1Dot6(bill(folder, version, made)).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the bill of materials is not valid CycloneDX: {error}")
    (folder / f"jetdvfs-{version}.cdx.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
