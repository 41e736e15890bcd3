# SPDX-License-Identifier: Apache-2.0
"""One model in one format: written, listed by jetdvfs, run by PyTorch, judged. In a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from jetdvfs.kernels.errors import KernelsError
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.tests.zoo import kept, reference
from jetdvfs.tests.zoo.comparison import ONNX, Dispatched, Judgement, judge
from jetdvfs.tests.zoo.kept import Evidence
from jetdvfs.tests.zoo.listing import Listed, listed
from jetdvfs.tests.zoo.rewritten import judge_rewritten
from jetdvfs.tests.zoo.table import Entry, Made

#: Bounds of listing one file: the growth of its address space, and its processor time.
_LISTING_BYTES, _LISTING_S = 512 << 20, 20
#: The largest file that is kept.
_KEPT_BYTES = 200 << 20
_ANOTHER = "another network"
_FORK = multiprocessing.get_context("fork")


def attempt(entry: Entry, how: str, seconds: float, keep: Path) -> dict[str, Any]:
    """The record of one model in one format; it takes at most so long, whatever happens in it.

    In ``keep`` is left what :func:`again` needs, and files whose lists are refused or wrong.
    """
    began = time.monotonic()
    record, trouble = apart(lambda: _attempted(entry, how, keep), seconds)
    told: dict[str, Any] = {"verdict": "not written", "why": trouble} if record is None else record
    return {"model": entry.title, "format": how} | told | {"seconds": round(time.monotonic() - began, 2)}


def apart(work: Callable[[], Any], seconds: float) -> tuple[Any, str]:
    """What work returns, done in a process of its own within so many seconds; or nothing, and how that ended."""
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_send, args=(work, sender), daemon=False)
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return None, f"takes longer than {seconds:g} s"
        return receiver.recv(), ""
    except EOFError:
        process.join()
        return None, f"its process ended with {process.exitcode}"
    finally:
        receiver.close()
        process.kill()
        process.join()


def _send(work: Callable[[], Any], sender: Connection) -> None:
    try:
        made = work()
    except BaseException as error:
        made = {"verdict": "not written", "why": said(error)}
    sender.send(made)
    sender.close()
    os._exit(0)  # without what packages do as they end


def said(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) < 300 else text[:140] + ' ... ' + text[-140:]}"


def _attempted(entry: Entry, how: str, keep: Path) -> dict[str, Any]:
    import torch

    from jetdvfs.tests.zoo import formats

    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="jetdvfs-zoo-"))
    try:
        made = entry.make()
        path = formats.write(made, how, folder)
        evidence = _evidence(entry, made, path, how)
        record = _judged(path, evidence, how)
        if how == "onnx-dynamo" and record["verdict"] == "wrong":
            told = _told(entry, made, evidence)
            other = _judged(path, told, how)
            evidence, record = (told, other) if other["verdict"] == "explained" else (evidence, record)
        kept.keep(keep, entry.title, how, path, evidence)
        if record["verdict"] in ("refused", "wrong") and path.stat().st_size < _KEPT_BYTES:
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, keep / f"{kept.name(entry.title, how)}{path.suffix}")
            record["inputs"] = [str(spec) for spec in evidence.inputs]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def again(title: str, how: str, keep: Path, before: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The record of a model in a format whose file and evidence are kept, listed and judged anew; None where they are not.

    What the record ``before`` says of the file itself still holds: whether it makes what its module makes.
    """
    began = time.monotonic()
    if before is not None and before["why"].startswith(_ANOTHER):
        return before | {"code": kept.code()}
    with tempfile.TemporaryDirectory(prefix="jetdvfs-zoo-") as folder:
        found = kept.find(keep, title, how, Path(folder))
        if found is None:
            return None
        record = _judged(*found, how, compared=before is not None and "launches" in before)
    return {"model": title, "format": how} | record | {"seconds": round(time.monotonic() - began, 2)}


def _evidence(entry: Entry, made: Made, path: Path, how: str) -> Evidence:
    specs = tuple(TensorSpec(tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in made.inputs)
    dispatched = _dispatched(entry, made, path, how)
    if how not in ONNX:
        return Evidence(specs, dispatched)
    return Evidence(specs, dispatched, tuple(tensor.numpy() for tensor in made.inputs))


def _told(entry: Entry, made: Made, evidence: Evidence) -> Evidence:
    """The same of a module that is told that it is exported, for code that asks does otherwise then (masks of transformers)."""
    from jetdvfs.tests.zoo import dispatched, formats

    fresh = entry.make().module
    with formats.as_exported():
        return replace(evidence, dispatched=dispatched.launches_of(fresh, fresh, made.inputs), exporting=True)


def _judged(path: Path, evidence: Evidence, how: str, *, compared: bool = False) -> dict[str, Any]:
    """What jetdvfs lists of a file, held against the evidence; the file makes what its module makes if that was compared."""
    answer = _listed(path, list(evidence.inputs))
    told: dict[str, Any] = {"code": kept.code()}
    if isinstance(answer, Judgement):
        judgement = _unless_broken(answer, path, evidence) if how in ONNX else answer
    else:
        (network, constant), took_s = answer
        theirs = evidence.dispatched
        told |= {"launches": len(network.launches), "run": len(theirs.launches), "listing_s": round(took_s, 3)}
        if how in ONNX:
            judgement = judge_rewritten(network, theirs, reference.nodes(path), constant)
            judgement = judgement if compared else _unless_another_network(judgement, path, evidence)
        else:
            judgement = judge(network, theirs)
    if evidence.exporting and judgement.verdict in ("equal", "explained"):
        reason = "the module does otherwise where it is exported"
        judgement = Judgement("explained", ", ".join(filter(None, (reason, judgement.why))))
    return {"verdict": judgement.verdict, "why": judgement.why} | told


def _unless_broken(judgement: Judgement, path: Path, evidence: Evidence) -> Judgement:
    """Exporters write files that nobody runs; ONNX's own reference ends where jetdvfs does."""
    place = re.search(r"\(at node ([^,)]+)", judgement.why)
    if place:
        broken, _ = apart(lambda: reference.fails_at(path, evidence.numbers, place[1]), 60)
        if isinstance(broken, str) and broken:
            return Judgement("not run", f"{judgement.why}; so says ONNX's reference: {broken}")
    return judgement


def _unless_another_network(judgement: Judgement, path: Path, evidence: Evidence) -> Judgement:
    """Exporters write files that make something else than the module does; such a file says nothing of its list."""
    own = list(evidence.dispatched.made)
    shapes, _ = apart(lambda: reference.made_by(path, evidence.numbers), 60)
    if isinstance(shapes, list) and sorted(shapes) != sorted(own):
        return Judgement("not run", f"{_ANOTHER}: it makes {shapes}, the module {own}")
    return judgement


def _listed(path: Path, inputs: list[TensorSpec]) -> tuple[Listed, float] | Judgement:
    made, trouble = apart(lambda: _bounded(path, inputs), 3 * _LISTING_S)
    if made is None:
        return Judgement("refused", f"no answer: {trouble}")
    if isinstance(made, Mapping):
        return Judgement("wrong", f"not an error of its own: {made['why']}")
    if isinstance(made, str):
        return Judgement("refused", made)
    network, took_s = made
    return network, took_s


def _bounded(path: Path, inputs: list[TensorSpec]) -> tuple[Listed, float] | str:
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _LISTING_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (_LISTING_S, _LISTING_S))
    began = time.process_time()
    try:
        return listed(path, inputs), time.process_time() - began
    except KernelsError as error:
        return str(error).removeprefix(f"{path}: ")


def _dispatched(entry: Entry, made: Made, path: Path, how: str) -> Dispatched:
    from jetdvfs.tests.zoo import dispatched, formats

    if how in ONNX:
        fresh = entry.make().module  # models remember what they were called with
        theirs = dispatched.launches_of(fresh, fresh, made.inputs)
        if theirs.looks:  # what code decides by data, it decides in another way for an exporter
            traced = entry.make().module
            with formats.as_traced():
                theirs = dispatched.launches_of(traced, traced, made.inputs)
        return theirs
    module, constants = formats.opened(path, how)
    return dispatched.launches_of(module, module, made.inputs, constants)
