/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver that does only what a guest would do who has taken over the worker: once the worker is locked down, it
 * tries the one thing that $VGPUMGR_PROBE names, says on standard error what came of it, and ends: the worker writes what
 * a session has said to its log then. What kills the process says nothing; its keeper knows the signal.
 */
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static const char *given(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

static pid_t target(void)
{
	return atoi(given("VGPUMGR_PROBE_PID"));
}

static const char *file(void)
{
	return given("VGPUMGR_PROBE_FILE");
}

/* 0 if it could be done, else the error. */
static int result(long answer)
{
	return answer < 0 ? errno : 0;
}

static int open_path(const char *path, int flags)
{
	return result(open(path, flags, 0600));
}

static int connect_to(const char *path, size_t length)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (fd < 0)
		return errno;
	memcpy(address.sun_path, path, length);
	return result(connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)));
}

/* ---- files ---- */

static int shadow(void) { return open_path("/etc/shadow", O_RDONLY); }
static int passwd(void) { return open_path("/etc/passwd", O_RDONLY); }
static int secret(void) { return open_path(file(), O_RDONLY); }
static int init_root(void) { return open_path("/proc/1/root/etc/hostname", O_RDONLY); }
static int host_process(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/environ", target());
	return open_path(path, O_RDONLY);
}
static int parent_directories(void) { return open_path("../../../../../etc/shadow", O_RDONLY); }
static int make_file(void)
{
	int error = open_path("/vgpumgr-escaped", O_RDWR | O_CREAT);

	if (!error)
		unlink("/vgpumgr-escaped");
	return error;
}
static int write_library(void) { return open_path("/lib64/ld-linux-x86-64.so.2", O_WRONLY | O_APPEND); }
static int sysctl(void) { return open_path("/proc/sys/kernel/core_pattern", O_WRONLY); }
static int sysrq(void)
{
	int fd = open("/proc/sysrq-trigger", O_WRONLY);

	/* hidden behind /dev/null, which takes everything */
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return errno;
	return S_ISCHR(st.st_mode) ? ENXIO : 0;
}
static int sysfs(void) { return open_path("/sys/kernel/uevent_helper", O_RDONLY); }
static int disk(void) { return open_path("/dev/vda", O_RDONLY); }
static int kvm(void) { return open_path("/dev/kvm", O_RDWR); }
static int other_gpu(void) { return open_path("/dev/nvidia7", O_RDWR); }
static int memory_device(void) { return open_path("/dev/mem", O_RDONLY); }
static int make_node(void)
{
	int error = result(mknod("/dev/vgpumgr-mem", S_IFCHR | 0600, makedev(1, 3)));

	if (!error)
		unlink("/dev/vgpumgr-mem");
	return error;
}
static int make_directory(void)
{
	int error = result(mkdir("/dev/vgpumgr-own", 0700));

	if (!error)
		rmdir("/dev/vgpumgr-own");
	return error;
}
static int by_handle(void)
{
	union {
		struct file_handle handle;
		char space[sizeof(struct file_handle) + 8];
	} root = { .handle = { .handle_bytes = 8, .handle_type = 1 } };

	root.handle.f_handle[0] = 2; /* ext4's root directory */
	return result(open_by_handle_at(AT_FDCWD, &root.handle, O_RDONLY));
}
static int name_handle(void)
{
	union {
		struct file_handle handle;
		char space[sizeof(struct file_handle) + 128];
	} found = { .handle = { .handle_bytes = 128 } };
	int id;

	return result(name_to_handle_at(AT_FDCWD, "/dev/null", &found.handle, &id, 0));
}
static int tree_handle(void) { return result(syscall(SYS_open_tree, AT_FDCWD, "/", 1)); }
static int change_root(void) { return result(chroot("/lib64")); }

/* ---- sockets ---- */

static int internet(void) { return result(socket(AF_INET, SOCK_STREAM, 0)); }
static int internet6(void) { return result(socket(AF_INET6, SOCK_DGRAM, 0)); }
static int netlink(void) { return result(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)); }
static int packet(void) { return result(socket(AF_PACKET, SOCK_RAW, 0)); }
static int vsock(void) { return result(socket(AF_VSOCK, SOCK_STREAM, 0)); }
static int unix_socket(void) { return result(socket(AF_UNIX, SOCK_STREAM, 0)); }
static int keeper_socket(void) { return connect_to(given("VGPUMGR_PROBE_SOCKET"), strlen(given("VGPUMGR_PROBE_SOCKET")) + 1); }
static int abstract_socket(void)
{
	char name[64] = "";

	snprintf(name + 1, sizeof(name) - 1, "%s", given("VGPUMGR_PROBE_ABSTRACT"));
	return connect_to(name, 1 + strlen(name + 1));
}

/* ---- other processes ---- */

static int trace(void) { return result(ptrace(PTRACE_SEIZE, target(), NULL, NULL)); }
static int read_memory(void)
{
	char byte;
	struct iovec local = { &byte, 1 }, remote = { (void *)0x1000, 1 };
	long answer = process_vm_readv(target(), &local, 1, &remote, 1, 0);

	return answer < 0 && errno == EFAULT ? 0 : result(answer); /* nothing is at that address: we may look */
}
static int kill_target(void) { return result(kill(target(), 0)); }
static int kill_all(void) { return result(kill(-1, 0)); }
static int kill_thread(void) { return result(syscall(SYS_tgkill, target(), target(), 0)); }
static int pidfd(void) { return result(syscall(SYS_pidfd_open, target(), 0)); }
static int compare(void) { return result(syscall(SYS_kcmp, getpid(), target(), 0, 1, 1)); }
static int affinity(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	return result(sched_setaffinity(target(), sizeof(set), &set));
}
static int limits(void)
{
	struct rlimit limit = { 1 << 20, 1 << 20 };

	return result(prlimit(0, RLIMIT_CORE, &limit, NULL));
}

/* ---- namespaces, mounts, identity ---- */

static int new_user(void) { return result(unshare(CLONE_NEWUSER)); }
static int new_mounts(void) { return result(unshare(CLONE_NEWNS)); }
static int clone_user(void)
{
	long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);

	if (!child)
		_exit(0);
	return result(child);
}
static int clone_three(void)
{
	unsigned long long args[11] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD };
	long child = syscall(SYS_clone3, args, 64);

	if (!child)
		_exit(0);
	return result(child);
}
static int fork_process(void)
{
	long child = syscall(SYS_fork);

	if (!child)
		_exit(0);
	return result(child);
}
static int enter_namespace(void)
{
	int fd = open("/proc/1/ns/mnt", O_RDONLY);

	return fd < 0 ? errno : result(setns(fd, CLONE_NEWNS));
}
static int mount_tmpfs(void) { return result(mount("tmpfs", "/dev", "tmpfs", 0, "")); }
static int mount_api(void) { return result(syscall(SYS_fsopen, "tmpfs", 0)); }
static int unmount(void) { return result(umount2("/proc", MNT_DETACH)); }
static int pivot(void)
{
	long answer = syscall(SYS_pivot_root, "/", "/dev");

	return answer && (errno == EINVAL || errno == EBUSY) ? 0 : result(answer); /* so far come: it was allowed */
}
static int set_user(void) { return result(syscall(SYS_setresuid, 1, 1, 1)); }
static int set_root(void) { return result(setuid(0)); }
static int set_groups(void) { return result(syscall(SYS_setgroups, 0, NULL)); }
static int set_host_name(void) { return result(sethostname("escaped", 7)); }
static int set_personality(void) { return result(personality(ADDR_NO_RANDOMIZE)); }

/* ---- the kernel's larger parts ---- */

static int add_key(void) { return result(syscall(SYS_add_key, "user", "probe", "x", 1, KEY_SPEC_PROCESS_KEYRING)); }
static int key_control(void) { return result(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 1)); }
static int io_uring(void)
{
	struct io_uring_params params = { 0 };

	return result(syscall(SYS_io_uring_setup, 1, &params));
}
static int bpf(void)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1 };

	return result(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}
static int perf(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr),
					.config = PERF_COUNT_SW_CPU_CLOCK };

	return result(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
}
static int userfault(void) { return result(syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY)); }
static int kexec(void)
{
	long answer = syscall(SYS_kexec_load, 0, 99, NULL, 0);

	return answer && errno == EINVAL ? 0 : result(answer); /* 99 segments are too many: it was looked at */
}
static int module(void)
{
	long answer = syscall(SYS_init_module, "x", 1, "");

	return answer && (errno == ENOEXEC || errno == EINVAL) ? 0 : result(answer);
}
static int swap(void)
{
	long answer = syscall(SYS_swapoff, "/nothing");

	return answer && errno == ENOENT ? 0 : result(answer);
}
static int reboot(void)
{
	long answer = syscall(SYS_reboot, 0, 0, 0, NULL); /* wrong magic numbers */

	return answer && errno == EINVAL ? 0 : result(answer);
}
static int ports(void) { return result(syscall(SYS_ioperm, 0x80, 1, 1)); }
static int clock_set(void)
{
	long answer = syscall(SYS_settimeofday, NULL, (void *)1);

	return answer && errno == EFAULT ? 0 : result(answer);
}
static int kernel_log(void) { return result(syscall(SYS_syslog, 10, NULL, 0)); }
static int quota(void)
{
	long answer = syscall(SYS_quotactl, 0, "/nothing", 0, NULL);

	return answer && (errno == ENOENT || errno == ENOTBLK) ? 0 : result(answer);
}
static int fanotify(void) { return result(syscall(SYS_fanotify_init, 0, 0)); }
static int more_filters(void) { return result(syscall(SYS_seccomp, 0, 0, NULL)); }

/* ---- programs, other entries, ioctls ---- */

static int execute(void)
{
	char *const words[] = { (char *)"/lib64/ld-linux-x86-64.so.2", (char *)"--version", NULL };

	return result(execve(words[0], words, words + 2));
}
static int execute_memory(void)
{
	char *const words[] = { (char *)"x", NULL };
	int from = open("/lib64/ld-linux-x86-64.so.2", O_RDONLY), to = memfd_create("x", 0);
	char block[4096];
	ssize_t n;

	if (from < 0 || to < 0)
		return errno;
	while ((n = read(from, block, sizeof(block))) > 0)
		if (write(to, block, (size_t)n) != n)
			return errno;
	return result(syscall(SYS_execveat, to, "", words, words + 1, AT_EMPTY_PATH));
}
static int terminal(void)
{
	char answer[64];
	int fd = open("/dev/null", O_RDWR), error = result(ioctl(fd, TCGETS, answer));

	return error == ENOTTY ? 0 : error; /* it came to the device */
}
static int push_input(void)
{
	int error = result(ioctl(0, TIOCSTI, "x"));

	return error == ENOTTY || error == EIO ? 0 : error;
}
static int block_size(void) /* 2 is no number of nvidia-uvm's that we let through, and one of every file's */
{
	int fd = open("/lib64/ld-linux-x86-64.so.2", O_RDONLY), size;

	return fd < 0 ? errno : result(ioctl(fd, 2 /* FIGETBSZ */, &size));
}
#ifdef __x86_64__
static int entry_i386(void)
{
	long answer;

	__asm__ volatile("int $0x80" : "=a"(answer) : "a"(20L /* getpid */), "b"(0), "c"(0), "d"(0) : "memory");
	errno = answer < 0 ? (int)-answer : 0;
	return errno;
}
static int entry_x32(void) { return result(syscall(0x40000000 + SYS_getpid)); }
#endif

#define PROBE(f) { #f, f }
static const struct {
	const char *name;
	int (*run)(void);
} probes[] = {
	PROBE(shadow), PROBE(passwd), PROBE(secret), PROBE(init_root), PROBE(host_process), PROBE(parent_directories),
	PROBE(make_file), PROBE(write_library), PROBE(sysctl), PROBE(sysrq), PROBE(sysfs), PROBE(disk), PROBE(kvm),
	PROBE(other_gpu), PROBE(memory_device), PROBE(make_node), PROBE(make_directory), PROBE(by_handle),
	PROBE(name_handle), PROBE(tree_handle), PROBE(change_root), PROBE(internet), PROBE(internet6), PROBE(netlink),
	PROBE(packet), PROBE(vsock), PROBE(unix_socket), PROBE(keeper_socket), PROBE(abstract_socket), PROBE(trace),
	PROBE(read_memory), PROBE(kill_target), PROBE(kill_all), PROBE(kill_thread), PROBE(pidfd), PROBE(compare),
	PROBE(affinity), PROBE(limits), PROBE(new_user), PROBE(new_mounts), PROBE(clone_user), PROBE(clone_three),
	PROBE(fork_process), PROBE(enter_namespace), PROBE(mount_tmpfs), PROBE(mount_api), PROBE(unmount), PROBE(pivot),
	PROBE(set_user), PROBE(set_root), PROBE(set_groups), PROBE(set_host_name), PROBE(set_personality), PROBE(add_key),
	PROBE(key_control), PROBE(io_uring), PROBE(bpf), PROBE(perf), PROBE(userfault), PROBE(kexec), PROBE(module),
	PROBE(swap), PROBE(reboot), PROBE(ports), PROBE(clock_set), PROBE(kernel_log), PROBE(quota), PROBE(fanotify),
	PROBE(more_filters), PROBE(execute), PROBE(execute_memory), PROBE(terminal), PROBE(push_input),
	PROBE(block_size),
#ifdef __x86_64__
	PROBE(entry_i386), PROBE(entry_x32),
#endif
};

/* ---- the driver ---- */

static int count_filters(void)
{
	char line[128];
	int found = 0;
	FILE *status = fopen("/proc/self/status", "re");

	while (status && fgets(line, sizeof(line), status))
		sscanf(line, "Seccomp_filters: %d", &found);
	if (status)
		fclose(status);
	return found;
}

static void *probe(void *unused)
{
	const char *name = given("VGPUMGR_PROBE");
	struct timespec pause = { .tv_nsec = 5000000 };

	(void)unused;
	while (count_filters() < atoi(given("VGPUMGR_PROBE_FILTERS")))
		nanosleep(&pause, NULL);
	for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
		if (strcmp(probes[i].name, name))
			continue;
		int error = probes[i].run();

		dprintf(2, "probe %s %s\n", name, error ? strerror(error) : "done");
		_exit(0);
	}
	dprintf(2, "probe %s unknown\n", name);
	_exit(0);
}

EXPORT CUresult cuInit(unsigned flags)
{
	pthread_t thread;

	(void)flags;
	return pthread_create(&thread, NULL, probe, NULL) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
	(void)error;
	*name = "CUDA_ERROR_UNKNOWN";
	return CUDA_SUCCESS;
}
