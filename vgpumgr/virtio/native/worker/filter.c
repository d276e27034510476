/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of system calls and ioctls, and the BPF program made of them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "filter.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define FOREIGN_CALLS 0x40000000u /* x32: the same architecture, other numbers */
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define FOREIGN_CALLS 0xffffffffu
#else
#error "no table of system calls for this architecture"
#endif

/* ---- what a serving process may do ---- */

static const int serving[] = {
	/* the channel: memory, doorbell, the keeper's socket, the serial stream, the log */
	__NR_read, __NR_write, __NR_readv, __NR_writev, __NR_recvfrom, __NR_recvmsg, __NR_sendto, __NR_sendmsg,
	__NR_ppoll, __NR_shutdown, __NR_close,
	/* threads and their locks */
	__NR_futex, __NR_set_robust_list, __NR_rseq, __NR_exit, __NR_exit_group, __NR_sched_yield,
	__NR_sched_getaffinity, __NR_sched_get_priority_max, __NR_sched_get_priority_min, __NR_restart_syscall, __NR_membarrier, __NR_gettid, __NR_getpid,
	/* memory */
	__NR_mmap, __NR_munmap, __NR_mprotect, __NR_mremap, __NR_madvise, __NR_brk, __NR_mlock, __NR_munlock,
	__NR_mbind, __NR_get_mempolicy, __NR_msync,
	/* signals to itself */
	__NR_rt_sigaction, __NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_sigaltstack,
	/* time, chance, what the machine is */
	__NR_clock_gettime, __NR_clock_getres, __NR_clock_nanosleep, __NR_nanosleep, __NR_gettimeofday, __NR_getrandom,
	__NR_uname, __NR_sysinfo, __NR_getuid, __NR_geteuid, __NR_getgid, __NR_getegid, __NR_getrusage,
	/* files of its root: device nodes for each context, the compiler of kernels, names of threads in /proc */
	__NR_openat, __NR_fstat, __NR_newfstatat, __NR_statx, __NR_lseek, __NR_pread64, __NR_pwrite64, __NR_readlinkat,
	__NR_faccessat, __NR_faccessat2, __NR_getdents64, __NR_fcntl, __NR_flock, __NR_dup, __NR_dup3, __NR_fstatfs,
	__NR_getcwd,
	/* what a driver makes for its events and shared memory */
	__NR_eventfd2, __NR_pipe2, __NR_epoll_create1, __NR_epoll_ctl, __NR_epoll_pwait, __NR_memfd_create, __NR_ftruncate,
#ifdef __x86_64__ /* the older forms of the above */
	__NR_poll, __NR_open, __NR_stat, __NR_lstat, __NR_access, __NR_readlink, __NR_dup2, __NR_pipe, __NR_eventfd,
	__NR_epoll_wait, __NR_time, __NR_arch_prctl, __NR_pause,
#endif
};

/* What both ends of a link need: sockets, shared memory, time, threads. */
static const int linking[] = {
	__NR_read, __NR_write, __NR_readv, __NR_writev, __NR_recvfrom, __NR_recvmsg, __NR_sendto, __NR_sendmsg, __NR_ppoll,
	__NR_shutdown, __NR_close, __NR_futex, __NR_set_robust_list, __NR_rseq, __NR_exit, __NR_exit_group, __NR_sched_yield,
	__NR_restart_syscall, __NR_membarrier, __NR_gettid, __NR_getpid, __NR_mmap, __NR_munmap, __NR_mprotect, __NR_mremap,
	__NR_madvise, __NR_brk, __NR_rt_sigaction, __NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_clock_gettime,
	__NR_clock_nanosleep, __NR_nanosleep, __NR_gettimeofday, __NR_getrandom, __NR_fstat, __NR_fcntl, __NR_eventfd2,
	__NR_setsockopt, __NR_getsockopt, __NR_sched_getaffinity, __NR_sysinfo, __NR_sigaltstack,
#ifdef __x86_64__
	__NR_poll, __NR_time, __NR_arch_prctl,
#endif
};

/* The relay alone, in its root: certificates, which are renewed. */
static const int relaying[] = {
	__NR_openat, __NR_newfstatat, __NR_lseek, __NR_connect,
#ifdef __x86_64__
	__NR_open, __NR_stat,
#endif
};

/* More of it until the driver is loaded: programs of its own, a socket by which the driver's parts find each other. */
static const int starting[] = {
	__NR_execve, __NR_wait4, __NR_waitid, __NR_kill, __NR_tgkill, __NR_tkill, __NR_prlimit64, __NR_set_tid_address,
	__NR_bind, __NR_listen, __NR_connect, __NR_accept4, __NR_getsockname, __NR_getsockopt, __NR_setsockopt,
	__NR_socketpair, __NR_sched_setaffinity, __NR_seccomp, __NR_landlock_create_ruleset, __NR_landlock_add_rule,
	__NR_landlock_restrict_self, __NR_close_range, __NR_getppid, __NR_setsid, __NR_chdir, __NR_fchdir, __NR_statfs,
	__NR_setrlimit, __NR_getrlimit, __NR_pidfd_open, __NR_pidfd_send_signal, __NR_sched_getparam,
	__NR_sched_getscheduler, __NR_mincore, __NR_fadvise64,
#ifdef __x86_64__
	__NR_fork, __NR_vfork,
#endif
};

/* Tried by libraries that can do without: an error, and no death. */
static const int refused[] = {
	__NR_socket, __NR_mknodat, __NR_mkdirat, __NR_fchmod, __NR_fchmodat, __NR_prlimit64,
	__NR_sched_setaffinity, __NR_sched_setscheduler, __NR_setpriority, __NR_connect, __NR_statfs, __NR_mincore,
#ifdef __x86_64__
	__NR_mknod, __NR_mkdir, __NR_chmod,
#endif
};

/*
 * There is nothing to remove. NVIDIA's driver removes what may be left of its socket, an abstract one, before it binds it:
 * unlink("") must fail with ENOENT, any other error ends cuInit() with 304 (seen with 580.159.04).
 */
static const int absent[] = {
	__NR_unlinkat,
#ifdef __x86_64__
	__NR_unlink,
#endif
};

/* ---- ioctls ---- */

/* NVIDIA's character devices: type 'F', the number in the low byte; the driver looks at the number only. */
static const unsigned char nvidia[] = {
	0x27, 0x28, 0x29, 0x2a, 0x2b, /* RM: allocate memory, object; free; control; allocate */
	0x34, 0x35,                   /* RM: duplicate an object, share it with the own client */
	0x41, 0x4a, 0x4e, 0x4f, 0x54, /* RM: idle channels, video heap, map, unmap, context DMA */
	0x57, 0x58, 0x5e,             /* RM: map and unmap for DMA, update a mapping */
	200, 201, 206, 207, 209, 210, /* card info, register fd, events, status, version */
	211, 212, 214, 215, 218,      /* the form for long parameters, attach, parameters, NUMA, wait for open */
};

/* nvidia-uvm's, whole numbers. Not here: peer access (29, 30), tools, access counters of others. */
static const unsigned uvm[] = {
	0x30000001, 0x30000002,                     /* initialise, de-initialise */
	23, 24, 31, 25, 26, 27, 28,                 /* range groups, address spaces, channels */
	33, 34, 66, 73, 65, 68, 72,                 /* external memory, free, ranges, semaphore pools */
	37, 38, 39, 70, 42, 43, 44, 45, 46, 47, 51, /* GPUs, pageable access, policies of a range, migrate */
	53, 75,                                     /* migrate a group, the memory's holder */
};

/* ---- the program ---- */

enum { ROOM = 640 };

struct program {
	struct sock_filter code[ROOM];
	unsigned short length;
	unsigned otherwise, error; /* actions */
};

static void emit(struct program *p, unsigned short code, unsigned k, unsigned char yes, unsigned char no)
{
	if (p->length < ROOM)
		p->code[p->length] = (struct sock_filter){ code, yes, no, k };
	p->length++;
}

static void load(struct program *p, size_t offset)
{
	emit(p, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

static void answer(struct program *p, unsigned action)
{
	emit(p, BPF_RET | BPF_K, action, 0, 0);
}

static void answer_if(struct program *p, unsigned value, unsigned action)
{
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
	answer(p, action);
}

static void answer_all(struct program *p, const int *calls, size_t count, unsigned action)
{
	for (size_t i = 0; i < count; i++)
		answer_if(p, (unsigned)calls[i], action);
}

/* Begins a part for one call, which ends with an answer for all its arguments; see end_call(). */
static unsigned short begin_call(struct program *p, int call, unsigned argument)
{
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 0);
	load(p, offsetof(struct seccomp_data, args) + argument * sizeof(__u64)); /* the low half: both are little-endian */
	return (unsigned short)(p->length - 2);
}

static void end_call(struct program *p, unsigned short begun, unsigned action)
{
	answer(p, action);
	if (p->length <= ROOM)
		p->code[begun].jf = (unsigned char)(p->length - begun - 1);
}

static void add_ioctl(struct program *p)
{
	unsigned short begun = begin_call(p, __NR_ioctl, 1);

	for (size_t i = 0; i < sizeof(uvm) / sizeof(uvm[0]); i++)
		answer_if(p, uvm[i], SECCOMP_RET_ALLOW);
	emit(p, BPF_ALU | BPF_AND | BPF_K, 0xffff, 0, 0);
	for (size_t i = 0; i < sizeof(nvidia); i++)
		answer_if(p, 'F' << 8 | nvidia[i], SECCOMP_RET_ALLOW);
	end_call(p, begun, p->error);
}

/* clone(): threads, and until the driver is loaded processes, but never namespaces. */
static void add_clone(struct program *p, bool threads_only)
{
	const unsigned spaces = CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
				CLONE_NEWCGROUP | CLONE_PTRACE;
	unsigned short begun = begin_call(p, __NR_clone, 0);

	emit(p, BPF_JMP | BPF_JSET | BPF_K, spaces, 0, 1);
	answer(p, p->otherwise);
	if (threads_only) {
		emit(p, BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0);
		answer(p, p->otherwise);
	}
	end_call(p, begun, SECCOMP_RET_ALLOW);
	/* its flags are in memory, where no filter sees them: libraries then use clone() */
	answer_if(p, __NR_clone3, p->otherwise == SECCOMP_RET_LOG ? SECCOMP_RET_LOG : SECCOMP_RET_ERRNO | ENOSYS);
}

static void add_prctl(struct program *p, bool serves)
{
	unsigned short begun = begin_call(p, __NR_prctl, 0);

	answer_if(p, PR_SET_NAME, SECCOMP_RET_ALLOW);
	answer_if(p, PR_GET_NAME, SECCOMP_RET_ALLOW);
	answer_if(p, PR_SET_VMA, SECCOMP_RET_ALLOW);
	if (!serves) {
		answer_if(p, PR_SET_DUMPABLE, SECCOMP_RET_ALLOW);
		answer_if(p, PR_SET_PDEATHSIG, SECCOMP_RET_ALLOW);
		answer_if(p, PR_SET_NO_NEW_PRIVS, SECCOMP_RET_ALLOW);
		answer_if(p, PR_CAPBSET_READ, SECCOMP_RET_ALLOW);
	}
	end_call(p, begun, p->error);
}

static void add_unix_socket(struct program *p)
{
	unsigned short begun = begin_call(p, __NR_socket, 0);

	answer_if(p, AF_UNIX, SECCOMP_RET_ALLOW);
	end_call(p, begun, p->error);
}

static void add_start(struct program *p)
{
	add_unix_socket(p);
	answer_if(p, __NR_ioctl, SECCOMP_RET_ALLOW);
	answer_all(p, starting, sizeof(starting) / sizeof(starting[0]), SECCOMP_RET_ALLOW);
}

/* abort() sends itself a signal; the other processes of the VM are not to hear one. */
static void add_abort(struct program *p)
{
	unsigned short begun = begin_call(p, __NR_tgkill, 0);

	answer_if(p, (unsigned)getpid(), SECCOMP_RET_ALLOW);
	end_call(p, begun, p->error);
}

static void add_serve(struct program *p)
{
	add_abort(p);
	add_ioctl(p);
}

static void add_link(struct program *p, bool relays)
{
	add_abort(p);
	answer_all(p, linking, sizeof(linking) / sizeof(linking[0]), SECCOMP_RET_ALLOW);
	if (relays)
		add_unix_socket(p);
	/* a C library may count the machine's processors so, and does without */
	answer_all(p, relaying, sizeof(relaying) / sizeof(relaying[0]), relays ? SECCOMP_RET_ALLOW : p->error);
	answer_if(p, __NR_ioctl, p->error);
}

static void build(struct program *p, enum vg_filter_stage stage, enum vg_filter_mode mode)
{
	bool serves = stage != VG_FILTER_START, links = stage == VG_FILTER_RELAY || stage == VG_FILTER_LINK;

	p->otherwise = mode == VG_FILTER_LOG ? SECCOMP_RET_LOG : SECCOMP_RET_KILL_PROCESS;
	p->error = mode == VG_FILTER_LOG ? SECCOMP_RET_LOG : SECCOMP_RET_ERRNO | EPERM;
	load(p, offsetof(struct seccomp_data, arch));
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
	answer(p, SECCOMP_RET_KILL_PROCESS);
	load(p, offsetof(struct seccomp_data, nr));
	emit(p, BPF_JMP | BPF_JGE | BPF_K, FOREIGN_CALLS, 0, 1);
	answer(p, SECCOMP_RET_KILL_PROCESS);
	if (!links)
		answer_all(p, serving, sizeof(serving) / sizeof(serving[0]), SECCOMP_RET_ALLOW);
	add_clone(p, serves);
	add_prctl(p, serves);
	if (links)
		add_link(p, stage == VG_FILTER_RELAY);
	else if (serves)
		add_serve(p);
	else
		add_start(p);
	answer_all(p, refused, sizeof(refused) / sizeof(refused[0]), p->error);
	answer_all(p, absent, sizeof(absent) / sizeof(absent[0]),
		   p->error == SECCOMP_RET_LOG ? SECCOMP_RET_LOG : SECCOMP_RET_ERRNO | ENOENT);
	answer(p, p->otherwise);
}

int vg_filter_mode(const char *word)
{
	static const char *const words[] = { "enforce", "log", "off" };

	for (int i = 0; i < 3; i++)
		if (!strcmp(word, words[i]))
			return i;
	return -1;
}

int vg_filter_apply(enum vg_filter_stage stage, enum vg_filter_mode mode)
{
	struct program p = { .length = 0 };
	struct sock_fprog whole = { .filter = p.code };
	long thread;

	if (mode == VG_FILTER_OFF)
		return 0;
	build(&p, stage, mode);
	if (p.length > ROOM)
		return -E2BIG;
	whole.len = p.length;
	thread = syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &whole);
	if (thread < 0)
		return -errno;
	return thread ? -EBUSY : 0; /* a thread that has a filter of its own */
}

/* ---- Landlock ---- */

/* Of the root, which is read-only but for what the keeper put there: nothing is made, removed, renamed or executed. */
static int restrict_files(void)
{
	struct landlock_ruleset_attr rules = {
		.handled_access_fs = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
				     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
				     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
				     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM,
	};
	int fd, error;

	if (syscall(__NR_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
		return 0; /* this kernel has none; the audit of the worker says so */
	fd = (int)syscall(__NR_landlock_create_ruleset, &rules, sizeof(rules.handled_access_fs), 0);
	if (fd < 0)
		return -errno;
	error = syscall(__NR_landlock_restrict_self, fd, 0) ? -errno : 0;
	close(fd);
	return error;
}

/* Of the keeper's option; OFF without one. */
static int find_mode(int argc, char **argv)
{
	int mode = VG_FILTER_OFF;

	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], VG_OPTION_FILTER, strlen(VG_OPTION_FILTER)))
			mode = vg_filter_mode(argv[i] + strlen(VG_OPTION_FILTER));
	return mode;
}

int vg_hide(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], VG_OPTION_FILTER, strlen(VG_OPTION_FILTER)))
			return prctl(PR_SET_DUMPABLE, 0) ? -errno : 0;
	return 0;
}

int vg_lock_files(void)
{
	/* the first version's rights: all that there is to opening, making and executing */
	struct landlock_ruleset_attr rules = { .handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1 };
	int fd, error;

	if (syscall(__NR_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
		return 0; /* the filter has no call that opens anything */
	fd = (int)syscall(__NR_landlock_create_ruleset, &rules, sizeof(rules.handled_access_fs), 0);
	if (fd < 0)
		return -errno;
	error = syscall(__NR_landlock_restrict_self, fd, 0) ? -errno : 0;
	close(fd);
	return error;
}

int vg_lock_down(int argc, char **argv)
{
	return vg_lock_down_as(VG_FILTER_SERVE, argc, argv);
}

int vg_lock_down_as(enum vg_filter_stage stage, int argc, char **argv)
{
	int mode = find_mode(argc, argv), error;

	if (mode < 0)
		return -EINVAL;
	if (mode == VG_FILTER_OFF)
		return 0;
	error = mode == VG_FILTER_ENFORCE ? restrict_files() : 0;
	return error ? error : vg_filter_apply(stage, (enum vg_filter_mode)mode);
}
