# SPDX-License-Identifier: Apache-2.0
"""Draw ``jetdvfs web`` for its page: a simulated AGX Xavier, the real daemon, and three applications.

python docs/web_picture.py [--seconds 90] [--dark] [--width 1180] [--height 1500] [--out docs/web.png]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from jetdvfs.daemon import qos
from jetdvfs.profiles.adapt.application import Application
from jetdvfs.profiles.reference import reference_input, reference_model, reference_network
from jetdvfs.profiles.twin.cli.demo import DemoBoard
from jetdvfs.tests.support.browser import Browser

PICTURE = Path(__file__).resolve().with_name("web.png")


class Part(NamedTuple):
    """Request of an application, and its start and end as shares of the time."""

    network: str
    target: str
    fps: float
    reason: str
    comes: float
    goes: float


PARTS = (
    Part("resnet18", "latency_ms=20", 20.0, "obstacles ahead", 0.08, 1.0),
    Part("mobilenet_v2", "min-energy", 8.0, "who is at the door", 0.3, 1.0),
    Part("googlenet", "latency_ms=18", 5.0, "reads a label", 0.45, 0.65),
)
HOT = (0.75, 0.95)
"""Start and end of clock throttling, as shares of the time."""


def play(part: Part, stage: DemoBoard, seconds: float) -> None:
    began = time.monotonic()
    time.sleep(part.comes * seconds)
    shape = reference_input(part.network).shape
    with Application(stage.application_port) as board:
        network = board.load(reference_network(part.network))
        with qos.hold(
            reference_model(part.network),
            [shape],
            part.target,
            fps=part.fps,
            reason=part.reason,
            app=part.network,
            socket_path=stage.socket,
        ) as lease:
            while time.monotonic() < began + part.goes * seconds:
                frame = board.frame(network)
                lease.report(frame["latency_ms"])
                time.sleep(max(0.0, 1 / part.fps - frame["latency_ms"] / 1e3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--height", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=PICTURE)
    args = parser.parse_args()
    with DemoBoard("agx-xavier", 0, "agx-xavier-sim", "auto", 2) as stage, stage.start_daemon() as client:
        for part in PARTS:  # planned once before, so that all come when they should
            client.plan(
                client.load(reference_model(part.network), [reference_input(part.network).shape]), part.target, fps=part.fps
            )
        command = [sys.executable, "-m", "jetdvfs.daemon.cli", "web", "--port", "0", "--socket", str(stage.socket)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as web:
            assert web.stdout is not None
            with Browser(args.width, args.height, dark=args.dark) as browser:
                browser.open(web.stdout.readline().strip())
                actors = [threading.Thread(target=play, args=(part, stage, args.seconds), daemon=True) for part in PARTS]
                for actor in actors:
                    actor.start()
                with Application(stage.application_port) as board:
                    time.sleep(HOT[0] * args.seconds)
                    board.request("fault", kind="throttle", share=0.6)
                    time.sleep((HOT[1] - HOT[0]) * args.seconds)
                args.out.write_bytes(browser.picture())
                print("\n".join(browser.console()), end="")
                for actor in actors:
                    actor.join()
            web.terminate()
    print(f"{args.out}: {args.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
