# SPDX-License-Identifier: Apache-2.0
"""The client and its hooks: what applications see, above all when there is no daemon or none any more."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetdvfs import Client, qos
from jetdvfs.daemon.descriptors.disposal import DescriptorGrant
from jetdvfs.daemon.errors import HardwareRefused, InputError, NoDaemon, UsageError
from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.calls import PUBLIC
from jetdvfs.daemon.wire.serving.session import Session
from jetdvfs.tests.support.daemons.served import Served
from jetdvfs.tests.support.speed import multiples_of_unpickling

CLOCKS = {"cpu_khz": 1190400, "gpu_hz": 675750000, "emc_hz": 1600000000}


class Scripted:
    """A daemon that notes what it was asked and grants every lease."""

    def __init__(self) -> None:
        self.interface = PUBLIC
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], attached: DescriptorGrant | None
    ) -> dict[str, Any]:
        self.calls.append((method, parameters))
        if method == "Hold":
            if parameters.get("reason") == "refuse":
                raise HardwareRefused("set_freq: refused")
            return {"lease": "7", "plan": None, "applied": {"requested": parameters.get("configuration")}}
        if method == "LoadModel":
            return {"network": {"network": "n1", "name": parameters["name"], "launches": int(attached is not None)}}
        return {}

    def closed(self, session: Session) -> None:
        self.connections -= 1

    def frames(self) -> int:
        return sum(len(report["latency_ms"]) for report in self.asked("Report"))

    def asked(self, method: str) -> list[dict[str, Any]]:
        return [parameters for name, parameters in self.calls if name == method]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served[Scripted]]:
    served = Served(tmp_path / "socket", Scripted())
    monkeypatch.setenv("JETDVFS_SOCKET", str(served.path))
    yield served
    served.stop()


def soon(condition: Any) -> bool:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


def test_without_a_daemon_it_says_so_with_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(NoDaemon, match="no daemon answers on") as caught:
        Client(tmp_path / "nothing")
    assert caught.value.exit_code == 6


def test_when_many_connect_at_once_it_waits_for_its_place(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as others:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(0)
        others.enter_context(socket.socket(socket.AF_UNIX)).connect(str(tmp_path / "socket"))
        letting_in = threading.Timer(0.2, lambda: others.enter_context(listener.accept()[0]))
        letting_in.start()
        with Client(tmp_path / "socket"):
            letting_in.join()
        # That one is in the queue still.
        with pytest.raises(NoDaemon, match="no daemon answers"):
            Client(tmp_path / "socket")


def test_a_lease_is_released_at_the_end_of_its_block(daemon: Served[Scripted]) -> None:
    with Client() as client:
        with pytest.raises(KeyError), client.hold(configuration=CLOCKS, reason="test"):
            raise KeyError
        assert daemon.service.asked("Release") == [{"lease": "7"}]


def test_a_lease_whose_daemon_went_away_ends_quietly(daemon: Served[Scripted]) -> None:
    with Client() as client, client.hold(configuration=CLOCKS) as lease:
        daemon.stop()
        for _ in range(100):
            with qos.frame(lease):
                pass
    with pytest.raises(NoDaemon):
        client.status()


def test_frames_are_timed_and_reported_a_few_times_a_second_and_at_the_end(daemon: Served[Scripted]) -> None:
    with qos.hold(configuration=CLOCKS) as lease:
        for _ in range(40):
            with qos.frame(lease) as frame:
                time.sleep(0.001)
            assert 1.0 <= frame.latency_ms < 100
        assert soon(lambda: daemon.service.frames() == 40)
        assert len(daemon.service.asked("Report")) <= 2
        for _ in range(8):
            lease.report(1.5)
    assert daemon.service.frames() == 48
    assert all(latency >= 1.0 for report in daemon.service.asked("Report") for latency in report["latency_ms"])
    assert lease.dropped == 0


def test_what_is_no_latency_is_not_reported_and_does_no_harm(daemon: Served[Scripted]) -> None:
    with qos.hold(configuration=CLOCKS) as lease:
        for wrong in (float("nan"), float("inf"), -1.0, "fast", None):
            lease.report(wrong)  # type: ignore[arg-type]
        lease.flush()
        lease.report(2.5)
        lease.flush()
        assert soon(lambda: daemon.service.frames() == 1)


def test_a_frame_that_fails_is_not_reported(daemon: Served[Scripted]) -> None:
    with qos.hold(configuration=CLOCKS) as lease, pytest.raises(ZeroDivisionError), qos.frame(lease):
        raise ZeroDivisionError
    assert daemon.service.asked("Report") == []


@pytest.mark.alone
def test_a_frame_costs_little() -> None:
    with qos.hold(configuration=CLOCKS, required=False, socket_path="/nonexistent") as lease:

        def thousand() -> None:
            for _ in range(1000):
                with qos.frame(lease):
                    pass

        assert multiples_of_unpickling(thousand) < [1.2]


def test_an_application_that_can_do_without_runs_without(tmp_path: Path) -> None:
    with qos.hold("model.pt", ["1x3x8x8"], "latency_ms=20", required=False, socket_path=tmp_path / "nothing") as lease:
        assert lease.id == "" and lease.plan is None and lease.applied is None
        with qos.frame(lease):
            pass
    with pytest.raises(NoDaemon), qos.hold(configuration=CLOCKS, socket_path=tmp_path / "nothing"):
        raise AssertionError


def test_a_refusal_reaches_even_an_application_that_can_do_without(daemon: Served[Scripted]) -> None:
    with pytest.raises(HardwareRefused, match="set_freq"), qos.hold(configuration=CLOCKS, reason="refuse", required=False):
        raise AssertionError


def test_a_model_travels_as_a_descriptor_and_its_name_is_the_file_s(daemon: Served[Scripted], tmp_path: Path) -> None:
    path = tmp_path / "resnet.pt"
    path.write_bytes(b"x")
    with Client() as client:
        network = client.load(path, ["1x3x224x224", "1x128:int64", (2, 3), {"shape": [1], "dtype": "bool"}])
        assert network.info == {"network": "n1", "name": "resnet", "launches": 1}
        (asked,) = daemon.service.asked("LoadModel")
        assert asked["inputs"] == [
            {"shape": [1, 3, 224, 224]},
            {"shape": [1, 128], "dtype": "int64"},
            {"shape": [2, 3]},
            {"shape": [1], "dtype": "bool"},
        ]
        with pytest.raises(InputError, match="No such file"):
            client.load(tmp_path / "missing.pt", ["1"])
        for wrong in (None, 5, (1, 2.5), {"dtype": "int64"}):
            with pytest.raises(UsageError, match="expected a shape"):
                client.load(path, [wrong])


@pytest.mark.parametrize("item", ["1x-3", "1xtwo", "", "1x3:float31", "0x3", (1, -3), {"shape": [1], "dtype": "tuple"}])
def test_an_input_that_cannot_be_is_refused_before_the_daemon_is_asked(
    item: object, daemon: Served[Scripted], tmp_path: Path
) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"x")
    with Client() as client, pytest.raises(InputError, match=r"^input .*(1x3x224x224|leaves nothing to run)") as caught:
        client.load(path, [item])
    assert "\n" not in str(caught.value) and not daemon.service.asked("LoadModel")


def test_a_scalar_is_an_input(daemon: Served[Scripted], tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"x")
    with Client() as client:
        client.load(path, ["scalar:int64"])
    assert daemon.service.asked("LoadModel")[0]["inputs"] == [{"shape": [], "dtype": "int64"}]


def test_a_configuration_may_be_given_as_text(daemon: Served[Scripted]) -> None:
    with Client() as client:
        for text in ("1190.4,905.25,1600", "1190400,905250000,1600000000"):
            client.hold(configuration=text)
        for wrong in ("1190.4,905.25", "1190.4,905.25,fast", "1190.4,-905.25,1600", (1, 2)):
            with pytest.raises(UsageError, match=r"configuration .*expected"):
                client.hold(configuration=wrong)
    assert [asked["configuration"] for asked in daemon.service.asked("Hold")] == [
        {"cpu_khz": 1190400, "gpu_hz": 905250000, "emc_hz": 1600000000}
    ] * 2


def test_where_a_list_may_end_is_said_by_name(daemon: Served[Scripted], tmp_path: Path) -> None:
    path = tmp_path / "detector.pt"
    path.write_bytes(b"x")
    with Client() as client:
        client.load(path, ["1"], accept_boundary=["torchvision::nms", "aten::item"])
        client.load(path, ["1"], accept_boundary="torchvision::nms")
        client.load(path, ["1"])
    with qos.hold(path, ["1"], "min-energy", accept_boundary=["prim::If"]):
        pass
    asked = [parameters.get("accept_boundary") for parameters in daemon.service.asked("LoadModel")]
    assert asked == [["torchvision::nms", "aten::item"], ["torchvision::nms"], None, ["prim::If"]]


def test_an_input_may_be_given_as_a_tensor(daemon: Served[Scripted], tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "model.pt"
    path.write_bytes(b"x")
    with Client() as client:
        client.load(path, [numpy.zeros((1, 2), numpy.float16)])
    assert daemon.service.asked("LoadModel")[0]["inputs"] == [{"shape": [1, 2], "dtype": "float16"}]


def test_a_call_too_long_for_the_daemon_is_refused_before_it_is_sent(daemon: Served[Scripted]) -> None:
    with Client() as client:
        with pytest.raises(UsageError, match="at most"):
            client.load_network({"launches": ["x" * protocol.MESSAGE_BYTES]})
        client.call("Status", {})


def test_texts_are_cut_to_what_the_daemon_takes(daemon: Served[Scripted]) -> None:
    with Client() as client:
        client.hold(configuration=(1, 2, 3), reason="r" * 1000, app="a" * 1000)
    (asked,) = daemon.service.asked("Hold")
    assert len(asked["reason"]) == len(asked["app"]) == protocol.TEXT_CHARACTERS
    assert asked["configuration"] == {"cpu_khz": 1, "gpu_hz": 2, "emc_hz": 3}
