"""This machine's part in a pool: which store it uses, and as which host. A file in the state directory has it."""

from __future__ import annotations

import errno
import json
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from vgpumgr.errors import (
    LockHeldError,
    NotPermittedError,
    PoolExistsError,
    PoolMemberError,
    PoolNotFoundError,
    PoolOutcomeError,
    PoolStoreError,
    VgpumgrError,
)
from vgpumgr.host.clock import Clock, SleeplessClock
from vgpumgr.host.files import PRIVATE, make_directory, replace_file
from vgpumgr.host.lock import lock_file
from vgpumgr.host.machine import Machine, find_machine, read_boot_id
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.frozen import dataclass
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.host import HostAgent
from vgpumgr.pool.control.records import (
    POOL,
    ROOT,
    VERSION,
    ClassRecord,
    GpuRecord,
    HostRecord,
    PoolRecord,
    Timing,
    View,
    format_record,
    put,
)
from vgpumgr.pool.local import has_ended, read_closed
from vgpumgr.pool.queue import QueueWatch
from vgpumgr.pool.recorder import LEDGER_NAME, Recorder
from vgpumgr.pool.serving import Server
from vgpumgr.pool.store.etcd import EtcdStore
from vgpumgr.pool.store.gateway import Endpoints, check_endpoints
from vgpumgr.pool.store.interface import At, Change, Compare, Delete, Put, Store, Transaction
from vgpumgr.pool.store.sqlite import SqliteStore
from vgpumgr.pool.store.steps import drive
from vgpumgr.pool.versions import check_version
from vgpumgr.state.leases import SeenPool

FILE_NAME = "pool.json"
STORE_NAME = "pool.sqlite"
LOCK_NAME = "pool.lock"
#: what the process that serves knew last
SEEN_NAME = "pool-seen.json"
#: the classes that a pool begins with
CLASSES = (
    ClassRecord("default"),
    ClassRecord("spread", "spread"),
    ClassRecord("whole", whole=True),
)
#: so often a command plans anew where others write at the same time
_TRIES = 30
#: so long a command waits for the pool to answer to what it wrote
_ANSWER_S = 3.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Membership:
    """What the file says. ``etcd`` is None for a pool of this host alone; ``host`` until this machine has joined."""

    machine: str
    etcd: Endpoints | None = None
    host: str | None = None
    #: the pool's own id, by which it is the same one at other URLs
    pool: str | None = None


class Pool:
    """An open pool, as this machine's commands see it."""

    #: whether a command has written here, or may have
    has_changed = False

    def __init__(
        self,
        membership: Membership,
        store: Store,
        where: str,
        clock: Clock,
        machine: Machine,
    ) -> None:
        self.membership = membership
        #: held by the one process of this machine that serves
        self.lock = machine.run_dir / LOCK_NAME
        self.store = store
        self.where = where
        self.clock = clock
        self.machine = machine

    def view(self) -> View:
        """The pool as it is now. Raises PoolNotFoundError, PoolVersionError, PoolStoreError."""
        view = View(self.store.range(ROOT))
        self.record(view)
        return view

    def record(self, view: View) -> PoolRecord:
        """The pool's own record, of a version that this program serves in."""
        record = view.pool
        if record is None:
            raise PoolNotFoundError(
                "there is no pool in this store",
                why=f"the store is {self.where}",
                hint="vgpumgr pool init",
            )
        check_version(record)
        return record

    def change(
        self, compares: Sequence[Compare], changes: Sequence[Change], refusal: VgpumgrError
    ) -> None:
        """Raises ``refusal`` where something has changed meanwhile, PoolStoreError."""
        if not self._write(compares, changes):
            raise refusal

    def _write(self, compares: Sequence[Compare], changes: Sequence[Change]) -> bool:
        try:
            made = self.store.transact(Transaction(tuple(compares), tuple(changes))) is not None
        except PoolOutcomeError:
            self.has_changed = True
            raise
        self.has_changed |= made and bool(changes)
        return made

    def change_anew(
        self,
        plan: Callable[[View], tuple[Sequence[Compare], Sequence[Change]]],
        refusal: VgpumgrError,
    ) -> None:
        """Writes what ``plan`` makes of the pool as it is, and plans again where another has written meanwhile. Raises
        what ``plan`` raises, PoolStoreError, and ``refusal`` where others write without end.
        """
        for attempt in range(_TRIES):
            if attempt:  # each a different while, so that they do not meet again
                self.clock.sleep(random.uniform(0, min(0.01 * 2**attempt, 0.5)))
            compares, changes = plan(self.view())
            if self._write(compares, changes):
                return
        raise refusal

    def follow_up(self, is_answered: Callable[[View], bool]) -> View:
        """What has become of a change. Any process may lead: where none does, this one writes what follows. Returns
        after a while at the latest.
        """
        timing = self.record(self.view()).timing
        controller = Controller(
            f"command on {self.membership.host or 'a host'}",
            timing,
            self.clock.monotonic_s,
            self.clock.wall_s,
        )
        end_s = self.clock.monotonic_s() + _ANSWER_S
        try:
            while True:
                drive(self.store, controller.step())
                view = self.view()
                if is_answered(view) or self.clock.monotonic_s() > end_s:
                    return view
                self.clock.sleep(_POLL_S)
        finally:
            drive(self.store, controller.resign())

    def join(self, name: str, gpus: Sequence[GpuRecord]) -> HostRecord:
        """Writes this machine and its GPUs. Raises PoolMemberError where another machine has the name."""
        view = self.view()
        known = view.hosts.get(name)
        machine = self.membership.machine
        if known is not None and known.id != machine:
            raise PoolMemberError(
                f"another machine is host {name} of the pool",
                held_by=(f"machine {known.id}",),
                hint="vgpumgr pool join --name OTHER",
            )
        host = known or HostRecord(name, machine)
        before = {gpu.index: gpu for gpu in view.gpus.values() if gpu.host == name}
        held = {
            index for lease in view.leases.values() if lease.host == name for index in lease.gpus
        }
        # whether one is closed the process that serves writes, as that of a card which moved
        closed = {gpu.uuid: gpu.closed for gpu in before.values()}
        gpus = [replace(gpu, closed=closed.get(gpu.uuid, "")) for gpu in gpus]
        changed = [
            gpu
            for gpu in gpus
            if gpu.index not in before
            or replace(gpu, grants=before[gpu.index].grants) != before[gpu.index]
        ]
        if taken := sorted(
            held & ({gpu.index for gpu in changed} | (before.keys() - {g.index for g in gpus}))
        ):
            leases = [
                f"claim {lease.claim}" for lease in view.leases.values() if lease.host == name
            ]
            raise PoolMemberError(
                f"GPU {taken[0]} of host {name} is not the one that it joined with",
                why="leases are on it",
                held_by=leases,
                hint="vgpumgr claim delete NAME",
            )
        gone = [gpu for index, gpu in before.items() if index not in {one.index for one in gpus}]
        touched = [*changed, *gone]
        self.change(
            (view.at(host.key), *(view.at(gpu.key) for gpu in touched)),
            (put(host), *(put(gpu) for gpu in changed), *(Delete(gpu.key) for gpu in gone)),
            PoolMemberError(f"host {name} was changed at the same time", hint="the same again"),
        )
        return host

    def serve(
        self,
        is_over: Callable[[], bool],
        report: Callable[[str], None],
        hear: Callable[[SeenPool], None] = lambda _seen: None,
        what: str = "pool serve",
    ) -> None:
        """This host's part, until it is over: heartbeats, leases, and a controller that leads where no other does.
        ``hear`` gets what is known of the pool whenever that changes, and a file has it. Raises LockHeldError where
        another process serves for this host, PoolMemberError, and where the store is a file PoolStoreError.
        """
        name = self.membership.host
        if name is None:
            raise PoolMemberError("this machine is no host of the pool", hint="vgpumgr pool join")

        def keep(seen: SeenPool) -> None:
            with suppress(OSError):  # a full disk: what is kept only shows, and is written again
                write_seen(self.machine, seen)
            hear(seen)

        with self._serving_alone(name, what):
            timing = self._await_timing(is_over, report, keep)
            if timing is None:
                return
            boot = read_boot_id(self.machine)
            host = HostRecord(name, self.membership.machine)
            agent = HostAgent(host, timing, self.clock.monotonic_s, boot=boot)
            before = self._read_seen(name)
            recorder = Recorder(
                self.machine, self.record(self.view()).id, name, self.clock,
                lambda: _open_store(self.machine, self.membership).store,
            )  # fmt: skip
            queue = QueueWatch(
                boot, self.clock.monotonic_s, recorder.note_wait, before.queue if before else None
            )
            controller = Controller(name, timing, self.clock.monotonic_s, self.clock.wall_s, queue)
            server = Server(
                self.store, name, agent, controller, self.clock.sleep, report, keep, is_over,
                before, lambda: read_closed(self.machine),
                lambda want: has_ended(want, self.machine), queue, recorder,
            )  # fmt: skip
            recorder.start()
            try:
                while not is_over():
                    server.run_round(timing.ttl_s / 3)
            except PoolMemberError as error:
                if agent.is_removed:
                    self._keep_removed(error)
                raise
            finally:
                server.stop()
                recorder.close()

    def _keep_removed(self, error: PoolMemberError) -> None:
        """The pool has ended the leases of this host, which it does not know any more."""
        name = self.membership.host or ""
        seen = SeenPool(name, error.error, self.clock.wall_s(), is_answering=False, is_removed=True)
        with suppress(OSError):
            write_seen(self.machine, seen)

    @contextmanager
    def _serving_alone(self, name: str, what: str) -> Iterator[None]:
        """Raises LockHeldError, which names the process that serves."""
        lock = lock_file(self.lock, 0, what=what)
        try:
            lock.__enter__()
        except LockHeldError as error:
            raise LockHeldError(
                f"another process serves as host {name} of the pool",
                cause=error.cause,
                why="one process of a host does: the daemon, unless its key pool.serve is false, or vgpumgr pool serve",
                held_by=error.held_by,
                hint="vgpumgr status",
            ) from error
        with ExitStack() as stack:
            stack.push(lock)
            yield

    def _await_timing(
        self,
        is_over: Callable[[], bool],
        report: Callable[[str], None],
        keep: Callable[[SeenPool], None],
    ) -> Timing | None:
        """As soon as the store answers: after a power cut its members may start later than this host."""
        said = ""
        while not is_over():
            try:
                return self.record(self.view()).timing
            except PoolStoreError as error:
                if self.membership.etcd is None:
                    raise
                text = f"waits for the store: {error.error}: {error.cause or error.why}"
                if text != said:
                    report(f"host {self.membership.host} {text}")
                    keep(self._describe_waiting(text))
                said = text
                self.clock.sleep(1.0)
        return None

    def _describe_waiting(self, text: str) -> SeenPool:
        """The leases are those of before."""
        host, since_s = self.membership.host or "", self.clock.wall_s()
        before = self._read_seen(host)
        if before is None:
            return SeenPool(host, text, since_s, is_answering=False)
        return replace(before, text=text, since_s=since_s, is_answering=False)

    def _read_seen(self, host: str) -> SeenPool | None:
        seen = read_seen(self.machine)
        return seen if seen is not None and seen.host == host else None


def read_seen(machine: Machine) -> SeenPool | None:
    """What the process that serves, or served last, knew of the pool. A file that cannot be read says nothing."""
    try:
        text = (machine.state_dir / SEEN_NAME).read_text(encoding="utf-8")
        return decode(SeenPool, json.loads(text))
    except (OSError, ValueError):
        return None


def write_seen(machine: Machine, seen: SeenPool) -> None:
    """Keeps what is known of the pool, for who only shows it. Raises OSError."""
    make_directory(machine.state_dir)
    replace_file(machine.state_dir / SEEN_NAME, json.dumps(encode(seen)) + "\n", PRIVATE)


def read_membership(machine: Machine) -> Membership | None:
    """What this machine's file says; None where there is none. Raises PoolStoreError, NotPermittedError."""
    path = machine.state_dir / FILE_NAME
    try:
        return decode(Membership, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise NotPermittedError(
            "cannot read which pool this host is in", cause=str(error), hint="the same with sudo"
        ) from error
    except (OSError, ValueError) as error:
        raise PoolStoreError(
            "cannot read which pool this host is in",
            cause=f"{path}: {error}",
            hint="vgpumgr pool join writes it anew, once the file is moved away",
        ) from error


def read_stamp(machine: Machine) -> tuple[int, int] | None:
    """Another one for each pool that the machine joins; None where it is in none."""
    try:
        status = (machine.state_dir / FILE_NAME).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def forget_membership(machine: Machine) -> None:
    """This machine is in no pool then. Raises NotPermittedError."""
    try:
        (machine.state_dir / FILE_NAME).unlink(missing_ok=True)
        (machine.state_dir / SEEN_NAME).unlink(missing_ok=True)
        (machine.state_dir / LEDGER_NAME).unlink(missing_ok=True)
    except OSError as error:
        raise NotPermittedError(
            "cannot forget which pool this host is in", cause=str(error), hint="the same with sudo"
        ) from error


def write_membership(machine: Machine, membership: Membership) -> None:
    """Raises NotPermittedError, PoolStoreError where there is no space."""
    try:
        make_directory(machine.state_dir)
        text = json.dumps(encode(membership), indent=2) + "\n"
        replace_file(machine.state_dir / FILE_NAME, text, PRIVATE, sync=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PoolStoreError(
                "cannot write which pool this host is in", cause=str(error), why="the disk is full"
            ) from error
        raise NotPermittedError(
            "cannot write which pool this host is in", cause=str(error), hint="the same with sudo"
        ) from error


def _open_store(machine: Machine, membership: Membership) -> Pool:
    clock = SleeplessClock()
    if membership.etcd is not None:
        store: Store = EtcdStore(membership.etcd, clock)
        return Pool(membership, store, ", ".join(membership.etcd.urls), clock, machine)
    path: Path = machine.state_dir / STORE_NAME
    store = SqliteStore(path, clock, read_boot_id(machine))
    return Pool(membership, store, str(path), clock, machine)


@contextmanager
def open_pool(name: str | None) -> Iterator[Pool]:
    """The pool of this machine, or of the simulated one of that name. Raises PoolNotFoundError."""
    with open_pool_of(find_machine(name)) as pool:
        yield pool


@contextmanager
def open_pool_of(machine: Machine, longest_s: float | None = None) -> Iterator[Pool]:
    """The pool that a machine is in. ``longest_s``: no member of an etcd is waited for longer. Raises
    PoolNotFoundError.
    """
    membership = read_membership(machine)
    if membership is None:
        raise PoolNotFoundError(
            "this host is in no pool", hint="vgpumgr pool init, or vgpumgr pool join --etcd URL"
        )
    etcd = membership.etcd
    if etcd is not None and longest_s is not None:
        etcd = replace(etcd, timeout_s=min(etcd.timeout_s, longest_s))
        membership = replace(membership, etcd=etcd)
    pool = _open_store(machine, membership)
    try:
        yield pool
    finally:
        pool.store.close()


@contextmanager
def init_pool(name: str | None, etcd: Endpoints | None, policy: str) -> Iterator[Pool]:
    """Makes a pool: in a file of this host, or in an etcd. Raises PoolExistsError, PoolStoreError."""
    machine = find_machine(name)
    known = read_membership(machine)
    if known is not None and _may_have_pool(machine, known):
        raise _in_pool(machine, known)
    if etcd is not None:
        check_endpoints(etcd)
    membership = Membership(known.machine if known else str(uuid.uuid4()), etcd)
    pool = _open_store(machine, membership)
    try:
        found = _make_records(pool, policy)
        write_membership(machine, replace(membership, pool=found))
        yield pool
    finally:
        pool.store.close()


def _may_have_pool(machine: Machine, known: Membership) -> bool:
    """Whether there is a pool where this machine's file says; of a store that does not answer it may be."""
    if known.etcd is None and not (machine.state_dir / STORE_NAME).exists():
        return False
    try:
        pool = _open_store(machine, known)
        try:
            return pool.store.get(POOL) is not None
        finally:
            pool.store.close()
    except PoolStoreError:
        return True


def _in_pool(machine: Machine, known: Membership) -> PoolExistsError:
    where = known.etcd.urls if known.etcd else (str(machine.state_dir / STORE_NAME),)
    return PoolExistsError(
        "this host is in a pool already",
        held_by=where,
        hint="vgpumgr pool status, or vgpumgr pool leave",
    )


def _make_records(pool: Pool, policy: str) -> str:
    """The new pool's id."""
    record = PoolRecord(str(uuid.uuid4()), VERSION, Timing())
    classes = [replace(one, policy=policy) if one.name == "default" else one for one in CLASSES]
    changes = (Put(POOL, format_record(record)), *(put(one) for one in classes))
    exists = PoolExistsError(
        "this store has a pool already",
        why="one store has one pool",
        held_by=(pool.where,),
        hint="vgpumgr pool join --etcd URL" if pool.membership.etcd else "vgpumgr pool join",
    )
    try:
        pool.change((At(POOL, 0),), changes, exists)
    except PoolOutcomeError:
        # where this is the record that is there, the answer only was lost
        found = pool.view().pool
        if found is None or found.id != record.id:
            raise
    return record.id


@contextmanager
def join_pool(
    name: str | None, etcd: Endpoints | None, host: str, gpus: Sequence[GpuRecord]
) -> Iterator[Pool]:
    """Makes this machine a host of a pool, or brings its GPUs up to date."""
    machine = find_machine(name)
    known = read_membership(machine)
    if known is None and etcd is None and not (machine.state_dir / STORE_NAME).exists():
        raise PoolNotFoundError(
            "this host knows no pool", hint="vgpumgr pool init, or vgpumgr pool join --etcd URL"
        )
    membership = known or Membership(_find_own_id(machine, etcd) or str(uuid.uuid4()), etcd)
    if etcd is not None:
        check_endpoints(etcd)
        if known is not None and known.etcd != etcd and known.host is not None:
            _check_same_pool(machine, known, etcd)
        membership = replace(membership, etcd=etcd)
    if membership.host not in (None, host):
        raise PoolMemberError(
            f"this machine is host {membership.host} of the pool already",
            hint=f"vgpumgr pool join --name {membership.host}",
        )
    if membership != known:
        # its id is kept before the pool knows it, so that the same machine can try again
        write_membership(machine, membership)
    with _restoring(machine, known):
        pool = _open_store(machine, membership)
        try:
            pool.join(host, gpus)
            record = pool.record(pool.view())
        except BaseException:
            pool.store.close()
            raise
    try:
        pool.membership = replace(membership, host=host, pool=record.id)
        write_membership(machine, pool.membership)
        yield pool
    finally:
        pool.store.close()


@contextmanager
def _restoring(machine: Machine, known: Membership | None) -> Iterator[None]:
    """What has failed leaves the machine in the pool that it knew before, or in none."""
    try:
        yield
    except PoolOutcomeError:
        raise  # the pool may know it by now
    except VgpumgrError:
        if known is None:
            (machine.state_dir / FILE_NAME).unlink(missing_ok=True)
        elif read_membership(machine) != known:
            write_membership(machine, known)
        raise


def _find_own_id(machine: Machine, etcd: Endpoints | None) -> str | None:
    """A pool in a file of this machine has no other: its host is this one, also where the membership was lost."""
    if etcd is not None:
        return None
    pool = _open_store(machine, Membership(""))
    try:
        return next((host.id for host in View(pool.store.range(ROOT)).hosts.values()), None)
    finally:
        pool.store.close()


def _check_same_pool(machine: Machine, known: Membership, etcd: Endpoints) -> None:
    """Other URLs are those of another pool, unless they have its id. Raises PoolExistsError."""
    if known.etcd is None or known.pool is None:
        raise _in_pool(machine, known)
    pool = _open_store(machine, replace(known, etcd=etcd))
    try:
        if pool.record(pool.view()).id != known.pool:
            raise _in_pool(machine, known)
    finally:
        pool.store.close()
