# SPDX-License-Identifier: Apache-2.0
"""Write the reference networks of ``profiles/reference``: the ten of MIRAGE (SEC '21), as TorchScript files without weights.

They are what ``torch.jit.script`` makes of torchvision's networks, with every weight zero and the archive's entries
compressed: PyTorch loads and runs them, and they take kilobytes instead of a gigabyte. Needs torch and torchvision::

    python tests/make_reference_models.py profiles/reference
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

NETWORKS = (
    "alexnet",
    "densenet161",
    "googlenet",
    "inception_v3",
    "mnasnet1_0",
    "mobilenet_v2",
    "resnet18",
    "shufflenet_v2_x1_0",
    "squeezenet1_0",
    "vgg16",
)


def build(name: str) -> bytes:
    """The TorchScript archive of one torchvision network, weights zero."""
    import torch
    from oracle import torchvision

    options = {"init_weights": False} if name in {"googlenet", "inception_v3"} else {}
    network = getattr(torchvision().models, name)(weights=None, **options).eval()
    with torch.no_grad():
        for tensor in [*network.parameters(), *network.buffers()]:
            tensor.zero_()
    archive = io.BytesIO()
    torch.jit.save(torch.jit.script(network), archive)
    return archive.getvalue()


def compress(archive: bytes) -> bytes:
    """The same archive with its entries compressed and its debug entries left out."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(packed, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                copy = zipfile.ZipInfo(entry.filename)
                copy.compress_type = zipfile.ZIP_DEFLATED
                target.writestr(copy, source.read(entry), compresslevel=9)
    return packed.getvalue()


def main(folder: str) -> None:
    for name in NETWORKS:
        path = Path(folder, f"{name}.pt")
        path.write_bytes(compress(build(name)))
        print(f"{path}  {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(sys.argv[1])
