# SPDX-License-Identifier: Apache-2.0
"""Feeds the archive reader with damaged and hostile files, and stops at anything but one of its own errors.

Four ways to run it, over the same ``attempt``::

    python tests/fuzz/archive.py --seconds 60 --seed 0                 # random choices, nothing to install
    python tests/fuzz/archive.py --atheris CORPUS -max_total_time=600  # guided by coverage: pip install atheris
    python tests/fuzz/archive.py --replay CORPUS                       # what a corpus costs: outcomes, slowest, memory
    from jetdvfs.tests.fuzz.archive import attempt                     # one input, for a test

Inputs and their layers are those of ``inputs.py``. An input that breaks the reader is written to ``--failures``; made small,
it belongs into ``tests/fixtures/corpus``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

if "--atheris" in sys.argv:
    import atheris

    _instrumented = atheris.instrument_imports(include=["jetdvfs.kernels"])
else:
    _instrumented = contextlib.nullcontext()

with _instrumented:
    from jetdvfs.kernels.budget import Budget
    from jetdvfs.kernels.decompose import decompose
    from jetdvfs.kernels.errors import KernelsError
    from jetdvfs.kernels.inputs import parse_input
    from jetdvfs.kernels.network import Network
    from jetdvfs.tests.fuzz import inputs as fuzz_inputs

#: What a model may be given; the last byte of an input says which of these, and in which view it is decomposed.
INPUTS = [
    [parse_input(text) for text in texts]
    for texts in (
        ("1x3x64x64",),
        ("1x3x64x64", "16000:int", "true"),
        ("x=1x3x64x64", "k=3:int", "b=none"),
        ("1x3x64x64:float16", "2:int64=7,5", "nearest:str"),
        ("scalar:bool=true", "0.5:float", "1x3x64x64:int8"),
        ("prefill=512:int",),
        ("decode=4096:int",),
    )
]
BUDGET = Budget(steps=50_000, pickle_steps=100_000, calls=20_000, cpu_s=2.0)
#: What one input may take; the budget's wall time and the parser's own work.
SECONDS = 4.0
#: By how much one input may raise the most that the process ever held; it holds 60 MB under atheris.
GROWTH_MB = 140


def attempt(data: bytes) -> str:
    """Read one input; the name of how that ended.

    Raises:
        Exception: whatever the reader raises beyond its own errors.
        AssertionError: it took too long or too much memory.
    """
    return bounded(lambda: _read(data))


def _read(data: bytes) -> None:
    choice = data[-1] if data else 0
    file = fuzz_inputs.model_file(data)
    given = INPUTS[choice // 2 % len(INPUTS)] if choice % 16 > 7 else INPUTS[-1 if file.startswith(b"GGUF") else 0]
    network = decompose(io.BytesIO(file), given, optimized=choice % 2 == 1, budget=BUDGET)
    fits = len(network.reads) == (0 if network.runtime else len(network.launches))
    assert Network.from_json(json.loads(json.dumps(network.to_json()))).launches == network.launches, "what was saved"
    assert fits and all(writer < place for place, writers in enumerate(network.reads) for writer in writers), "who reads what"


def bounded(read: Callable[[], None]) -> str:
    """Read something; the name of how that ended: the reader's own error, or none.

    Raises:
        Exception: whatever the reader raises beyond its own errors.
        AssertionError: it took too long or too much memory.
    """
    began, before = time.process_time(), resident_mb()
    try:
        read()
        outcome = "read"
    except KernelsError as error:
        assert "\n" not in str(error), "an error of more than one line"
        outcome = type(error).__name__
    taken = time.process_time() - began
    assert taken < SECONDS, f"took {taken:.1f} s"
    grown = resident_mb() - before
    assert grown < GROWTH_MB, f"grew by {grown:.0f} MB"
    return outcome


def resident_mb() -> float:
    """The most memory this process has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(inputs: Iterable[bytes], failures: Path, attempt: Callable[[bytes], str] = attempt) -> int:
    """Attempt all inputs; the number that broke the reader."""
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    with contextlib.suppress(KeyboardInterrupt):  # what was tried until then is told
        for data in inputs:
            began = time.monotonic()
            try:
                outcome = attempt(data)
            except Exception as error:
                failures.mkdir(exist_ok=True)
                path = failures / hashlib.sha256(data).hexdigest()[:16]
                path.write_bytes(data)
                print(f"{path}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                outcome = "FAILED"
            slowest = max(slowest, time.monotonic() - began)
            outcomes[outcome] += 1
    cpu = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    counted = f"{outcomes.total()} inputs, {outcomes['FAILED']} failures, slowest {slowest:.2f} s, {cpu:.0f} s of CPU"
    print(f"{counted}, peak {resident_mb():.0f} MB: {dict(outcomes)}")
    return outcomes["FAILED"]


def at_random(seconds: float, seed: int) -> Iterable[bytes]:
    """Mutations of well-formed inputs, and random choices, for so long."""
    source, pool = random.Random(seed), fuzz_inputs.seeds()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if source.random() < 0.5:
            layer = source.randrange(fuzz_inputs.CONTAINER, len(fuzz_inputs.LAYERS))
            yield bytes([layer]) + source.randbytes(source.choice((20, 60, 200, 600)))
        else:
            yield fuzz_inputs.mutate(source.choice(pool), source)


def with_atheris(arguments: list[str]) -> None:
    """Coverage-guided, until libFuzzer's options say stop. The corpus folder starts with the well-formed inputs."""
    folders = [Path(argument) for argument in arguments if not argument.startswith("-")]
    for folder in folders[:1]:
        folder.mkdir(exist_ok=True)
        for data in fuzz_inputs.seeds():
            (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        textual = data[:1] and data[0] % len(fuzz_inputs.LAYERS) in (fuzz_inputs.SOURCE, fuzz_inputs.GRAPH_TEXT)
        if textual and seed % 2:
            return fuzz_inputs.mutate(data, random.Random(seed))[:max_size]
        mutated: bytes = atheris.Mutate(data, max_size)
        return mutated

    def once(data: bytes) -> None:
        attempt(data)

    atheris.Setup([sys.argv[0], *arguments], once, custom_mutator=mutator)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=Path, nargs="+", metavar="CORPUS", help="attempt the inputs in these folders once")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    arguments = parser.parse_args()
    if arguments.replay:
        files = [path for folder in arguments.replay for path in sorted(folder.iterdir())]
        return 1 if run((path.read_bytes() for path in files if path.exists()), arguments.failures) else 0
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return 1 if run(at_random(arguments.seconds, arguments.seed), arguments.failures) else 0


if __name__ == "__main__":
    if "--atheris" in sys.argv:
        with_atheris([argument for argument in sys.argv[1:] if argument != "--atheris"])
    sys.exit(main())
