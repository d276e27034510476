/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's sandbox: a user of its own without capabilities, namespaces, a root directory of nothing but what was
 * named, limits, the first stage of the filter. Root builds the root directory first and enters the user namespace
 * afterwards: nobody else's files are in the way. Anybody else enters it first, with his own id.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../transport/util.h"
#include "sandbox.h"

enum {
	ATTEND_MS = 10000, /* for a child that mounts; nothing in it is slow */
	FILES = 65536,
	PROCESSES = 4096,  /* of this user: threads count, too */
};

extern char **environ;

struct failure {
	char *text;
	size_t size;
};

/* Says what failed and why; always -1. */
__attribute__((format(printf, 2, 3))) static int fail(const struct failure *failure, const char *format, ...)
{
	int error = errno;
	va_list args;
	size_t used;

	snprintf(failure->text, failure->size, "sandbox: cannot ");
	used = strlen(failure->text);
	va_start(args, format);
	vsnprintf(failure->text + used, failure->size - used, format, args);
	va_end(args);
	used = strlen(failure->text);
	snprintf(failure->text + used, failure->size - used, ": %s", strerror(error));
	return -1;
}

int sandbox_add(struct sandbox *sandbox, const char *path, enum sandbox_access access)
{
	if (*path != '/')
		return -EINVAL;
	if (sandbox->paths == SANDBOX_PATHS)
		return -E2BIG;
	sandbox->path[sandbox->paths].path = path;
	sandbox->path[sandbox->paths++].access = access;
	return 0;
}

/* ---- the parent ---- */

pid_t sandbox_fork(const struct sandbox *sandbox, int *sync)
{
	unsigned long flags = SIGCHLD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
			      CLONE_NEWCGROUP | (geteuid() ? CLONE_NEWUSER : 0);
	int pair[2];
	pid_t child;

	if (!sandbox->on) {
		*sync = -1;
		return fork();
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -1;
	child = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
	*sync = pair[child ? 0 : 1];
	close(pair[child ? 1 : 0]);
	if (child < 0)
		vg_close_fd(sync);
	return child;
}

static int write_proc(pid_t pid, const char *name, const char *text)
{
	char path[64];
	int fd, error = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		error = -errno;
	close(fd);
	return error;
}

/* Each id is itself inside: no other exists there. */
static int write_maps(const struct sandbox *sandbox, pid_t child)
{
	char uids[64], gids[64];
	int error;

	snprintf(uids, sizeof(uids), "%u %u 1\n", sandbox->uid, sandbox->uid);
	snprintf(gids, sizeof(gids), "%u %u 1\n", sandbox->gid, sandbox->gid);
	error = write_proc(child, "setgroups", "deny");
	if (!error)
		error = write_proc(child, "gid_map", gids);
	return error ? error : write_proc(child, "uid_map", uids);
}

int sandbox_attend(const struct sandbox *sandbox, int sync, pid_t child)
{
	struct pollfd wait = { .fd = sync, .events = POLLIN };
	char byte;
	int error = 0;

	if (sync < 0)
		return 0;
	if (poll(&wait, 1, ATTEND_MS) == 1 && read(sync, &byte, 1) == 1) {
		error = write_maps(sandbox, child);
		if (!error && write(sync, "", 1) != 1)
			error = -errno;
	}
	close(sync);
	return error;
}

/* ---- the child: its root directory ---- */

static int make_parents(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0755) && errno != EEXIST && errno != EROFS)
			return -1;
		*slash = '/';
	}
	return 0;
}

static int make_target(char *target, bool directory)
{
	struct stat st;
	int fd;

	if (!stat(target, &st)) /* in a directory that was named, too */
		return 0;
	if (make_parents(target))
		return -1;
	if (directory)
		return mkdir(target, 0755) && errno != EEXIST ? -1 : 0;
	fd = open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? -1 : 0;
}

static int set_flags(const char *target, uint64_t flags)
{
	struct mount_attr attributes = { .attr_set = flags };

	/* glibc has a function of that name from 2.36 on only, RHEL 9 has 2.34 */
	return (int)syscall(SYS_mount_setattr, AT_FDCWD, target, AT_RECURSIVE, &attributes, sizeof(attributes));
}

static int bind_path(const char *root, const char *path, enum sandbox_access access, const struct failure *failure)
{
	static const uint64_t flags[] = {
		[SANDBOX_READ] = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
		[SANDBOX_WRITE] = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
		[SANDBOX_DEVICE] = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
	};
	char target[1024];
	struct stat st;

	if (stat(path, &st))
		return fail(failure, "find %s", path);
	if (access == SANDBOX_DEVICE && !S_ISCHR(st.st_mode)) {
		errno = ENODEV;
		return fail(failure, "use %s as a device", path);
	}
	snprintf(target, sizeof(target), "%s%s", root, path);
	if (make_target(target, S_ISDIR(st.st_mode)))
		return fail(failure, "make the place of %s", path);
	if (mount(path, target, NULL, MS_BIND | MS_REC, NULL) || set_flags(target, flags[access]))
		return fail(failure, "bind %s", path);
	return 0;
}

/* A private /proc: its own processes only, and without what tells of the host or changes it. */
static int mount_proc(const char *root, const struct failure *failure)
{
	static const char *const read_only[] = { "sys", "irq", "bus", "fs" };
	static const char *const hidden[] = { "kcore", "keys", "key-users", "timer_list", "sysrq-trigger", "kmsg",
					      "kallsyms", "sched_debug", "kpagecount", "kpageflags" };
	char path[1024];

	snprintf(path, sizeof(path), "%s/proc", root);
	if (mkdir(path, 0755) || mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2"))
		return fail(failure, "mount a private /proc");
	for (unsigned i = 0; i < sizeof(read_only) / sizeof(read_only[0]); i++) {
		snprintf(path, sizeof(path), "%s/proc/%s", root, read_only[i]);
		if (!access(path, F_OK) &&
		    (mount(path, path, NULL, MS_BIND, NULL) || set_flags(path, MOUNT_ATTR_RDONLY)))
			return fail(failure, "protect /proc/%s", read_only[i]);
	}
	for (unsigned i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
		snprintf(path, sizeof(path), "%s/proc/%s", root, hidden[i]);
		if (!access(path, F_OK) && mount("/dev/null", path, NULL, MS_BIND, NULL))
			return fail(failure, "hide /proc/%s", hidden[i]);
	}
	return 0;
}

static int compare_paths(const void *one, const void *other)
{
	return strcmp(((const struct sandbox_path *)one)->path, ((const struct sandbox_path *)other)->path);
}

/* A directory before what lies in it, which may have been named, too. */
static int bind_all(const struct sandbox *sandbox, const char *root, const struct failure *failure)
{
	struct sandbox_path ordered[SANDBOX_PATHS];

	memcpy(ordered, sandbox->path, sizeof(ordered));
	qsort(ordered, sandbox->paths, sizeof(ordered[0]), compare_paths);
	for (unsigned i = 0; i < sandbox->paths; i++)
		if (bind_path(root, ordered[i].path, ordered[i].access, failure))
			return -1;
	return 0;
}

static int make_root(const struct sandbox *sandbox, const char *root, const struct failure *failure)
{
	static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/urandom" };

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return fail(failure, "have mounts of its own");
	if (mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m,nr_inodes=2048"))
		return fail(failure, "mount an empty root at %s", root);
	if (mount_proc(root, failure))
		return -1;
	for (unsigned i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		if (bind_path(root, devices[i], SANDBOX_DEVICE, failure))
			return -1;
	if (bind_all(sandbox, root, failure))
		return -1;
	if (mount(NULL, root, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL))
		return fail(failure, "make the root read-only");
	/* the old root is put upon the new one and taken away there */
	if (chdir(root) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
		return fail(failure, "change the root directory");
	return 0;
}

/* ---- the child: identity, capabilities, limits ---- */

static int await_maps(int sync, const struct failure *failure)
{
	char byte = 0;

	if (write(sync, &byte, 1) != 1 || read(sync, &byte, 1) != 1) {
		errno = EPERM;
		return fail(failure, "map its user in a user namespace");
	}
	return 0;
}

static int set_limit(int what, rlim_t most)
{
	struct rlimit limit;

	if (getrlimit(what, &limit))
		return -1;
	if (limit.rlim_max > most)
		limit.rlim_max = most;
	limit.rlim_cur = limit.rlim_max;
	return setrlimit(what, &limit);
}

static int drop_capabilities(const struct failure *failure)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	if (prctl(PR_SET_SECUREBITS, SECURE_ALL_BITS | SECURE_ALL_LOCKS, 0, 0, 0) && errno != EINVAL)
		return fail(failure, "set its secure bits");
	for (int i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
		if (prctl(PR_CAPBSET_DROP, i, 0, 0, 0))
			return fail(failure, "drop capability %d", i);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) || syscall(SYS_capset, &header, none))
		return fail(failure, "drop its capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return fail(failure, "set no_new_privs");
	return 0;
}

int sandbox_renounce(uid_t uid, gid_t gid, char *error, size_t size)
{
	const struct failure failure = { error, size };

	/* what a change of user would take away, drop_capabilities() still needs */
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) || setgroups(0, NULL) || setresgid(gid, gid, gid) ||
	    setresuid(uid, uid, uid))
		return fail(&failure, "become user %u", uid);
	if (drop_capabilities(&failure))
		return -1;
	return prctl(PR_SET_DUMPABLE, 0) ? fail(&failure, "hide its memory") : 0;
}

static int become_user(const struct sandbox *sandbox, int sync, bool privileged, const struct failure *failure)
{
	if (!privileged)
		return 0; /* it is itself already */
	if (setgroups(0, NULL))
		return fail(failure, "leave its groups");
	if (unshare(CLONE_NEWUSER))
		return fail(failure, "enter a user namespace");
	if (await_maps(sync, failure))
		return -1;
	if (setresgid(sandbox->gid, sandbox->gid, sandbox->gid) || setresuid(sandbox->uid, sandbox->uid, sandbox->uid))
		return fail(failure, "become user %u", sandbox->uid);
	return 0;
}

int sandbox_enter(const struct sandbox *sandbox, int sync, const char *root, char *error, size_t size)
{
	const struct failure failure = { error, size };
	bool privileged = !geteuid();

	umask(022); /* whatever the daemon's is: another user must get through the directories */
	if (!privileged && await_maps(sync, &failure))
		return -1;
	if (make_root(sandbox, root, &failure))
		return -1;
	if (sethostname("worker", 6) && errno != EPERM) /* systemd's ProtectHostname= lets nobody: a host's name is no secret */
		return fail(&failure, "have a name of its own");
	if (set_limit(RLIMIT_CORE, 0) || set_limit(RLIMIT_NOFILE, FILES) || set_limit(RLIMIT_MEMLOCK, RLIM_INFINITY) ||
	    set_limit(RLIMIT_MSGQUEUE, 0) || (privileged && set_limit(RLIMIT_NPROC, PROCESSES)))
		return fail(&failure, "set its limits");
	if (become_user(sandbox, sync, privileged, &failure) || drop_capabilities(&failure))
		return -1;
	if (prctl(PR_SET_PDEATHSIG, SIGTERM)) /* a change of user has cleared it */
		return fail(&failure, "be told of its keeper's end");
	return 0;
}

const char *sandbox_profile(const char *worker)
{
	const char *slash = strrchr(worker, '/');

	return strcmp(slash ? slash + 1 : worker, "vgpumgr-relay") ? "vgpumgr-worker" : "vgpumgr-relay";
}

bool sandbox_has_profile(const char *profile)
{
	size_t length = strlen(profile);
	FILE *profiles = fopen("/sys/kernel/security/apparmor/profiles", "re");
	char line[512];
	bool found = !profiles; /* only root may read it: then trying tells */

	while (!found && fgets(line, sizeof(line), profiles))
		found = !strncmp(line, profile, length) && !strncmp(line + length, " (", 2);
	if (profiles)
		fclose(profiles);
	return found;
}

/* Where the kernel lets nobody change to it there is none: `virtio show` says so. Only AppArmor has that file. */
void sandbox_enter_profile(const char *profile)
{
	char command[64];
	int length = snprintf(command, sizeof(command), "changeprofile %s", profile);
	int fd = open("/proc/self/attr/apparmor/current", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, command, (size_t)length) < 0)
		errno = 0;
	if (fd >= 0)
		close(fd);
}

int sandbox_filter(const struct sandbox *sandbox, char *error, size_t size)
{
	const struct failure failure = { error, size };
	int result = vg_filter_apply(VG_FILTER_START, sandbox->filter);

	if (!result)
		return 0;
	errno = -result;
	return fail(&failure, "filter its system calls");
}

void sandbox_clean_environment(void)
{
	static const char *const kept[] = { "VGPUMGR_", "CUDA_", "NVIDIA_", "LD_LIBRARY_PATH=", "LANG=", "LC_ALL=" };
	unsigned count = 0;

	for (char **variable = environ; *variable; variable++)
		for (unsigned i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
			if (!strncmp(*variable, kept[i], strlen(kept[i]))) {
				environ[count++] = *variable;
				break;
			}
	environ[count] = NULL;
}
