/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGES = 100, LINE = 256, CALLBACKS = 16 };

static const char truncated[] = "[older messages are lost]\n";

struct listener {
	CUlogsCallback callback;
	void *data;
	uintptr_t handle; /* 0: free */
};

static struct {
	pthread_mutex_t lock;
	uint32_t next;               /* number of the next message */
	char lines[MESSAGES][LINE];  /* by number, each with its newline */
	struct listener listeners[CALLBACKS];
	uintptr_t last_handle;
} logs = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Lines of messages: a newline in one would make two of it. */
static size_t write_line(char line[LINE], const char *format, va_list words)
{
	int length = vsnprintf(line, LINE - 1, format, words);
	size_t n = length < 0 ? 0 : length < LINE - 2 ? (size_t)length : LINE - 2;

	for (size_t i = 0; i < n; i++)
		if (line[i] == '\n')
			line[i] = ' ';
	line[n++] = '\n';
	line[n] = 0;
	return n;
}

void cuda_log(CUlogLevel level, const char *format, ...)
{
	struct listener listeners[CALLBACKS];
	char line[LINE];
	int saved = errno;
	va_list words;
	size_t length;

	va_start(words, format);
	length = write_line(line, format, words);
	va_end(words);
	pthread_mutex_lock(&logs.lock);
	memcpy(logs.lines[logs.next++ % MESSAGES], line, length + 1);
	memcpy(listeners, logs.listeners, sizeof(listeners));
	pthread_mutex_unlock(&logs.lock);
	line[--length] = 0;
	for (int i = 0; i < CALLBACKS; i++)
		if (listeners[i].handle)
			listeners[i].callback(listeners[i].data, level, line, length);
	errno = saved;
}

void cuda_log_forked(void)
{
	pthread_mutex_init(&logs.lock, NULL);
}

CUresult cuda_log_register(CUlogsCallback callback, void *data, CUlogsCallbackHandle *handle)
{
	CUresult r = callback ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&logs.lock);
	for (int i = 0; i < CALLBACKS && r == CUDA_ERROR_OUT_OF_MEMORY; i++) {
		if (logs.listeners[i].handle)
			continue;
		logs.listeners[i] = (struct listener){ callback, data, ++logs.last_handle };
		if (handle)
			*handle = (CUlogsCallbackHandle)logs.last_handle;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&logs.lock);
	return r;
}

CUresult cuda_log_unregister(CUlogsCallbackHandle handle)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&logs.lock);
	for (int i = 0; i < CALLBACKS && handle; i++) {
		if (logs.listeners[i].handle != (uintptr_t)handle)
			continue;
		logs.listeners[i].handle = 0;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&logs.lock);
	return r;
}

CUresult cuda_log_current(CUlogIterator *iterator, unsigned int flags)
{
	if (!iterator || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&logs.lock);
	*iterator = logs.next;
	pthread_mutex_unlock(&logs.lock);
	return CUDA_SUCCESS;
}

/* Under the lock: the first message from the iterator on that is still there; *lost: some are not. */
static uint32_t find_first(const CUlogIterator *iterator, bool *lost)
{
	uint32_t kept = logs.next < MESSAGES ? logs.next : MESSAGES, wanted;

	/* an iterator that was never given counts as the oldest */
	wanted = iterator && logs.next - *iterator <= logs.next ? logs.next - *iterator : logs.next;
	*lost = wanted > kept;
	return logs.next - (wanted < kept ? wanted : kept);
}

/* Under the lock: the newest messages that the room holds, behind a line that says so where some are missing. */
static size_t put_messages(uint32_t first, bool lost, char *to, size_t room)
{
	size_t needed = 0, at = 0;
	uint32_t from = logs.next;

	while (from != first && needed + strlen(logs.lines[(from - 1) % MESSAGES]) <= room)
		needed += strlen(logs.lines[--from % MESSAGES]);
	if (from == logs.next)
		return 0;
	lost = lost || from != first;
	while (lost && from != logs.next && needed + sizeof(truncated) - 1 > room)
		needed -= strlen(logs.lines[from++ % MESSAGES]);
	if (from == logs.next)
		return 0;
	if (lost) {
		memcpy(to, truncated, sizeof(truncated) - 1);
		at = sizeof(truncated) - 1;
	}
	for (; from != logs.next; from++) {
		size_t n = strlen(logs.lines[from % MESSAGES]);

		memcpy(to + at, logs.lines[from % MESSAGES], n);
		at += n;
	}
	return at;
}

/* Without room for one message there is an error, and the iterator stays. */
static CUresult dump(CUlogIterator *iterator, char *to, size_t room, size_t *length)
{
	uint32_t first;
	bool lost, is_empty;

	pthread_mutex_lock(&logs.lock);
	first = find_first(iterator, &lost);
	is_empty = first == logs.next;
	*length = put_messages(first, lost, to, room);
	if (iterator && (*length || is_empty))
		*iterator = logs.next;
	pthread_mutex_unlock(&logs.lock);
	return *length || is_empty ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_log_dump_memory(CUlogIterator *iterator, char *buffer, size_t *size, unsigned int flags)
{
	CUresult r;

	if (!buffer || !size || !*size || flags)
		return CUDA_ERROR_INVALID_VALUE;
	r = dump(iterator, buffer, *size - 1, size);
	buffer[*size] = 0;
	return r;
}

static bool write_all(int file, const char *text, size_t length)
{
	while (length) {
		ssize_t n = write(file, text, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		text += n;
		length -= (size_t)n;
	}
	return true;
}

CUresult cuda_log_dump_file(CUlogIterator *iterator, const char *path, unsigned int flags)
{
	char text[MESSAGES * LINE + sizeof(truncated)];
	int saved = errno, file;
	size_t length;
	bool done;

	if (!path || flags)
		return CUDA_ERROR_INVALID_VALUE;
	file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (file < 0) {
		errno = saved;
		return CUDA_ERROR_INVALID_VALUE;
	}
	dump(iterator, text, sizeof(text), &length);
	done = write_all(file, text, length);
	close(file);
	errno = saved;
	return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
