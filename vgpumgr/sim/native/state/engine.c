/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of a simulated GPU: one compute engine, which processes with work have in turns, as on hardware that slices its
 * time. Device time of a process passes only while it has the engine. The word that says who has it is in the state file; who
 * gives it back hands it to the next process that waits. A process that was killed with it is noticed by one that waits.
 */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"

enum {
	SLICE_NS = 2000000,      /* NVIDIA's time-sliced scheduler has slices of about 2 ms (nvidia-smi: default time slice) */
	LOOK_NS = 1000000,       /* a wait looks so often whether the holder still lives */
	SPIN_NS = 60000,         /* the kernel's timers may come later than that */
};

/* This process on one GPU. */
static struct engine {
	pthread_mutex_t lock;
	pthread_cond_t free;     /* the thread that waits for the engine has it */
	unsigned inside;         /* kernels that run */
	bool held, waited;       /* a thread of ours waits for it */
	uint64_t since_ns, total_ns;
} engines[SIM_MAX_GPUS] = {
	[0 ... SIM_MAX_GPUS - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER, .free = PTHREAD_COND_INITIALIZER },
};

struct place {
	struct sim *sim;
	struct engine *engine;
	struct sim_live_gpu *gpu;
	struct sim_live_client *client;
	uint32_t word;           /* that says that we have it */
};

static bool find_place(struct sim *sim, int slot, struct place *p)
{
	struct sim_live_client *client;
	uint32_t gpu;

	if (slot < 0 || slot >= SIM_MAX_CLIENTS)
		return false;
	client = &sim_live(sim)->clients[slot];
	gpu = atomic_load(&client->gpu);
	if (gpu >= SIM_MAX_GPUS)
		return false;
	*p = (struct place){ sim, &engines[gpu], &sim_live(sim)->gpus[gpu], client, (uint32_t)slot + 1 };
	return true;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	nanosleep(&t, NULL);
}

static bool lives(const struct place *p, uint32_t word)
{
	const struct sim_live_client *c = &sim_live(p->sim)->clients[word - 1];
	int32_t owner = atomic_load(&c->owner);

	return owner && sim_client_lives(p->sim, (int)word - 1, owner, sim_own_start());
}

/* The next process behind this one that waits for this GPU; 0: none. */
static uint32_t find_next(const struct place *p)
{
	uint32_t gpu = atomic_load(&p->client->gpu);

	for (uint32_t n = 0; n < SIM_MAX_CLIENTS; n++) {
		uint32_t slot = (p->word + n) % SIM_MAX_CLIENTS;
		const struct sim_live_client *c = &sim_live(p->sim)->clients[slot];

		if (slot + 1 != p->word && atomic_load(&c->engine_wants) && atomic_load(&c->gpu) == gpu && lives(p, slot + 1))
			return slot + 1;
	}
	return 0;
}

/* Under the process's lock. */
static void take_over(struct place *p)
{
	p->engine->held = true;
	p->engine->since_ns = now_ns();
}

static void give_back(struct place *p, uint32_t next)
{
	uint64_t now = now_ns();

	p->engine->held = false;
	p->engine->total_ns += now - p->engine->since_ns;
	atomic_fetch_add(&p->client->engine_ns, now - p->engine->since_ns);
	atomic_store(&p->gpu->engine, next);
	syscall(SYS_futex, &p->gpu->engine, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool try_take(const struct place *p, uint32_t *seen)
{
	*seen = 0;
	return atomic_compare_exchange_strong(&p->gpu->engine, seen, p->word) || *seen == p->word;
}

/* Without the process's lock, by one thread of it. */
static void wait_for_engine(const struct place *p)
{
	struct timespec limit = { .tv_nsec = LOOK_NS };
	uint32_t seen;

	atomic_store(&p->client->engine_wants, 1);
	while (!try_take(p, &seen)) {
		if (!syscall(SYS_futex, &p->gpu->engine, FUTEX_WAIT, seen, &limit, NULL, 0))
			continue;
		if (!lives(p, seen))
			atomic_compare_exchange_strong(&p->gpu->engine, &seen, 0);
	}
	atomic_store(&p->client->engine_wants, 0);
}

/* Under the process's lock. */
static void acquire(struct place *p)
{
	struct engine *e = p->engine;

	while (!e->held) {
		if (e->waited) {
			pthread_cond_wait(&e->free, &e->lock);
			continue;
		}
		e->waited = true;
		pthread_mutex_unlock(&e->lock);
		wait_for_engine(p);
		pthread_mutex_lock(&e->lock);
		e->waited = false;
		take_over(p);
		pthread_cond_broadcast(&e->free);
	}
}

/* Under the process's lock: at the end of a slice another process has the next one, if any waits. */
static void end_slice(struct place *p)
{
	uint32_t next;

	if (!p->engine->held || now_ns() - p->engine->since_ns < SLICE_NS)
		return;
	next = find_next(p);
	if (next)
		give_back(p, next);
}

/* So that others may know what it has had. */
static void settle(struct place *p, uint64_t now)
{
	atomic_fetch_add(&p->client->engine_ns, now - p->engine->since_ns);
	p->engine->total_ns += now - p->engine->since_ns;
	p->engine->since_ns = now;
}

static void pass(struct place *p, uint64_t ns)
{
	struct engine *e = p->engine;
	uint64_t target = 0, reached, left, now;

	for (bool first = true;; first = false) {
		end_slice(p);
		acquire(p);
		now = now_ns();
		reached = e->total_ns + (now - e->since_ns);
		if (first)
			target = reached + ns;
		if (reached >= target)
			return;
		left = target - reached > SPIN_NS ? target - reached - SPIN_NS : 0;
		if (now - e->since_ns > SLICE_NS) /* alone */
			settle(p, now);
		pthread_mutex_unlock(&e->lock);
		if (left)
			sleep_ns(left < SLICE_NS ? left : SLICE_NS);
		pthread_mutex_lock(&e->lock);
	}
}

void sim_engine_begin(struct sim *sim, int slot)
{
	struct place p;

	if (!find_place(sim, slot, &p))
		return;
	pthread_mutex_lock(&p.engine->lock);
	p.engine->inside++;
	acquire(&p);
	pthread_mutex_unlock(&p.engine->lock);
}

void sim_engine_end(struct sim *sim, int slot)
{
	struct place p;

	if (!find_place(sim, slot, &p))
		return;
	pthread_mutex_lock(&p.engine->lock);
	if (!--p.engine->inside && p.engine->held)
		give_back(&p, find_next(&p));
	pthread_mutex_unlock(&p.engine->lock);
}

void sim_engine_pass(struct sim *sim, int slot, uint64_t ns)
{
	struct place p;

	if (!find_place(sim, slot, &p))
		return;
	pthread_mutex_lock(&p.engine->lock);
	pass(&p, ns);
	pthread_mutex_unlock(&p.engine->lock);
}

bool sim_clock(const struct sim *sim)
{
	return atomic_load(&sim_live(sim)->clock);
}

void sim_clock_start(struct sim *sim)
{
	atomic_store(&sim_live(sim)->clock, 1);
}

uint64_t sim_engine_time(struct sim *sim, int slot)
{
	return slot < 0 || slot >= SIM_MAX_CLIENTS ? 0 : atomic_load(&sim_live(sim)->clients[slot].engine_ns);
}
