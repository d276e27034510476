/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "books.h"

struct object {
	enum null_kind kind;
	struct object *owner, *owned, *next;
	_Atomic int mark;
	void *variable;          /* of a module */
	void *kept[2];
	_Atomic int functions;   /* of a context: host functions that have not returned */
	unsigned int last, turn; /* of them: they run one after another, in their order */
};

struct host_function {
	struct object *context;
	CUhostFn function;
	void *data;
	unsigned int turn;
};

struct memory {
	struct memory *next;
	const void *context;
	char *at;
	size_t bytes, mapped;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER;
static struct memory *memories;
static _Atomic unsigned long live;
static _Atomic unsigned int countdown;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool configured;
/* One function, as the environment names it: NAME[:NUMBER]. */
struct chosen {
	const char *name;
	int number;
};

static struct chosen failing = { NULL, CUDA_ERROR_UNKNOWN }, slow;

void null_abort(const char *what)
{
	fprintf(stderr, "null driver: %s\n", what);
	abort();
}

void null_fail_after(unsigned int n)
{
	atomic_store(&countdown, n);
}

static void choose(struct chosen *c, const char *variable)
{
	const char *text = getenv(variable);
	char *name = text ? strdup(text) : NULL, *colon = name ? strchr(name, ':') : NULL;

	if (colon) {
		*colon = 0;
		c->number = atoi(colon + 1);
	}
	c->name = name;
}

static void configure(void)
{
	const char *n = getenv("VGPUMGR_NULL_FAIL");

	if (n)
		null_fail_after(atoi(n));
	choose(&failing, "VGPUMGR_NULL_FAIL_NAME");
	choose(&slow, "VGPUMGR_NULL_SLOW");
	atomic_store(&configured, true);
}

static bool is_chosen(const struct chosen *c, const char *name)
{
	return c->name && !strcmp(c->name, name);
}

CUresult null_enter(const char *name)
{
	unsigned int left;

	if (!atomic_load_explicit(&configured, memory_order_acquire))
		pthread_once(&once, configure);
	if (is_chosen(&failing, name))
		return failing.number;
	if (is_chosen(&slow, name))
		usleep(slow.number);
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

void *null_owned(enum null_kind kind, void *owner)
{
	struct object *o = null_object(kind), *parent = owner;

	o->owner = parent;
	o->next = parent->owned;
	parent->owned = o;
	return o;
}

void *null_owner(enum null_kind kind, const void *object)
{
	null_check(kind, object);
	return ((const struct object *)object)->owner;
}

void null_disown(void *object)
{
	struct object *o = object, **at = &o->owner->owned;

	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
}

size_t null_list(const void *owner, void **list, size_t most)
{
	size_t count = 0;

	for (struct object *o = ((const struct object *)owner)->owned; o; o = o->next, count++)
		if (list && count < most)
			list[count] = o;
	return list && count > most ? most : count;
}

int null_is_marked(const void *object)
{
	return atomic_load(&((const struct object *)object)->mark);
}

int null_mark(void *object, int mark)
{
	return atomic_exchange(&((struct object *)object)->mark, mark);
}

void **null_kept(void *object)
{
	return ((struct object *)object)->kept;
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
	while (o->owned) {
		struct object *first = o->owned;

		o->owned = first->next;
		null_end(first->kind, first);
	}
	if (o->variable)
		null_memory_end((CUdeviceptr)o->variable);
	o->kind = 0;
	free(o);
	atomic_fetch_sub(&live, 1);
}

void *null_memory(const void *context, size_t bytes)
{
	struct memory *m = malloc(sizeof(*m));

	if (!m || !bytes || bytes > 1ull << 32)
		return free(m), NULL;
	m->context = context;
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

const void *null_memory_context(CUdeviceptr address)
{
	const void *context = NULL;

	pthread_mutex_lock(&lock);
	for (struct memory *m = memories; m; m = m->next)
		if ((CUdeviceptr)m->at == address)
			context = m->context;
	pthread_mutex_unlock(&lock);
	return context;
}

/* ---- what is mapped */

static struct span {
	struct span *next;
	CUdeviceptr address;
	size_t bytes;
} *spans;

bool null_span_any(CUdeviceptr address, size_t bytes)
{
	bool any = false;

	pthread_mutex_lock(&lock);
	for (struct span *s = spans; s && !any; s = s->next)
		any = s->address < address + bytes && address < s->address + s->bytes;
	pthread_mutex_unlock(&lock);
	return any;
}

bool null_span_add(CUdeviceptr address, size_t bytes)
{
	struct span *s = malloc(sizeof(*s));

	if (!s || null_span_any(address, bytes))
		return free(s), false;
	pthread_mutex_lock(&lock);
	*s = (struct span){ spans, address, bytes };
	spans = s;
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&live, 1);
	return true;
}

bool null_span_end(CUdeviceptr address, size_t bytes)
{
	struct span **at = &spans, *s;

	pthread_mutex_lock(&lock);
	while (*at && !((*at)->address == address && (*at)->bytes == bytes))
		at = &(*at)->next;
	s = *at;
	if (s)
		*at = s->next;
	pthread_mutex_unlock(&lock);
	free(s);
	atomic_fetch_sub(&live, s != NULL);
	return s;
}

/* Under the lock: what is mapped there, or NULL. */
static const struct span *find_span(CUdeviceptr address)
{
	const struct span *s = spans;

	while (s && !(address >= s->address && address - s->address < s->bytes))
		s = s->next;
	return s;
}

static bool is_mapped(CUdeviceptr address, size_t bytes)
{
	CUdeviceptr end = address + bytes;
	const struct span *s;

	pthread_mutex_lock(&lock);
	for (s = find_span(address); s && s->address + s->bytes < end; s = find_span(s->address + s->bytes))
		;
	pthread_mutex_unlock(&lock);
	return s;
}

void null_check_memory(CUdeviceptr address, size_t bytes)
{
	bool inside = !bytes;

	pthread_mutex_lock(&lock);
	for (struct memory *m = memories; m && !inside; m = m->next)
		inside = address >= (CUdeviceptr)m->at && bytes <= m->bytes &&
			 address - (CUdeviceptr)m->at <= m->bytes - bytes;
	pthread_mutex_unlock(&lock);
	if (!inside && !is_mapped(address, bytes))
		null_abort("an address outside of every allocation");
}

CUdeviceptr null_variable(void *module)
{
	struct object *o = module;
	void *made, *none = NULL;

	null_check(NULL_MODULE, module);
	made = __atomic_load_n(&o->variable, __ATOMIC_ACQUIRE) ? NULL : null_memory(NULL, NULL_VARIABLE_BYTES);
	if (made && !__atomic_compare_exchange_n(&o->variable, &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		null_memory_end((CUdeviceptr)made);
	return (CUdeviceptr)__atomic_load_n(&o->variable, __ATOMIC_ACQUIRE);
}

/* ---- host functions */

static void *call_function(void *argument)
{
	struct host_function *h = argument;

	pthread_mutex_lock(&lock);
	while (h->context->turn != h->turn)
		pthread_cond_wait(&returned, &lock);
	pthread_mutex_unlock(&lock);
	h->function(h->data);
	pthread_mutex_lock(&lock);
	h->context->turn++;
	h->context->functions--;
	pthread_cond_broadcast(&returned);
	pthread_mutex_unlock(&lock);
	free(h);
	return NULL;
}

CUresult null_host_function(void *context, CUhostFn function, void *data)
{
	struct host_function *h = malloc(sizeof(*h));
	pthread_t thread;
	int failed;

	null_check(NULL_CONTEXT, context);
	if (!h)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	*h = (struct host_function){ context, function, data, ((struct object *)context)->last };
	failed = pthread_create(&thread, NULL, call_function, h);
	if (!failed) {
		h->context->functions++;
		h->context->last++;
	}
	pthread_mutex_unlock(&lock);
	if (failed) {
		free(h);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_detach(thread);
	return CUDA_SUCCESS;
}

void null_wait(const void *context)
{
	const struct object *o = context;

	if (!o || !o->functions)
		return;
	pthread_mutex_lock(&lock);
	while (o->functions)
		pthread_cond_wait(&returned, &lock);
	pthread_mutex_unlock(&lock);
}

unsigned long null_live(void)
{
	return atomic_load(&live);
}
