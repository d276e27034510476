/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "books.h"

struct object {
	enum null_kind kind;
	struct object *next;
};

struct memory {
	struct memory *next;
	char *at;
	size_t bytes, mapped;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *memories;
static _Atomic unsigned long live;
static _Atomic unsigned int countdown;
static _Atomic int configured;
static const char *failing_name;
static CUresult failing_code = CUDA_ERROR_UNKNOWN;

void null_abort(const char *what)
{
	fprintf(stderr, "null driver: %s\n", what);
	abort();
}

void null_fail_after(unsigned int n)
{
	atomic_store(&countdown, n);
}

static void configure(void)
{
	const char *n = getenv("VGPUMGR_NULL_FAIL"), *name = getenv("VGPUMGR_NULL_FAIL_NAME");
	char *colon;

	if (atomic_exchange(&configured, 1))
		return;
	if (n)
		null_fail_after(atoi(n));
	if (!name)
		return;
	failing_name = strdup(name);
	colon = failing_name ? strchr(failing_name, ':') : NULL;
	if (colon) {
		*colon = 0;
		failing_code = atoi(colon + 1);
	}
}

CUresult null_enter(const char *name)
{
	unsigned int left;

	if (!atomic_load_explicit(&configured, memory_order_relaxed))
		configure();
	if (failing_name && !strcmp(failing_name, name))
		return failing_code;
	left = atomic_load_explicit(&countdown, memory_order_relaxed);
	if (left && atomic_fetch_sub(&countdown, 1) == 1)
		return CUDA_ERROR_UNKNOWN;
	return CUDA_SUCCESS;
}

void *null_object(enum null_kind kind)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o)
		null_abort("out of memory");
	o->kind = kind;
	atomic_fetch_add(&live, 1);
	return o;
}

void null_check(enum null_kind kind, const void *object)
{
	const struct object *o = object;

	if (!o || o->kind != kind)
		null_abort("a handle of the wrong kind, or one that is no longer there");
}

void null_check_stream(CUstream stream)
{
	if (stream)
		null_check(NULL_STREAM, stream);
}

void null_end(enum null_kind kind, void *object)
{
	struct object *o = object;

	null_check(kind, o);
	o->kind = 0;
	free(o);
	atomic_fetch_sub(&live, 1);
}

void *null_memory(size_t bytes)
{
	struct memory *m = malloc(sizeof(*m));

	if (!m || !bytes || bytes > 1ull << 32)
		return free(m), NULL;
	m->bytes = bytes;
	m->mapped = (bytes + 4095) & ~4095ull;
	m->at = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m->at == MAP_FAILED)
		return free(m), NULL;
	pthread_mutex_lock(&lock);
	m->next = memories;
	memories = m;
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&live, 1);
	return m->at;
}

void null_memory_end(CUdeviceptr address)
{
	struct memory **at = &memories, *m;

	pthread_mutex_lock(&lock);
	while (*at && (CUdeviceptr)(*at)->at != address)
		at = &(*at)->next;
	m = *at;
	if (m)
		*at = m->next;
	pthread_mutex_unlock(&lock);
	if (!m)
		null_abort("a free of what was not allocated");
	munmap(m->at, m->mapped);
	free(m);
	atomic_fetch_sub(&live, 1);
}

void null_check_memory(CUdeviceptr address, size_t bytes)
{
	bool inside = !bytes;

	pthread_mutex_lock(&lock);
	for (struct memory *m = memories; m && !inside; m = m->next)
		inside = address >= (CUdeviceptr)m->at && bytes <= m->bytes &&
			 address - (CUdeviceptr)m->at <= m->bytes - bytes;
	pthread_mutex_unlock(&lock);
	if (!inside)
		null_abort("an address outside of every allocation");
}

unsigned long null_live(void)
{
	return atomic_load(&live);
}
