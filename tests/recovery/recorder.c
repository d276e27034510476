/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a process, writes down every change that it makes to files below RECORD_ROOT and
 * every sync, in order, so that a power failure can be played at any moment between them.
 *
 * One record: "OP\tARGUMENTS\n", for writes followed by the data. Descriptors are resolved to paths
 * when they are opened. Threads are not expected.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FD 1024

static char *paths[MAX_FD];
static int log_fd = -1;
static const char *root;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void log_start(void)
{
	if (root)
		return;
	root = getenv("RECORD_ROOT");
	if (!root)
		root = "/nowhere";
	const char *log = getenv("RECORD_LOG");

	if (log)
		log_fd = REAL(open)(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static ssize_t put(const void *data, size_t size)
{
	return REAL(write)(log_fd, data, size);
}

static int is_ours(const char *path)
{
	log_start();
	return log_fd >= 0 && path && !strncmp(path, root, strlen(root));
}

__attribute__((format(printf, 1, 2))) static void log_line(const char *format, ...)
{
	char line[2 * PATH_MAX + 64];
	va_list arguments;

	va_start(arguments, format);
	int size = vsnprintf(line, sizeof(line), format, arguments);

	va_end(arguments);
	if (put(line, size) != size)
		abort();
}

static void note_open(int fd, const char *path, int flags)
{
	if (fd < 0 || fd >= MAX_FD)
		return;
	free(paths[fd]);
	paths[fd] = NULL;
	if (!is_ours(path))
		return;
	paths[fd] = strdup(path);
	if (flags & O_CREAT)
		log_line("create\t%s\n", path);
	if (flags & O_TRUNC)
		log_line("truncate\t%s\t0\n", path);
}

static const char *path_of(int fd)
{
	return fd >= 0 && fd < MAX_FD ? paths[fd] : NULL;
}

static int open_any(const char *path, int flags, mode_t mode)
{
	int fd = REAL(open)(path, flags, mode);
	int saved = errno;

	note_open(fd, path, flags);
	errno = saved;
	return fd;
}

#define MODE_OF(flags, mode)                                                                       \
	mode_t mode = 0;                                                                           \
	if ((flags) & (O_CREAT | O_TMPFILE)) {                                                     \
		va_list arguments;                                                                 \
		va_start(arguments, flags);                                                        \
		mode = va_arg(arguments, mode_t);                                                  \
		va_end(arguments);                                                                 \
	}

int open(const char *path, int flags, ...)
{
	MODE_OF(flags, mode)
	return open_any(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	MODE_OF(flags, mode)
	return open_any(path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
	MODE_OF(flags, mode)
	if (directory == AT_FDCWD || path[0] == '/')
		return open_any(path, flags, mode);
	return REAL(openat)(directory, path, flags, mode);
}

int close(int fd)
{
	if (fd >= 0 && fd < MAX_FD) {
		free(paths[fd]);
		paths[fd] = NULL;
	}
	return REAL(close)(fd);
}

static void note_write(int fd, const void *data, ssize_t size, off_t offset)
{
	if (!path_of(fd) || size <= 0)
		return;
	log_line("write\t%s\t%lld\t%zd\n", path_of(fd), (long long)offset, size);
	if (put(data, size) != size)
		abort();
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
	ssize_t written = REAL(pwrite)(fd, data, size, offset);

	note_write(fd, data, written, offset);
	return written;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset)
{
	return pwrite(fd, data, size, offset);
}

ssize_t write(int fd, const void *data, size_t size)
{
	off_t offset = path_of(fd) ? lseek(fd, 0, SEEK_CUR) : 0;
	ssize_t written = REAL(write)(fd, data, size);

	note_write(fd, data, written, offset);
	return written;
}

static void note_size(const char *path, long long size)
{
	if (is_ours(path))
		log_line("truncate\t%s\t%lld\n", path, size);
}

int ftruncate(int fd, off_t size)
{
	int rc = REAL(ftruncate)(fd, size);

	if (!rc && path_of(fd))
		note_size(path_of(fd), size);
	return rc;
}

int ftruncate64(int fd, off_t size)
{
	return ftruncate(fd, size);
}

int truncate(const char *path, off_t size)
{
	int rc = REAL(truncate)(path, size);

	if (!rc)
		note_size(path, size);
	return rc;
}

int truncate64(const char *path, off_t size)
{
	return truncate(path, size);
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
	int rc = REAL(posix_fallocate)(fd, offset, size);

	if (!rc && path_of(fd))
		log_line("extend\t%s\t%lld\n", path_of(fd), (long long)(offset + size));
	return rc;
}

int posix_fallocate64(int fd, off_t offset, off_t size)
{
	return posix_fallocate(fd, offset, size);
}

int fsync(int fd)
{
	int rc = REAL(fsync)(fd);

	if (!rc && path_of(fd))
		log_line("sync\t%s\n", path_of(fd));
	return rc;
}

int fdatasync(int fd)
{
	int rc = REAL(fdatasync)(fd);

	if (!rc && path_of(fd))
		log_line("sync\t%s\n", path_of(fd));
	return rc;
}

static void note_rename(const char *from, const char *to)
{
	if (is_ours(to))
		log_line("rename\t%s\t%s\n", from, to);
}

int rename(const char *from, const char *to)
{
	int rc = REAL(rename)(from, to);

	if (!rc)
		note_rename(from, to);
	return rc;
}

int unlink(const char *path)
{
	int rc = REAL(unlink)(path);

	if (!rc && is_ours(path))
		log_line("unlink\t%s\n", path);
	return rc;
}
