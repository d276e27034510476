/* SPDX-License-Identifier: Apache-2.0 */
/* Unique ids, and files in /dev/shm that are left over. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "segment.h"

static const char MAGIC[8] = "vgpunccl";
enum { VERSION = 1, LEFT_S = 3600 };

bool sg_random(void *bytes, size_t length)
{
	size_t done = 0;

	while (done < length) {
		ssize_t n = getrandom((char *)bytes + done, length - done, 0);

		if (n < 0 && errno != EINTR)
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* The kernel's number of this boot, which all processes of one system have. */
static bool read_system(uint8_t system[16])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	unsigned int byte;
	int n = 0;

	if (!file)
		return false;
	while (n < 16 && fscanf(file, "%2x", &byte) == 1) {
		system[n++] = (uint8_t)byte;
		if (n == 4 || n == 6 || n == 8 || n == 10)
			fgetc(file);
	}
	fclose(file);
	return n == 16;
}

bool sg_make_id(struct sg_id *id, const uint8_t random[96])
{
	memset(id, 0, sizeof(*id));
	memcpy(id->magic, MAGIC, sizeof(MAGIC));
	id->version = VERSION;
	id->user = geteuid();
	memcpy(id->name, random, sizeof(id->name));
	memcpy(id->secret, random + sizeof(id->name), sizeof(id->secret));
	return read_system(id->system);
}

ncclResult_t sg_check_id(const struct sg_id *id, char text[SG_TEXT])
{
	uint8_t system[16];

	if (memcmp(id->magic, MAGIC, sizeof(MAGIC))) {
		snprintf(text, SG_TEXT, "the unique id is not one that this library has made: "
			 "a forwarded GPU has no communicators with other machines");
		return ncclSystemError;
	}
	if (id->version != VERSION) {
		snprintf(text, SG_TEXT, "the unique id is of another version of vgpumgr-guest (%u, here %u)", id->version, VERSION);
		return ncclSystemError;
	}
	if (!read_system(system) || memcmp(system, id->system, sizeof(system))) {
		snprintf(text, SG_TEXT, "the unique id was made on another machine: "
			 "a forwarded GPU has communicators within one guest only");
		return ncclSystemError;
	}
	if (id->user != geteuid()) {
		snprintf(text, SG_TEXT, "the unique id was made by user %u: the ranks of a communicator have one user (here %u)",
			 id->user, geteuid());
		return ncclSystemError;
	}
	return ncclSuccess;
}

static void sweep_one(int directory, const char *name)
{
	struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat about;
	int file;

	if (fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) < 0 || about.st_uid != geteuid() ||
	    !S_ISREG(about.st_mode) || time(NULL) - about.st_ctime < LEFT_S)
		return;
	file = openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (file < 0)
		return;
	/* a process that has it open holds a lock; this process's own are younger than LEFT_S or have no name */
	if (fcntl(file, F_GETLK, &range) == 0 && range.l_type == F_UNLCK)
		unlinkat(directory, name, 0);
	close(file);
}

void sg_sweep(void)
{
	DIR *directory = opendir("/dev/shm");
	struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		if (!strncmp(entry->d_name, "vgpumgr-nccl-", 13))
			sweep_one(dirfd(directory), entry->d_name);
	if (directory)
		closedir(directory);
}
