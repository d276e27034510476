/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that several processes record and wait for: two counters in memory of them all. Whose record is the last one is
 * noted there, so that no process waits for one that has gone.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "ipc.h"

enum { PAGE = 4096, STEP_NS = 50000 };

/* Under no lock: processes change it together. */
struct page {
	_Atomic uint64_t begun, reached;
	_Atomic uint64_t by;       /* who began the last record */
};

struct shared_event {
	struct shared_event *next; /* of those made here */
	unsigned refs;
	uint64_t id;               /* 0: another process has made it */
	uint64_t who;              /* this process among those that have it */
	int file, line;            /* of its page; to the process that has made it */
	struct page *page;
};

static struct shared_event *made; /* with drv.lock held */

static struct shared_event *map(int file, int line)
{
	struct shared_event *s = calloc(1, sizeof(*s));
	void *page = s ? mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;

	if (page == MAP_FAILED) {
		free(s);
		return NULL;
	}
	*s = (struct shared_event){ .refs = 1, .file = file, .line = line, .page = page };
	return s;
}

struct shared_event *shared_event_new(void)
{
	int file = memfd_create("vgpumgr-sim-event", MFD_CLOEXEC);
	struct shared_event *s = file < 0 || ftruncate(file, PAGE) ? NULL : map(file, -1);

	if (!s) {
		if (file >= 0)
			close(file);
		return NULL;
	}
	s->id = next_id();
	s->next = made;
	made = s;
	return s;
}

struct shared_event *shared_event_of(int file, int line, uint64_t who)
{
	struct shared_event *s = map(file, line);

	if (s)
		s->who = who;
	return s;
}

struct shared_event *shared_event_ref(struct shared_event *s)
{
	s->refs++;
	return s;
}

void shared_event_unref(struct shared_event *s)
{
	if (--s->refs)
		return;
	for (struct shared_event **p = &made; s->id && *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			break;
		}
	}
	munmap(s->page, PAGE);
	close(s->file);
	if (s->line >= 0)
		close(s->line);
	free(s);
}

struct shared_event *shared_event_lend(uint64_t id, int *file)
{
	for (struct shared_event *s = made; s; s = s->next) {
		if (s->id == id) {
			*file = s->file;
			return shared_event_ref(s);
		}
	}
	return NULL;
}

uint64_t shared_event_id(const struct shared_event *s)
{
	return s->id;
}

void shared_event_gone(struct shared_event *s, uint64_t who)
{
	if (atomic_load(&s->page->by) == who)
		shared_event_reach(s, atomic_load(&s->page->begun));
}

uint64_t shared_event_begin(struct shared_event *s)
{
	atomic_store(&s->page->by, s->who);
	return atomic_fetch_add(&s->page->begun, 1) + 1;
}

void shared_event_reach(struct shared_event *s, uint64_t record)
{
	uint64_t now = atomic_load(&s->page->reached);

	while (now < record && !atomic_compare_exchange_weak(&s->page->reached, &now, record))
		;
}

uint64_t shared_event_last(const struct shared_event *s)
{
	return atomic_load(&s->page->begun);
}

bool shared_event_reached(const struct shared_event *s, uint64_t record)
{
	return atomic_load(&s->page->reached) >= record || (s->line >= 0 && ipc_has_gone(s->line));
}

void shared_event_wait(const struct shared_event *s, uint64_t record)
{
	const struct timespec step = { .tv_nsec = STEP_NS };

	while (!shared_event_reached(s, record))
		nanosleep(&step, NULL);
}
