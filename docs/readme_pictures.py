# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of README.md: a plan's trade-off, and ``jetdvfs top``, on a simulated AGX Xavier.

python docs/readme_pictures.py
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from html import escape
from pathlib import Path

import jetdvfs
from jetdvfs.docs.web_picture import Part, play
from jetdvfs.profiles.reference import reference_input, reference_model
from jetdvfs.profiles.twin.cli.demo import DemoBoard

FOLDER = Path(__file__).resolve().parent
BOARD, PROFILE = "agx-xavier", "agx-xavier-sim"
SECONDS = 30.0
PARTS = (
    Part("resnet18", "latency_ms=40", 15.0, "obstacles ahead", 0.0, 1.0),
    Part("mobilenet_v2", "min-energy", 8.0, "who is at the door", 0.1, 1.0),
)
CHARACTER, LINE = 7.25, 17  # in pixels


def trade_off(path: Path) -> None:
    """Draw the plan of `make demo` for ResNet-18 within 15 ms."""
    from matplotlib import pyplot
    from PIL import Image

    network = jetdvfs.decompose(reference_model("resnet18"), [reference_input("resnet18")])
    surface = jetdvfs.load_profile(PROFILE).surface(network)
    _, axes = pyplot.subplots(figsize=(8, 4.4), layout="constrained")
    surface.plot(surface.plan("latency_ms=15", confidence=0.95), ax=axes)
    pyplot.savefig(path, dpi=110)
    Image.open(path).convert("RGB").quantize(220).save(path, optimize=True)


def top(path: Path) -> None:
    """Draw ``jetdvfs top`` while two applications run."""
    with DemoBoard(BOARD, 0, PROFILE, "auto") as stage, stage.start_daemon():
        actors = [threading.Thread(target=play, args=(part, stage, SECONDS), daemon=True) for part in PARTS]
        for actor in actors:
            actor.start()
        time.sleep(0.9 * SECONDS)
        command = [sys.executable, "-m", "jetdvfs.daemon.cli", "top", "--once", "--socket", str(stage.socket)]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for actor in actors:
            actor.join()
    path.write_text(terminal("$ jetdvfs top        # on a simulated board\n" + shown), encoding="utf-8")


def terminal(text: str, columns: int = 130) -> str:
    """SVG of a terminal with this text; longer lines are cut."""
    lines = [line if len(line) <= columns else f"{line[: columns - 1]}…" for line in text.splitlines()]
    width, height = max(map(len, lines)) * CHARACTER + 30, len(lines) * LINE + 26
    size = f'viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12" fill="#e6e6e6">',
            '<rect width="100%" height="100%" rx="6" fill="#1e2430"/>',
            *(
                f'<text x="15" y="{25 + LINE * number}" xml:space="preserve" textLength="{len(line) * CHARACTER:.0f}">'
                f"{escape(line)}</text>"
                for number, line in enumerate(lines)
                if line
            ),
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    trade_off(FOLDER / "trade-off.png")
    top(FOLDER / "top.svg")
