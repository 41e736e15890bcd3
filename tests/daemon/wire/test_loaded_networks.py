# SPDX-License-Identifier: Apache-2.0
"""Models that an application changes between: each is read once, and not too many stay loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.wire.client import Client, LoadedModel
from jetdvfs.daemon.wire.loaded_networks import LoadedNetworks, OpenModel


class Reading:
    """A connection that notes what it was asked to read and to forget."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.forgotten: list[str] = []

    def load_descriptor(self, descriptor: int, inputs: Any, *, name: str, accept_boundary: Any) -> LoadedModel:
        self.read.append(name)
        return LoadedModel(cast(Any, self), {"network": str(len(self.read)), "name": name, "launches": 1})

    def load_network(self, network: Any, *, accept_boundary: Any) -> LoadedModel:
        self.read.append(f"list of {len(network['launches'])}")
        return LoadedModel(cast(Any, self), {"network": str(len(self.read)), "name": "list", "launches": 1})

    def call(self, method: str, parameters: dict[str, str]) -> None:
        assert method == "Unload"
        self.forgotten.append(parameters["network"])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_model_is_read_once_for_each_of_its_inputs(model: Path) -> None:
    client = Reading()
    loaded = LoadedNetworks(cast(Client, client), ())
    for _ in range(10):
        for phase in ("prefill=512:int", "decode=2048:int"):
            opened = OpenModel(model, [phase])
            loaded.network(opened)
            opened.close()
    assert client.read == ["model", "model"] and client.forgotten == []
    model.write_bytes(b"GGUF, another one")
    loaded.network(OpenModel(model, ["prefill=512:int"]))
    assert len(client.read) == 3


def test_what_was_used_longest_ago_is_forgotten(model: Path) -> None:
    client = Reading()
    loaded = LoadedNetworks(cast(Client, client), ())
    for tokens in [*range(1, 9), 1, *range(9, 12)]:
        loaded.network(OpenModel(model, [f"decode={tokens}:int"]))
    assert len(client.read) == 11 and client.forgotten == ["2", "3", "4"]


def test_a_list_of_launches_is_handed_over_and_any_other_file_is_read_by_the_daemon(tmp_path: Path) -> None:
    client = Reading()
    for number, text in enumerate(('{"launches": [1, 2]}', '{"Layers": []}', "[" * 100_000, "{", "\ud800")):
        path = tmp_path / f"{number}.json"
        path.write_text(text, errors="surrogatepass")
        LoadedNetworks(cast(Client, client), ()).network(OpenModel(path, ()))
    assert client.read == ["list of 2", "1", "2", "3", "4"]


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^model .*gone.pt: No such file or directory$"):
        OpenModel(tmp_path / "gone.pt", ["1x3"]).descriptor()
