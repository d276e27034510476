"""This machine's part in a pool: which store it uses, and as which host. A file in the state directory has it."""

from __future__ import annotations

import errno
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vgpumgr.errors import (
    NotPermittedError,
    PoolExistsError,
    PoolMemberError,
    PoolNotFoundError,
    PoolOutcomeError,
    PoolStoreError,
    PoolVersionError,
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
from vgpumgr.pool.serving import Server
from vgpumgr.pool.store.etcd import EtcdStore
from vgpumgr.pool.store.gateway import Endpoints, check_endpoints
from vgpumgr.pool.store.interface import At, Change, Compare, Delete, Put, Store, Transaction
from vgpumgr.pool.store.sqlite import SqliteStore
from vgpumgr.pool.store.steps import drive

FILE_NAME = "pool.json"
STORE_NAME = "pool.sqlite"
LOCK_NAME = "pool.lock"
#: the classes that a pool begins with
CLASSES = (
    ClassRecord("default"),
    ClassRecord("spread", "spread"),
    ClassRecord("whole", whole=True),
)
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

    def __init__(
        self,
        membership: Membership,
        store: Store,
        where: str,
        clock: Clock,
        lock: Path,
        boot: str,
    ) -> None:
        self.membership = membership
        #: held by the one process of this machine that serves
        self.lock = lock
        self.store = store
        self.where = where
        self.clock = clock
        #: the id of this boot of the machine
        self.boot = boot

    def view(self) -> View:
        """The pool as it is now. Raises PoolNotFoundError, PoolVersionError, PoolStoreError."""
        view = View(self.store.range(ROOT))
        self.record(view)
        return view

    def record(self, view: View) -> PoolRecord:
        """The pool's own record, which is of this version."""
        record = view.pool
        if record is None:
            raise PoolNotFoundError(
                "there is no pool in this store",
                why=f"the store is {self.where}",
                hint="vgpumgr pool init",
            )
        if record.version != VERSION:
            raise PoolVersionError(
                f"the pool has version {record.version}, and this vgpumgr has {VERSION}",
                why="neither reads what the other has written",
                hint="vgpumgr version, on the hosts of the pool",
            )
        return record

    def change(
        self, compares: Sequence[Compare], changes: Sequence[Change], refusal: VgpumgrError
    ) -> None:
        """Raises ``refusal`` where something has changed meanwhile, PoolStoreError."""
        if self.store.transact(Transaction(tuple(compares), tuple(changes))) is None:
            raise refusal

    def follow_up(self, is_answered: Callable[[View], bool]) -> View:
        """What has become of a change. Any process may lead: where none does, this one writes what follows. Returns
        after a while at the latest.
        """
        timing = self.record(self.view()).timing
        controller = Controller(
            f"command on {self.membership.host or 'a host'}", timing, self.clock.monotonic_s
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

    def serve(self, is_over: Callable[[], bool], report: Callable[[str], None]) -> None:
        """This host's part, until it is over: heartbeats, leases, and a controller that leads where no other does."""
        name = self.membership.host
        if name is None:
            raise PoolMemberError("this machine is no host of the pool", hint="vgpumgr pool join")
        timing = self._await_timing(is_over, report)
        if timing is None:
            return
        host = HostRecord(name, self.membership.machine)
        agent = HostAgent(host, timing, self.clock.monotonic_s, boot=self.boot)
        controller = Controller(name, timing, self.clock.monotonic_s)
        server = Server(self.store, name, agent, controller, self.clock.sleep, report)
        with lock_file(self.lock, 0, what="pool serve"):
            try:
                while not is_over():
                    server.run_round(timing.ttl_s / 3)
            finally:
                server.stop()

    def _await_timing(
        self, is_over: Callable[[], bool], report: Callable[[str], None]
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
                said = text
                self.clock.sleep(1.0)
        return None


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


def forget_membership(machine: Machine) -> None:
    """This machine is in no pool then. Raises NotPermittedError."""
    try:
        (machine.state_dir / FILE_NAME).unlink(missing_ok=True)
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
    clock, lock, boot = SleeplessClock(), machine.run_dir / LOCK_NAME, read_boot_id(machine)
    if membership.etcd is not None:
        store: Store = EtcdStore(membership.etcd, clock)
        return Pool(membership, store, ", ".join(membership.etcd.urls), clock, lock, boot)
    path: Path = machine.state_dir / STORE_NAME
    return Pool(membership, SqliteStore(path, clock, boot), str(path), clock, lock, boot)


@contextmanager
def open_pool(name: str | None) -> Iterator[Pool]:
    """The pool of this machine, or of the simulated one of that name. Raises PoolNotFoundError."""
    machine = find_machine(name)
    membership = read_membership(machine)
    if membership is None:
        raise PoolNotFoundError(
            "this host is in no pool", hint="vgpumgr pool init, or vgpumgr pool join --etcd URL"
        )
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
