# SPDX-License-Identifier: Apache-2.0
"""Enabled units that set clocks are found in their files, whatever they are called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.system.rivals import find_rivals, who_sets

WANTS = "etc/systemd/system/multi-user.target.wants"


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def unit(root: Path, name: str, command: str, *, folder: str = "usr/lib/systemd/system", enabled: bool = True) -> None:
    put(root, f"{folder}/{name}", f"[Service]\nType=oneshot\nExecStart={command}\n")
    if enabled:
        enable(root, name, folder)


def enable(root: Path, name: str, folder: str = "usr/lib/systemd/system", link: str = "") -> None:
    (root / WANTS).mkdir(parents=True, exist_ok=True)
    (root / WANTS / (link or name)).symlink_to(f"/{folder}/{name}")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("/usr/bin/jetson_clocks", "jetson_clocks"),
        ("/bin/sh -c 'sleep 10; \\\n  jetson_clocks --fan'", "jetson_clocks"),
        ("-/usr/sbin/nvpmodel -f /etc/nvpmodel.conf -m 0", "nvpmodel -f /etc/nvpmodel.conf -m 0"),
        ("/usr/bin/cpupower frequency-set -g performance", "cpupower"),
        ("/usr/sbin/tlp init start", "tlp"),
        ("/usr/sbin/tuned -l -P", "tuned"),
        ("/usr/libexec/power-profiles-daemon", "power-profiles-daemon"),
    ],
)
@pytest.mark.parametrize("folder", ["etc/systemd/system", "lib/systemd/system", "usr/lib/systemd/system"])
def test_a_unit_of_any_name_that_sets_clocks_is_found(command: str, found: str, folder: str, tmp_path: Path) -> None:
    unit(tmp_path, "cluster-init.service", command, folder=folder)
    assert find_rivals(tmp_path) == {"cluster-init.service": found}


def test_what_a_unit_runs_by_a_script_a_timer_a_template_or_a_drop_in_counts(tmp_path: Path) -> None:
    unit(tmp_path, "perf.service", "/opt/perf.sh")
    put(tmp_path, "opt/perf.sh", "#!/bin/sh\n# tuned\nnvpmodel -m 2\n")
    unit(tmp_path, "later.service", "/usr/bin/jetson_clocks", enabled=False)
    put(tmp_path, "usr/lib/systemd/system/later.timer", "[Timer]\nOnBootSec=60\n")
    enable(tmp_path, "later.timer")
    unit(tmp_path, "pin@.service", "/usr/bin/jetson_clocks", enabled=False)
    enable(tmp_path, "pin@.service", link="pin@max.service")
    unit(tmp_path, "camera.service", "/usr/bin/camera")
    put(tmp_path, "etc/systemd/system/camera.service.d/fast.conf", "[Service]\nExecStartPre=/usr/bin/jetson_clocks\n")
    put(tmp_path, "etc/rc.local", "#!/bin/sh\njetson_clocks\n")
    expected = dict.fromkeys(("camera", "later", "pin@max", "rc-local"), "jetson_clocks") | {"perf": "nvpmodel -m 2"}
    assert find_rivals(tmp_path) == {f"{name}.service": command for name, command in sorted(expected.items())}


def test_what_is_disabled_masked_only_shows_or_is_ours_does_not_count(tmp_path: Path) -> None:
    unit(tmp_path, "disabled.service", "/usr/bin/jetson_clocks", enabled=False)
    unit(tmp_path, "masked.service", "/usr/bin/jetson_clocks")
    (tmp_path / "etc/systemd/system/masked.service").symlink_to("/dev/null")
    unit(tmp_path, "shows.service", "/usr/bin/jetson_clocks --show")
    unit(tmp_path, "nvpmodel.service", "/usr/sbin/nvpmodel -m 0")
    unit(tmp_path, "speaks.service", "/opt/speaks.sh")
    put(tmp_path, "opt/speaks.sh", "#!/bin/sh\necho finely tuned settings\n")
    assert find_rivals(tmp_path) == {}


def test_a_process_that_has_a_clock_s_file_open_may_have_set_it(tmp_path: Path) -> None:
    put(tmp_path, "sys/gpu/max_freq", "1")
    program = "import sys; file = open(sys.argv[1], 'r+'); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "sys/gpu/max_freq")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (said,) = (text for text in who_sets(["/sys/gpu/max_freq"], tmp_path) if f"pid {process.pid}" in text)
        assert said.startswith(sys.executable)
        assert not [text for text in who_sets(["/sys/gpu/min_freq"], tmp_path) if f"pid {process.pid}" in text]
        process.kill()


def test_a_command_that_sets_clocks_and_runs_may_have_set_them(tmp_path: Path) -> None:
    put(tmp_path, "jetson_clocks", "#!/bin/sh\necho; read line\n")
    with subprocess.Popen(
        ["/bin/sh", str(tmp_path / "jetson_clocks")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert [text for text in who_sets((), tmp_path) if text.startswith(f"jetson_clocks (pid {process.pid}")]
        process.kill()
