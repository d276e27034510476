/* SPDX-License-Identifier: Apache-2.0 */
/* Which libraries a CUDA program of this VM finds, and whether they are those of this version. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../transport/util.h"
#include "check.h"
#include "vg_interface.h"

#define FOLDER "/usr/lib/vgpumgr"
#define INSTALL "install the guest package again (on the host: vgpumgr virtio guest-package)"

const struct vg_interface *const check_interface = &vg_interface;

/* RPMs have the libraries where RHEL keeps those of 64 bits. */
static const char *const folders[] = { FOLDER, "/usr/lib64/vgpumgr" };
static const char *const names[] = { "libcuda.so.1", "libcudart.so.12", "libcudart.so.13", "libnvidia-ml.so.1" };

static const char *find_folder(const struct check *check)
{
	char path[CHECK_PATH];

	for (unsigned i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		check_path(check, path, "%s/%s", folders[i], names[0]);
		if (!access(path, F_OK))
			return folders[i];
	}
	return FOLDER;
}

/* Both were built from one description of the calls: its hash is in the library. */
static bool is_of_this_version(const char *path)
{
	VG_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool found = false;
	struct stat st;
	void *bytes;

	if (fd < 0 || fstat(fd, &st) || !st.st_size)
		return false;
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return false;
	found = memmem(bytes, (size_t)st.st_size, vg_interface.hash, VG_HASH_SIZE);
	munmap(bytes, (size_t)st.st_size);
	return found;
}

void check_libraries(struct check *check)
{
	const char *folder = find_folder(check);
	char path[CHECK_PATH], missing[CHECK_TEXT] = "";

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		check_path(check, path, "%s/%s", folder, names[i]);
		if (access(path, R_OK))
			check_append(missing, "%s (%s)", names[i], strerror(errno));
	}
	check_path(check, path, "%s/%s", folder, names[0]);
	if (*missing)
		check_report(check, "libraries", CHECK_PROBLEM, INSTALL, "not in %s: %s", folder, missing);
	else if (!is_of_this_version(path))
		check_report(check, "libraries", CHECK_PROBLEM, INSTALL, "%s/%s is of another version than this program",
			     folder, names[0]);
	else
		check_report(check, "libraries", CHECK_OK, NULL, "%s: CUDA's driver, its runtimes 12 and 13, NVML", folder);
}

/* What a program prints, as far as it fits; false: it cannot be run. */
static bool read_program(const char *const words[], char *text, size_t size)
{
	size_t filled = 0;
	int ends[2], status = 0;
	ssize_t n;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return false;
	pid = fork();
	if (!pid) {
		dup2(ends[1], STDOUT_FILENO);
		execv(words[0], (char *const *)words);
		_exit(127);
	}
	close(ends[1]);
	while (pid > 0 && filled < size - 1 && (n = read(ends[0], text + filled, size - 1 - filled)) > 0)
		filled += (size_t)n;
	close(ends[0]);
	text[filled] = '\0';
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) != 127;
}

/* The first libcuda.so.1 of 64 bits in the loader's cache. */
static bool find_in_cache(const struct check *check, char found[CHECK_PATH], bool *known)
{
	enum { ENOUGH = 4 << 20 };
	char program[CHECK_PATH], *text = malloc(ENOUGH), *line, *rest;
	const char *words[] = { program, "-p", NULL };

	check_path(check, program, "/sbin/ldconfig");
	*known = text && read_program(words, text, ENOUGH);
	found[0] = '\0';
	rest = *known ? text : NULL;
	while (!*found && (line = strsep(&rest, "\n"))) {
		char *arrow = strstr(line, "=> ");

		if (arrow && strstr(line, "libcuda.so.1 ") && strstr(line, "x86-64"))
			snprintf(found, CHECK_PATH, "%s", arrow + strlen("=> "));
	}
	free(text);
	return *found;
}

static bool is_ours(const struct check *check, const char *path)
{
	char wanted[CHECK_PATH], real[PATH_MAX], ours[PATH_MAX];

	check_path(check, wanted, "%s/%s", find_folder(check), names[0]);
	return realpath(wanted, ours) && realpath(path, real) && !strcmp(real, ours);
}

void check_loader(struct check *check)
{
	char found[CHECK_PATH];
	bool known;

	if (!find_in_cache(check, found, &known) && !known)
		check_report(check, "loader", CHECK_SKIPPED, NULL, "this system has no ldconfig -p");
	else if (!*found)
		check_report(check, "loader", CHECK_PROBLEM, "as root: ldconfig; /etc/ld.so.conf.d/vgpumgr.conf names the directory",
			     "programs find no libcuda.so.1: the loader's cache has none");
	else if (!is_ours(check, found))
		check_report(check, "loader", CHECK_PROBLEM, "remove that package (NVIDIA's driver, which has no GPU here), then as root: ldconfig",
			     "programs find another driver first: %s", found);
	else
		check_report(check, "loader", CHECK_OK, NULL, "programs find %s", found);
}

static bool find_in_path(const struct check *check, char found[CHECK_PATH])
{
	const char *value = getenv("LD_LIBRARY_PATH");
	char *copy = value ? strdup(value) : NULL, *rest = copy, *folder;
	bool other = false;

	while (!other && rest && (folder = strsep(&rest, ":"))) {
		snprintf(found, CHECK_PATH, "%s/%s", *folder ? folder : ".", names[0]);
		if (!access(found, R_OK)) {
			other = !is_ours(check, found);
			break;
		}
	}
	free(copy);
	return other;
}

void check_environment(struct check *check)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char found[CHECK_PATH];

	if (find_in_path(check, found))
		check_report(check, "environment", CHECK_PROBLEM, "unset LD_LIBRARY_PATH",
			     "LD_LIBRARY_PATH leads to another driver: %s", found);
	else if (visible && (!*visible || !strncmp(visible, "-1", 2)))
		check_report(check, "environment", CHECK_PROBLEM, "unset CUDA_VISIBLE_DEVICES",
			     "CUDA_VISIBLE_DEVICES=%s hides all GPUs", visible);
	else
		check_report(check, "environment", CHECK_OK, NULL, "no variable leads away from this VM's GPUs");
}
