# SPDX-License-Identifier: Apache-2.0
"""Identity of a simulated board: device tree, L4T release, boot id."""

from __future__ import annotations

import uuid

from ...board import BoardDescription
from .attributes import Attribute, Link, Nodes, constant

_DEVICE_TREE = "/sys/firmware/devicetree/base"


def identity_files(board: BoardDescription, serial: str) -> Nodes:
    twin = board.section("twin")
    release, _, revision = board.l4t.partition(".")
    variant = "\n# KERNEL_VARIANT: oot" if int(release) >= 36 else ""

    def names(*values: str) -> Attribute:
        data = b"".join(value.encode() + b"\0" for value in values)
        return Attribute(lambda: data)

    yield f"{_DEVICE_TREE}/model", names(board.model)
    yield f"{_DEVICE_TREE}/compatible", names(*twin.get("compatible", board.compatible))
    yield f"{_DEVICE_TREE}/serial-number", names(serial)
    yield "/proc/device-tree", Link(_DEVICE_TREE)
    yield "/proc/sys/kernel/random/boot_id", constant(uuid.uuid4())
    yield "/proc/sys/kernel/osrelease", constant(twin["kernel_release"])
    yield (
        "/etc/nv_tegra_release",
        constant(
            f"# R{release} (release), REVISION: {revision}, GCID: 0, BOARD: {twin.get('release_board', 't186ref')}, "
            f"EABI: aarch64, DATE: simulated{variant}"
        ),
    )
    for path, text in twin.get("files", {}).items():
        yield path, constant(text)
