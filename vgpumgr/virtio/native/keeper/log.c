/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What workers say goes through a pipe of the keeper's into worker.log: no guest, and no worker that a guest has taken
 * over, makes that file large. Lines above LOG_RATE a second are counted and left out, and when the file has LOG_BYTES,
 * its older half goes. A write into the pipe never waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "keeper.h"

enum {
	LOG_BYTES = 1 << 20,
	LOG_RATE = 32 << 10,
	SECOND_MS = 1000,
	PIPE_BYTES = 1 << 20,
	AT_ONCE = 2 << 20,       /* bytes of one turn: a worker that never stops writing does not hold up the keeper */
};

static const int flags = O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;

/* Drops the older half, up to the end of a line. */
static void shorten(int file, uint64_t size)
{
	enum { KEPT = LOG_BYTES / 2 };
	char *text = malloc(KEPT), *begin;
	ssize_t length = text ? pread(file, text, KEPT, (off_t)(size - KEPT)) : 0;

	begin = length > 0 ? memchr(text, '\n', (size_t)length) : NULL;
	begin = begin ? begin + 1 : text;
	if (!ftruncate(file, 0) && length > 0 && write(file, begin, (size_t)(text + length - begin)) < 0)
		errno = 0; /* a full disk: the log is empty then, which is better than too large */
	free(text);
}

static void put(struct keeper_log *log, const char *text, size_t length)
{
	struct stat status;

	if (!fstat(log->file, &status) && status.st_size + (off_t)length > LOG_BYTES)
		shorten(log->file, (uint64_t)status.st_size);
	if (write(log->file, text, length) < 0)
		log->left_out++;
}

/* Begins another second when it is time, and says what the last one left out. */
static void turn_second(struct keeper_log *log)
{
	uint64_t now = vg_now_ms();
	char text[64];
	int length;

	if (now < log->until_ms)
		return;
	log->until_ms = now + SECOND_MS;
	log->budget = LOG_RATE;
	if (!log->left_out)
		return;
	length = snprintf(text, sizeof(text), "keeper: %lu lines left out\n", (unsigned long)log->left_out);
	log->left_out = 0;
	put(log, text, (size_t)length);
}

/* What a terminal would obey is no text. */
static void take_line(struct keeper_log *log)
{
	size_t length = log->filled;

	log->filled = 0;
	for (size_t i = 0; i < length; i++)
		if ((log->line[i] < ' ' || log->line[i] > '~') && log->line[i] != '\t')
			log->line[i] = '?';
	log->line[length++] = '\n';
	if (length > log->budget) {
		log->budget = 0; /* or short lines would pass and long ones not */
		log->left_out++;
		return;
	}
	log->budget -= length;
	put(log, log->line, length);
}

static void take(struct keeper_log *log, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (text[i] != '\n')
			log->line[log->filled++] = text[i];
		if (text[i] == '\n' || log->filled == LOG_LINE - 1)
			take_line(log);
	}
}

int keeper_log_open(struct keeper *keeper, const char *path)
{
	struct keeper_log *log = &keeper->log;
	int pair[2];

	log->file = open(path, O_RDWR | flags, 0640);
	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	fcntl(pair[1], F_SETPIPE_SZ, PIPE_BYTES); /* less, where a user may not have so much */
	log->read = pair[0];
	log->write = pair[1];
	return 0;
}

void keeper_log_read(struct keeper *keeper)
{
	struct keeper_log *log = &keeper->log;
	static char text[64 << 10];
	ssize_t n = 1;

	turn_second(log);
	for (size_t all = 0; log->read >= 0 && all < AT_ONCE && n > 0; all += (size_t)n) {
		n = read(log->read, text, sizeof(text));
		if (n > 0)
			take(log, text, (size_t)n);
		else if (!n) /* the last writer has ended */
			vg_close_fd(&log->read);
		else
			n = 0;
	}
}

void keeper_log_end(struct keeper *keeper)
{
	struct keeper_log *log = &keeper->log;

	keeper_log_read(keeper);
	if (log->filled)
		take_line(log);
	if (log->left_out)
		log->until_ms = 0;
	turn_second(log);
}

int keeper_log_wait(const struct keeper *keeper)
{
	uint64_t now = vg_now_ms();

	if (!keeper->log.left_out)
		return -1;
	return keeper->log.until_ms > now ? (int)(keeper->log.until_ms - now) : 0;
}

int keeper_log_own(const char *path)
{
	int file = open(path, O_RDWR | flags, 0640);
	struct stat status;

	if (file < 0)
		return open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (!fstat(file, &status) && status.st_size > LOG_BYTES)
		shorten(file, (uint64_t)status.st_size);
	return file;
}
