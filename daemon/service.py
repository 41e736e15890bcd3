# SPDX-License-Identifier: Apache-2.0
"""``jetdvfsd``: puts the parts together, opens the sockets, serves until it is told to stop, gives the board back."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import grp
import logging
import os
import pwd
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import __version__
from ..kernels.errors import KernelsError
from ..profiles.bundle import find_bundles, read_manifest
from ..profiles.errors import BundleError, ProfilesError
from ..profiles.surface_cache import SurfaceCache
from . import notify
from .api import AdminApi, Api, Context
from .config import AXES, load_config
from .controller import Controller
from .demand import Meter
from .errors import DaemonError, HardwareBusy, UsageError
from .floors import FloorRules
from .hardware.board import Hardware
from .hardware.files import Files
from .hardware.timing import SystemClock
from .protocol import ADMIN_SOCKET_NAME, default_socket, one_line
from .server import Limits, Server
from .surfaces import Profile, Surfaces, find_profile
from .worker import Workers, WorkerSettings

log = logging.getLogger(__name__)

STATE_DIR = Path("/var/lib/jetdvfs")
BASELINE_NAME = "baseline.json"
_WRITES_KEPT = 64
_TEND_S = 0.5
_ENDING = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; returns its exit code. What keeps it from starting ends as one line on stderr."""
    args = _parser().parse_args(argv)
    # Whoever wants us to end before we serve has to wait until we can do so in order. Blocking the signals would not do: the
    # threads that numpy has started by now do not block them.
    asked_to_end: list[int] = []
    for number in _ENDING:
        signal.signal(number, lambda number, _: asked_to_end.append(number))
    _log_to_stderr()
    try:
        with _Daemon(args) as daemon:
            asyncio.run(daemon.serve(asked_to_end))
    except (DaemonError, KernelsError, ProfilesError) as error:
        log.critical("jetdvfsd: %s", one_line(error))
        return error.exit_code
    return 0


def default_state_dir() -> Path:
    """Where the baseline is kept: systemd's state directory, or ``/var/lib/jetdvfs``."""
    return Path(os.environ.get("STATE_DIRECTORY", "").split(":")[0] or STATE_DIR)


@contextlib.contextmanager
def locked_state(state_dir: Path) -> Iterator[None]:
    """Be the one process that sets clocks from this state directory.

    Raises:
        HardwareBusy: another one is.
        UsageError: the directory cannot be made or written.
    """
    try:
        state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"state directory {state_dir}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise HardwareBusy(f"another jetdvfsd holds {state_dir / 'lock'}") from None
    finally:
        os.close(handle)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jetdvfsd", description="Sets a Jetson's clocks to what applications need.")
    parser.add_argument("--version", action="version", version=f"jetdvfsd {__version__}")
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="where the board's /sys and /proc are")
    parser.add_argument("--config", type=Path, metavar="FILE", help="default: /etc/jetdvfs/jetdvfsd.yaml, if there is one")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="default: $JETDVFS_SOCKET or /run/jetdvfs/jetdvfs.sock")
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="where the baseline is kept; default: /var/lib/jetdvfs")
    parser.add_argument("--board", metavar="NAME", help="the board's description; default: detected")
    parser.add_argument("--profile", metavar="NAME|DIR", help="the bundle to predict with; default: the first for this board")
    return parser


def _log_to_stderr() -> None:
    """Log to stderr; for the journal, with the priority prefixes of sd-daemon(3)."""
    handler = logging.StreamHandler()
    if os.environ.get("JOURNAL_STREAM") or os.environ.get("NOTIFY_SOCKET"):
        for level, prefix in ((10, 7), (20, 6), (30, 4), (40, 3), (50, 2)):
            logging.addLevelName(level, f"<{prefix}>")
        handler.setFormatter(logging.Formatter("%(levelname)s%(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class _Daemon:
    """Everything from the lock on the state directory to the sockets; as a context manager it ends what it began."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> _Daemon:
        with contextlib.ExitStack() as stack:
            self._set_up(stack)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _set_up(self, stack: contextlib.ExitStack) -> None:
        args = self._args
        started_s = time.monotonic()
        config = load_config(args.config)
        for warning in config.warnings:
            log.warning("%s", warning)
        state_dir = args.state_dir or default_state_dir()
        stack.enter_context(locked_state(state_dir))
        writes: deque[tuple[str, str]] = deque(maxlen=_WRITES_KEPT)
        files = Files(args.root, lambda path, value: writes.append((path, value)))
        hardware = Hardware.probe(
            files,
            SystemClock(),
            board=args.board or config.board,
            baseline=state_dir.resolve() / BASELINE_NAME,
            leave=[AXES[axis] for axis in AXES if axis not in config.axes],
            clusters=config.clusters,
        )
        for note in hardware.notes:
            log.warning("%s", note)
        demands = Meter(files, hardware.description, time.monotonic, hardware.memory_hz, config.floors or FloorRules())
        self._controller = Controller(hardware, config, time.monotonic, demands)
        self._controller.recover()
        profile = _profile(args.profile or config.profile, hardware.description.name)
        self._workers = WorkerSettings(config.worker_user, config.worker_parallel, config.worker_timeout_s)
        self._context = Context(
            version=__version__,
            hardware=hardware,
            controller=self._controller,
            surfaces=Surfaces(
                Workers(self._workers),
                profile,
                _cache_dir(state_dir, config.worker_user),
                SurfaceCache(state_dir.resolve() / "surfaces"),
            ),
            config=config,
            writes=writes,
            started_s=started_s,
        )
        path = args.socket or default_socket()
        given = notify.listen_sockets()
        self._public = given.get("jetdvfs") or stack.enter_context(_listening(path, 0o660, config.socket_group))
        self._admin = given.get("jetdvfs-admin") or stack.enter_context(
            _listening(path.with_name(ADMIN_SOCKET_NAME), 0o600, None)
        )
        log.info(
            "%s, %s; listening on %s",
            hardware.description.title,
            f"profile {profile.manifest.name}{' (simulated)' if profile.manifest.simulated else ''}"
            if profile
            else "no profile",
            path,
        )

    async def serve(self, asked_to_end: Sequence[int] = ()) -> None:
        """Answer until SIGTERM or SIGINT, then give the board back; at once where one of them came already."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in _ENDING:
            loop.add_signal_handler(number, stop.set)
        if asked_to_end:
            stop.set()
        config = self._context.config
        server = Server(__version__, Limits(connections=config.connections))
        server.listen(self._public, Api(self._context))
        admin = AdminApi(self._context, self._args.config)
        server.listen(self._admin, admin, only_uids=frozenset({0, os.geteuid()}))
        background = [loop.create_task(self._context.surfaces.prepare()), loop.create_task(self._tend())]
        notify.notify("READY=1", "STATUS=Serving")
        await stop.wait()
        notify.notify("STOPPING=1", "STATUS=Giving the board back")
        self._controller.give_back()
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await server.close()

    async def _tend(self) -> None:
        """Sign of life to the service manager, and the controller's own upkeep."""
        watchdog_s = notify.watchdog_s()
        told = None
        while True:
            self._controller.tend()
            status = f"STATUS={len(self._controller.leases)} leases"
            if watchdog_s is not None or status != told:
                notify.notify("WATCHDOG=1", status)
                told = status
            await asyncio.sleep(min(_TEND_S, watchdog_s / 3) if watchdog_s else _TEND_S)


def _profile(wanted: str | None, board: str) -> Profile | None:
    """The profile asked for, or the first one for this board; None where there is none."""
    if wanted is not None:
        return find_profile(wanted, board)
    for name, path in find_bundles().items():
        try:
            if read_manifest(path).board == board:
                return find_profile(str(path), board)
        except BundleError as error:
            log.warning("profile %s is passed over: %s", name, one_line(error))
    log.warning("no profile for board %s is installed: configurations can be held, nothing can be predicted", board)
    return None


def _cache_dir(state_dir: Path, user: str) -> Path:
    """The folder in which workers keep converted models; theirs, so that they need no rights elsewhere."""
    cache = state_dir.resolve() / "cache"
    try:
        cache.mkdir(mode=0o755, exist_ok=True)
        if os.geteuid() == 0:
            account = pwd.getpwnam(user)
            os.chown(cache, account.pw_uid, account.pw_gid)
    except KeyError:
        raise UsageError(f"worker.user: there is no account {user!r}") from None
    except OSError as error:
        raise UsageError(f"cache directory {cache}: {error.strerror}") from error
    return cache


@contextlib.contextmanager
def _listening(path: Path, mode: int, group: str | None) -> Iterator[socket.socket]:
    """A listening socket at this path, which is gone again afterwards.

    Raises:
        UsageError: it cannot be made, or somebody answers there already.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with sock:
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if _answers(path):
                raise UsageError(f"socket {path}: another daemon answers on it")
            path.unlink(missing_ok=True)
            before = os.umask(0o777 & ~mode)
            try:
                sock.bind(os.fspath(path))
            finally:
                os.umask(before)
            if group is not None:
                os.chown(path, -1, grp.getgrnam(group).gr_gid)
            sock.listen(64)
        except KeyError:
            raise UsageError(f"socket_group: there is no group {group!r}") from None
        except OSError as error:
            raise UsageError(f"socket {path}: {error.strerror or error}") from error
        try:
            yield sock
        finally:
            path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
