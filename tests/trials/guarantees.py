# ruff: noqa: E501 -- lines of the sources, as they are
"""What holds a worker, each with the change of the source that takes it away and the tests that must then fail."""

from __future__ import annotations

from dataclasses import dataclass

SANDBOX_C = "vgpumgr/virtio/native/keeper/sandbox.c"
BECOME_C = "vgpumgr/virtio/native/keeper/become.c"
LOG_C = "vgpumgr/virtio/native/keeper/log.c"
FILTER_C = "vgpumgr/virtio/native/worker/filter.c"
SANDBOX_PY = "vgpumgr/virtio/sandbox.py"
NODES_PY = "vgpumgr/host/gpu_nodes.py"
CMAKE = "CMakeLists.txt"
_TRANSPORT = "vgpumgr/virtio/native/transport"
RING_H = f"{_TRANSPORT}/ring.h"
FRAME_C = f"{_TRANSPORT}/worker_frame.c"
SERIAL_C = f"{_TRANSPORT}/worker_serial.c"
OBJECTS_C = "vgpumgr/virtio/native/worker/objects.c"
LEDGER_C = "vgpumgr/virtio/native/worker/ledger.c"
VIRTUAL_C = "vgpumgr/virtio/native/worker/virtual.c"
ARRAYS_C = "vgpumgr/virtio/native/worker/ops_array.c"
GATE_C = "vgpumgr/virtio/native/worker/gate.c"
HOSTS_C = "vgpumgr/virtio/native/worker/hosts.c"
OPS_GRAPH_C = "vgpumgr/virtio/native/worker/ops_graph.c"
OPS_MEMORY_C = "vgpumgr/virtio/native/worker/ops_memory.c"
CHANNEL_C = "vgpumgr/virtio/native/keeper/channel.c"
CLIENT_C = "vgpumgr/virtio/native/guestd/client.c"
CONTROL_C = "vgpumgr/virtio/native/guestd/control.c"
EXPORTS_C = f"{_TRANSPORT}/worker_exports.c"

_SANDBOX = "tests/unit/test_worker_sandbox.py"
_ESCAPES = "tests/unit/test_worker_escapes.py"
_FILTER = "tests/unit/test_filter_table.py"
_HARDENED = "tests/unit/test_hardened.py"
FACTS = (f"{_SANDBOX}::test_every_fact_holds_of_a_worker_that_serves",)
NOT_CALLERS = (f"{_SANDBOX}::test_limits_and_descriptors_are_not_the_callers",)
OWN_USER = (f"{_SANDBOX}::test_each_worker_of_a_host_has_a_user_of_its_own",)
NO_SHARED_USER = (f"{_SANDBOX}::test_channels_of_one_host_never_share_a_user",)
NODES = (f"{_SANDBOX}::test_a_worker_sees_the_nodes_of_its_gpu_and_its_instance_only",)
UMASK = (f"{_SANDBOX}::test_a_strict_umask_is_not_in_the_way",)
CONFINED = (f"{_SANDBOX}::test_a_worker_that_cannot_be_confined_does_not_start",)
TABLE = (f"{_FILTER}::test_the_table_of_system_calls",)
IOCTLS = (f"{_FILTER}::test_the_table_of_ioctls",)
ARGUMENTS = (f"{_FILTER}::test_arguments_that_matter",)
LANDLOCK = (f"{_FILTER}::test_landlock_alone_refuses",)
HARDENED = (_HARDENED,)
DECODER = ("tests/unit/test_transport.py::test_fuzzed_decoder",)
GRAPHS = (
    "tests/fuzz/test_fuzz_stateful.py::test_graphs_take_no_more_than_they_are_charged_for[address]",
)
FORGED = ("tests/fuzz/test_fuzz_stateful.py::test_a_million_forged_handles_are_refused",)
KEEPER = ("tests/unit/test_keeper_rights.py::test_a_keeper_of_root_has_given_its_rights_away",)
_IPC = "tests/unit/test_ipc.py"
SHARES = (f"{_IPC}::test_a_session_that_lies_about_what_it_shares_is_ended",)
HOARDED = (f"{_IPC}::test_tokens_are_limited_and_leave_some_to_others",)
BOUNDED_LOG = (
    "tests/unit/test_transport_faults.py::test_a_worker_that_never_stops_talking_fills_no_disk",
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One guarantee: ``old`` becomes ``new`` in ``file``, and one of the tests fails."""

    guarantee: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def probe(*names: str) -> tuple[str, ...]:
    return tuple(f"{_ESCAPES}::test_no_way_leads_out[{name}]" for name in names)


def attack(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/hostile/test_attacks.py::test_{name}" for name in names)


def fuzz(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/fuzz/test_fuzz_channel.py::test_{name}" for name in names)


CHANNEL_TRIALS = (
    Trial(
        "D2: a frame has a length",
        RING_H,
        "if (copy->length < VG_ALIGN || copy->length > VG_BODY_MAX)",
        "if (copy->length > VG_BODY_MAX)",
        attack("d2_zero_length[ring]"),
    ),
    Trial(
        "D1: a frame lies in its ring",
        RING_H,
        "if (vg_aligned(copy->length) > waiting || vg_aligned(copy->length) > left)",
        "if (0)",
        DECODER,
    ),
    Trial(
        "D5: a submission index that can be",
        RING_H,
        "if (head - ring->mine > ring->size || (head & (VG_ALIGN - 1)))",
        "if (0)",
        attack("d5_index_jump[ring]"),
    ),
    Trial(
        "D5: bulk lies in the window",
        FRAME_C,
        "if ((uint64_t)header->bulk_offset + header->bulk_length > lane->window_size)",
        "if (0)",
        DECODER,
    ),
    Trial(
        "D5: bulk of the stream has been sent",
        FRAME_C,
        "if (!lane->ring && lane->bulk_filled != header->bulk_length)",
        "if (0)",
        fuzz("nothing_on_the_serial_stream_harms_the_server"),
    ),
    Trial(
        "D1: a message of the stream has a largest length",
        SERIAL_C,
        "message.magic != VG_MESSAGE_MAGIC || message.length > VG_MESSAGE_MAX",
        "message.magic != VG_MESSAGE_MAGIC",
        fuzz("nothing_on_the_serial_stream_harms_the_server"),
    ),
    Trial(
        "D4: silent connections make room",
        CLIENT_C,
        "\t\tagent_client_drop(agent, oldest);\n\treturn oldest;",
        "\t\treturn NULL;\n\treturn oldest;",
        attack("d4_silent_connections_hold_up_nobody[ring]"),
    ),
    Trial(
        "D7: a lane is given back, if later",
        CONTROL_C,
        "if (link->due_count < VG_LANE_TABLE)",
        "if (0)",
        fuzz("the_agent_serves_and_gives_back_whatever_its_processes_do"),
    ),
    Trial(
        "D10: one VM at a time",
        CHANNEL_C,
        "if (keeper->qemu >= 0 || keeper->stopping || !keeper->memory)",
        "if (keeper->stopping || !keeper->memory)",
        attack("d10_a_second_connection_for_the_vm"),
    ),
    Trial(
        "D12: memory is sealed",
        CHANNEL_C,
        "F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL",
        "F_SEAL_SEAL",
        attack("d12_memory_is_truncated_under_the_worker"),
    ),
    Trial(
        "D25: host functions that wait are bounded",
        GATE_C,
        "full = s->gates_count >= WK_GATES;",
        "full = false;",
        attack("d25_host_callback_flood[ring]"),
    ),
    Trial(
        "host functions that wait are bounded beside a graph's",
        GATE_C,
        "full = s->gates_count >= WK_GATES;",
        "full = s->gates_count == WK_GATES;",
        ("tests/fuzz/test_fuzz_calls.py::test_gates_that_a_guest_opens_unasked",),
    ),
    Trial(
        "functions of the guest's in graphs are bounded",
        HOSTS_C,
        "if (atomic_fetch_add(&c->session->hosts, 1) < WK_HOSTS)",
        "if (atomic_fetch_add(&c->session->hosts, 1) < UINT32_MAX)",
        GRAPHS,
    ),
    Trial(
        "edges of graphs are charged",
        OPS_GRAPH_C,
        "if (!wk_nodes_charge(count))",
        "if (0)",
        GRAPHS,
    ),
    Trial(
        "what a launch uses stays, also where no event can say until when",
        HOSTS_C,
        "r = wk_driver.cuStreamSynchronize(stream);",
        "r = CUDA_SUCCESS;",
        GRAPHS,
    ),
    Trial(
        "what a stream has not freed yet is charged",
        OPS_MEMORY_C,
        "wk_freed_in_order(memory, wk_raw(stream));",
        "(void)0;",
        ("tests/unit/test_limits.py::test_what_a_stream_has_not_freed_yet_is_charged",),
    ),
    Trial(
        "S5: a handle has its generation",
        OBJECTS_C,
        "return t->slots[slot].generation == vg_handle_generation(handle) ? &t->slots[slot] : NULL;",
        "return &t->slots[slot];",
        attack("s5_forged_handles[ring]"),
    ),
    Trial(
        "S5: a handle has its kind",
        OBJECTS_C,
        "if (vg_handle_tag(handle) != limits[kind].tag || slot >= t->count)",
        "if (slot >= t->count)",
        FORGED,
    ),
    Trial(
        "S5: an address lies in its allocation",
        LEDGER_C,
        "if (address - o->address > o->bytes || bytes > o->bytes - (address - o->address))",
        "if (0)",
        FORGED,
    ),
    Trial(
        "S5: a mapping lies in what is reserved",
        VIRTUAL_C,
        "!space || !is_inside(space, address, bytes) ||",
        "!space ||",
        FORGED,
    ),
    Trial(
        "S5: a mapping lies over no other",
        VIRTUAL_C,
        "|| !is_free(&s->mappings, address, bytes))",
        ")",
        FORGED,
    ),
    Trial(
        "S5: a copy meets open mappings only",
        VIRTUAL_C,
        "o->address != end || !atomic_load(&o->accessible)",
        "o->address != end",
        FORGED,
    ),
    Trial(
        "S5: mappings end as a whole",
        VIRTUAL_C,
        "if (o->address != address || o->bytes > bytes)",
        "if (o->bytes > bytes)",
        FORGED,
    ),
    Trial(
        "S5: a copy lies in its array",
        ARRAYS_C,
        "r == CUDA_SUCCESS ? cuda_check_region(p->array->array, &side, &shape) : r;",
        "(void)side, r;",
        FORGED,
    ),
    Trial(
        "S5: a level is one that there is",
        ARRAYS_C,
        "r = cuda_read_level(mipmap->array, in->level, (unsigned int)mipmap->number, &shape);",
        "shape = *mipmap->array;",
        FORGED,
    ),
)
TRIALS = CHANNEL_TRIALS + (
    Trial(
        "a user of its own for each channel",
        SANDBOX_PY,
        'int.from_bytes(digest[:8], "big") % len(USER_IDS)',
        "0",
        OWN_USER,
    ),
    Trial(
        "no user that a neighbour has",
        SANDBOX_PY,
        "set(_list_taken(directory))",
        "set[int]()",
        NO_SHARED_USER,
    ),
    Trial(
        "no groups",
        SANDBOX_C,
        "if (setgroups(0, NULL))",
        "if (setgroups(1, (gid_t[]){ sandbox->gid }))",
        FACTS,
    ),
    Trial(
        "a keeper without rights",
        SANDBOX_C,
        "    setresuid(uid, uid, uid))\n\t\treturn fail",
        "    0)\n\t\treturn fail",
        KEEPER,
    ),
    Trial(
        "an empty bounding set",
        SANDBOX_C,
        "if (prctl(PR_CAPBSET_DROP, i, 0, 0, 0))",
        "if (0)",
        FACTS,
    ),
    Trial(
        "no_new_privs", SANDBOX_C, "if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))", "if (0)", FACTS
    ),
    Trial(
        "no capabilities left of root's",
        SANDBOX_C,
        "if (become_user(sandbox, sync, privileged, &failure) || drop_capabilities(&failure))",
        "if (drop_capabilities(&failure) || 0)",
        FACTS,
    ),
    *(
        Trial(f"a namespace of its own: {name}", SANDBOX_C, f" {flag} |", "", FACTS)
        for name, flag in (
            ("pid", "CLONE_NEWPID"),
            ("network", "CLONE_NEWNET"),
            ("ipc", "CLONE_NEWIPC"),
            ("uts", "CLONE_NEWUTS"),
        )
    ),
    Trial(
        "a namespace of its own: cgroup", SANDBOX_C, "CLONE_NEWCGROUP | (geteuid", "(geteuid", FACTS
    ),
    Trial(
        "the root is read-only",
        SANDBOX_C,
        "MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV",
        "MS_REMOUNT | MS_BIND | MS_NOSUID",
        FACTS,
    ),
    Trial(
        "libraries are read-only",
        SANDBOX_C,
        "[SANDBOX_READ] = MOUNT_ATTR_RDONLY |",
        "[SANDBOX_READ] =",
        FACTS,
    ),
    Trial(
        "a root with nothing but what is needed",
        SANDBOX_PY,
        '_FILES = ("/etc/ld.so.cache",',
        '_FILES = ("/var/log", "/etc/ld.so.cache",',
        FACTS,
    ),
    Trial(
        "no files of secrets",
        SANDBOX_PY,
        '_FILES = ("/etc/ld.so.cache",',
        '_FILES = ("/etc", "/etc/ld.so.cache",',
        probe("passwd"),
    ),
    Trial("umask", SANDBOX_C, "umask(022);", "", UMASK),
    Trial(
        "a device node is a device, and is there",
        SANDBOX_C,
        'return fail(failure, "find %s", path);',
        "return 0;",
        CONFINED,
    ),
    Trial(
        "only the nodes of its GPU",
        NODES_PY,
        'found.append(f"/dev/nvidia{minor}")',
        'found += ["/dev/nvidia0", f"/dev/nvidia{minor}"]',
        NODES,
    ),
    Trial("only the nodes of its instance", NODES_PY, 'mig/gi{instance}"', 'mig/gi2"', NODES),
    Trial(
        "a socket is an error, and no death",
        FILTER_C,
        "__NR_socket, __NR_mknodat",
        "__NR_mknodat",
        ARGUMENTS,
    ),
    *(
        Trial(
            f"no system call beside the table: {name}",
            FILTER_C,
            "\t__NR_getcwd,\n",
            f"\t__NR_getcwd, __NR_{name},\n",
            TABLE,
        )
        for name in ("ptrace", "bpf", "unshare", "mount", "io_uring_setup", "execve")
    ),
    Trial(
        "entries of i386 kill",
        FILTER_C,
        "\tanswer(p, SECCOMP_RET_KILL_PROCESS);\n\tload(p, offsetof(struct seccomp_data, nr));",
        "\tanswer(p, SECCOMP_RET_ALLOW);\n\tload(p, offsetof(struct seccomp_data, nr));",
        probe("entry_i386"),
    ),
    Trial(
        "entries of x32 kill",
        FILTER_C,
        "emit(p, BPF_JMP | BPF_JGE | BPF_K, FOREIGN_CALLS, 0, 1);",
        "emit(p, BPF_JMP | BPF_JGE | BPF_K, ~0u, 0, 1);",
        (*probe("entry_x32"), *TABLE),
    ),
    Trial(
        "only named ioctls",
        FILTER_C,
        "\tend_call(p, begun, p->error);\n}\n\n/* clone()",
        "\tend_call(p, begun, SECCOMP_RET_ALLOW);\n}\n\n/* clone()",
        (*probe("terminal", "block_size"), *IOCTLS),
    ),
    Trial(
        "no ioctl for peer access", FILTER_C, "25, 26, 27, 28, ", "25, 26, 27, 28, 29, 30,", IOCTLS
    ),
    Trial(
        "threads, and no processes",
        FILTER_C,
        "emit(p, BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0);",
        "emit(p, BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 1);",
        ARGUMENTS,
    ),
    Trial(
        "no new namespaces by clone()",
        FILTER_C,
        "emit(p, BPF_JMP | BPF_JSET | BPF_K, spaces, 0, 1);",
        "emit(p, BPF_JMP | BPF_JSET | BPF_K, 0, 0, 1);",
        ARGUMENTS,
    ),
    Trial(
        "signals to itself only",
        FILTER_C,
        "answer_if(p, (unsigned)getpid(), SECCOMP_RET_ALLOW);\n\tend_call(p, begun, p->error);",
        "end_call(p, begun, SECCOMP_RET_ALLOW);",
        ARGUMENTS,
    ),
    Trial(
        "the second stage",
        FILTER_C,
        "return error ? error : vg_filter_apply(stage, (enum vg_filter_mode)mode);",
        "return error;",
        FACTS,
    ),
    Trial(
        "the first stage",
        BECOME_C,
        "if (confined && sandbox_filter(&keeper->options.sandbox, error, sizeof(error)))",
        "if (0)",
        FACTS,
    ),
    Trial(
        "Landlock",
        FILTER_C,
        "int mode = find_mode(argc, argv), error;\n\n\tif (mode < 0)\n\t\treturn -EINVAL;\n\tif (mode == VG_FILTER_OFF)\n\t\treturn 0;\n\terror = mode == VG_FILTER_ENFORCE ? restrict_files() : 0;",
        "int mode = find_mode(argc, argv), error;\n\n\tif (mode < 0)\n\t\treturn -EINVAL;\n\tif (mode == VG_FILTER_OFF)\n\t\treturn 0;\n\t(void)restrict_files;\n\terror = 0;",
        LANDLOCK,
    ),
    Trial(
        "only descriptors that are handed in",
        BECOME_C,
        "\tclose_range((unsigned)(FIRST_FD + count), ~0u, 0);\n",
        "",
        NOT_CALLERS,
    ),
    Trial(
        "it cannot be dumped",
        FILTER_C,
        "return prctl(PR_SET_DUMPABLE, 0) ? -errno : 0;",
        "return 0;",
        FACTS,
    ),
    Trial("no core files", SANDBOX_C, "set_limit(RLIMIT_CORE, 0) ||", "", NOT_CALLERS),
    Trial(
        "a limit on files",
        SANDBOX_C,
        "set_limit(RLIMIT_NOFILE, FILES) ||",
        "",
        NOT_CALLERS,
    ),
    Trial(
        "a limit on processes",
        SANDBOX_C,
        "(privileged && set_limit(RLIMIT_NPROC, PROCESSES))",
        "0",
        NOT_CALLERS,
    ),
    Trial("no message queues", SANDBOX_C, "set_limit(RLIMIT_MSGQUEUE, 0) ||", "", FACTS),
    Trial("an environment of its own", BECOME_C, "\tsandbox_clean_environment();\n", "", FACTS),
    Trial(
        "lines of a log a second", LOG_C, "LOG_RATE = 32 << 10", "LOG_RATE = 32 << 20", BOUNDED_LOG
    ),
    Trial(
        "a log of bounded size", LOG_C, "LOG_BYTES = 1 << 20", "LOG_BYTES = 1 << 24", BOUNDED_LOG
    ),
    Trial("tokens of one user only", EXPORTS_C, " || e->user != entry->user", "", SHARES),
    Trial("tokens of one kind only", EXPORTS_C, " || e->kind != in->kind", "", SHARES),
    Trial("tokens that end", EXPORTS_C, "if (!e || !e->lane ||", "if (!e ||", SHARES),
    Trial(
        "memory of a pool in that pool only",
        EXPORTS_C,
        " || (e->of && e->of != in->id)",
        "",
        SHARES,
    ),
    Trial(
        "memory of a pool of one's own",
        EXPORTS_C,
        "in->kind == VG_EXPORT_POOLED && !is_own_pool(table, entry, in->id)",
        "0 && !is_own_pool(table, entry, in->id)",
        SHARES,
    ),
    Trial(
        "descriptors with what has one only",
        EXPORTS_C,
        " || (*file >= 0 && !(in->what == VG_EXPORT_MAKE && vg_export_is_file(in->kind)))",
        "",
        SHARES,
    ),
    Trial("descriptors end with their tokens", EXPORTS_C, "\tclose_file(e);\n", "", SHARES),
    Trial(
        "what was shared is what is opened", EXPORTS_C, "\t\t*lent = e->file;\n", "\t\t;\n", SHARES
    ),
    Trial("withdrawn by its maker only", EXPORTS_C, "!e || e->lane != entry->number", "!e", SHARES),
    Trial("closed by who has it", EXPORTS_C, "!e || !e->opened[entry->number]", "!e", SHARES),
    Trial("shared memory is charged", EXPORTS_C, "\tvg_limits_keep(e->bytes);\n", "", SHARES),
    Trial(
        "tokens of one process", EXPORTS_C, "own >= VG_EXPORTS_OF_ONE", "own > VG_EXPORTS", HOARDED
    ),
    Trial("symbols bound at start", CMAKE, " -Wl,-z,now", " -Wl,-z,lazy", HARDENED),
    Trial("read-only relocations", CMAKE, "-Wl,-z,relro", "-Wl,-z,norelro", HARDENED),
    Trial("no executable stack", CMAKE, "-Wl,-z,noexecstack", "-Wl,-z,execstack", HARDENED),
    Trial("stack protector", CMAKE, "-fstack-protector-strong", "-fno-stack-protector", HARDENED),
    Trial("FORTIFY", CMAKE, "-D_FORTIFY_SOURCE=3", "-D_FORTIFY_SOURCE=0", HARDENED),
    Trial("CET", CMAKE, "-fcf-protection=full", "-fcf-protection=none", HARDENED),
)
