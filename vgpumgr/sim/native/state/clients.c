/* SPDX-License-Identifier: Apache-2.0 */
/* Clients: who computes on which GPU or instance, how much memory they hold, how busy they are. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"

static const uint64_t WINDOW_NS = 200000000;     /* shortest time over which utilisation is measured */
static const uint64_t WINDOW_MAX_NS = 1000000000; /* a window older than this is closed when work begins or ends */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static const struct sim_gi *find_gi(const struct sim_gpu *gpu, int32_t gi_id)
{
	for (uint32_t i = 0; i < SIM_MAX_GI; i++)
		if (gpu->gi[i].used && (int32_t)gpu->gi[i].id == gi_id)
			return &gpu->gi[i];
	return NULL;
}

static bool has_ci(const struct sim_gi *gi, int32_t ci_id)
{
	for (uint32_t i = 0; i < SIM_MAX_CI; i++)
		if (gi->ci[i].used && (int32_t)gi->ci[i].id == ci_id)
			return true;
	return false;
}

int sim_capacity(const struct sim_machine *m, uint32_t gpu, int32_t gi_id, uint64_t *total, uint64_t *used)
{
	const struct sim_gi *gi = NULL;
	const struct sim_gpu *g;

	if (gpu >= m->n_gpus)
		return -ENODEV;
	g = &m->gpus[gpu];
	if (gi_id >= 0) {
		gi = find_gi(g, gi_id);
		if (!gi)
			return -ENODEV;
	}
	*total = gi ? g->profiles[gi->profile].memory_bytes : g->memory_bytes - g->memory_reserved_bytes;
	*used = 0;
	for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++) {
		const struct sim_client *c = &m->clients[i];

		if (c->used && c->gpu == gpu && (gi_id < 0 || c->gi_id == gi_id))
			*used += c->memory_bytes;
	}
	return 0;
}

/* 0 if a client may be there. */
static int check_place(const struct sim_machine *m, uint32_t gpu, int32_t gi_id, int32_t ci_id)
{
	const struct sim_gi *gi;

	if (gpu >= m->n_gpus)
		return -ENODEV;
	if (m->gpus[gpu].detached)
		return -ENODEV;
	if (m->gpus[gpu].lost)
		return -EIO;
	if (!m->gpus[gpu].mig_current)
		return gi_id < 0 && ci_id < 0 ? 0 : -ENODEV;
	gi = gi_id < 0 ? NULL : find_gi(&m->gpus[gpu], gi_id);
	return gi && has_ci(gi, ci_id) ? 0 : -ENODEV;
}

static int free_slot(const struct sim_machine *m)
{
	for (int i = 0; i < SIM_MAX_CLIENTS; i++)
		if (!m->clients[i].used)
			return i;
	return -EUSERS;
}

static void process_name(char *name, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", name, size - 1);

	name[n > 0 ? n : 0] = 0;
}

static void reset_live(struct sim *sim, int slot, uint32_t gpu)
{
	struct sim_live_client *live = &sim_live(sim)->clients[slot];

	atomic_store(&live->owner, 0);
	atomic_store(&live->gpu, gpu);
	atomic_store(&live->depth, 0);
	atomic_store(&live->since_ns, 0);
	atomic_store(&live->total_ns, 0);
	atomic_store(&live->engine_ns, 0);
	atomic_store(&live->engine_wants, 0);
	atomic_store(&live->owner, sim_own_pid());
}

int sim_client_add(struct sim *sim, uint32_t gpu, int32_t gi_id, int32_t ci_id, int *slot)
{
	struct sim_machine *m = sim_write(sim);
	struct sim_client *c;
	struct flock byte;
	int n;

	*slot = -1;
	if (!m)
		return -errno;
	n = check_place(m, gpu, gi_id, ci_id);
	if (!n)
		n = free_slot(m);
	byte = slot_byte(n, F_WRLCK);
	if (n >= 0 && fcntl(sim->fd, F_OFD_SETLK, &byte))
		n = -errno;
	if (n < 0) {
		sim_abort(sim);
		return n;
	}
	c = &m->clients[n];
	*c = (struct sim_client){ .used = true, .pid = sim_own_pid(), .start_time = sim_process_start(getpid()),
				  .gpu = gpu, .gi_id = gi_id, .ci_id = ci_id };
	process_name(c->name, sizeof(c->name));
	reset_live(sim, n, gpu);
	*slot = n;
	return sim_commit(sim);
}

/* This process's client in that slot, or NULL. */
static struct sim_client *own_client(struct sim *sim, struct sim_machine *m, int slot)
{
	struct sim_client *c;

	if (slot < 0 || slot >= SIM_MAX_CLIENTS)
		return NULL;
	c = &m->clients[slot];
	if (!c->used || c->pid != sim_own_pid())
		return NULL;
	if (!sim->start_time)
		sim->start_time = sim_process_start(getpid());
	return c->start_time == sim->start_time ? c : NULL;
}

void sim_client_remove(struct sim *sim, int slot)
{
	struct sim_machine *m = sim_write_quick(sim);
	struct flock byte = slot_byte(slot, F_UNLCK);
	struct sim_client *c;

	if (!m)
		return;
	c = own_client(sim, m, slot);
	if (!c) {
		sim_abort(sim);
		return;
	}
	c->used = false;
	fcntl(sim->fd, F_OFD_SETLK, &byte);
	atomic_store(&sim_live(sim)->clients[slot].owner, 0);
	sim_commit(sim);
}

static bool fits(const struct sim_machine *m, const struct sim_client *c, uint64_t bytes)
{
	uint64_t total, used;

	if (sim_capacity(m, c->gpu, c->gi_id, &total, &used))
		return false;
	return used <= total && bytes <= total - used;
}

int sim_client_charge(struct sim *sim, int slot, uint64_t bytes)
{
	struct sim_machine *m = sim_write_quick(sim);
	struct sim_client *c;
	int err = 0;

	if (!m)
		return -errno;
	c = own_client(sim, m, slot);
	if (!c)
		err = -ESRCH;
	else if (!fits(m, c, bytes)) {
		sim_drop_dead(sim, m); /* perhaps a dead client still holds what is missing */
		err = fits(m, c, bytes) ? 0 : -ENOMEM;
	}
	if (err) {
		sim_abort(sim);
		return err;
	}
	c->memory_bytes += bytes;
	return sim_commit(sim);
}

void sim_client_uncharge(struct sim *sim, int slot, uint64_t bytes)
{
	struct sim_machine *m = sim_write_quick(sim);
	struct sim_client *c;

	if (!m)
		return;
	c = own_client(sim, m, slot);
	if (!c) {
		sim_abort(sim);
		return;
	}
	c->memory_bytes -= bytes < c->memory_bytes ? bytes : c->memory_bytes;
	sim_commit(sim);
}

/* Busy time of a GPU up to `now`: ended brackets and those that run. */
static uint64_t gpu_busy_ns(struct sim *sim, uint32_t gpu, uint64_t now)
{
	struct sim_live *live = sim_live(sim);
	uint64_t sum = atomic_load(&live->gpus[gpu].done_ns);

	for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++) {
		const struct sim_live_client *c = &live->clients[i];
		int32_t owner = atomic_load(&c->owner);
		uint64_t since = atomic_load(&c->since_ns);

		if (!owner || !since || atomic_load(&c->gpu) != gpu || since > now)
			continue;
		if (sim_client_lives(sim, (int)i, owner, sim_own_start())) /* a process killed at work left its bracket open */
			sum += now - since;
	}
	return sum;
}

/* Closes the window if it is at least `age` old. Of several who try, one succeeds; the others see its result. */
static void roll_window(struct sim *sim, uint32_t gpu, uint64_t now, uint64_t age)
{
	struct sim_live_gpu *g = &sim_live(sim)->gpus[gpu];
	uint64_t start = atomic_load(&g->window_ns), before, busy;

	if (now < start + age)
		return;
	busy = gpu_busy_ns(sim, gpu, now);
	before = atomic_load(&g->window_busy_ns);
	if (!atomic_compare_exchange_strong(&g->window_ns, &start, now))
		return;
	atomic_store(&g->window_busy_ns, busy);
	busy = busy > before ? busy - before : 0;
	atomic_store(&g->percent, (uint32_t)(busy >= now - start ? 100 : busy * 100 / (now - start)));
}

static void begin_busy(struct sim_live_client *c, uint64_t now)
{
	if (atomic_fetch_add(&c->depth, 1) == 0)
		atomic_store(&c->since_ns, now);
}

static void end_busy(struct sim_live_client *c, struct sim_live_gpu *g, uint64_t now)
{
	uint64_t since;

	if (atomic_fetch_sub(&c->depth, 1) != 1)
		return;
	since = atomic_exchange(&c->since_ns, 0);
	if (since && since < now) {
		atomic_fetch_add(&c->total_ns, now - since);
		atomic_fetch_add(&g->done_ns, now - since);
	}
}

void sim_client_busy(struct sim *sim, int slot, bool busy)
{
	struct sim_live_client *c;
	uint64_t now = now_ns();
	uint32_t gpu;

	if (slot < 0 || slot >= SIM_MAX_CLIENTS)
		return;
	c = &sim_live(sim)->clients[slot];
	gpu = atomic_load(&c->gpu);
	if (atomic_load(&c->owner) != sim_own_pid() || gpu >= SIM_MAX_GPUS)
		return;
	if (busy) {
		roll_window(sim, gpu, now, WINDOW_MAX_NS);
		begin_busy(c, now);
	} else {
		end_busy(c, &sim_live(sim)->gpus[gpu], now);
		roll_window(sim, gpu, now, WINDOW_MAX_NS);
	}
}

uint32_t sim_gpu_utilization(struct sim *sim, uint32_t gpu)
{
	if (gpu >= SIM_MAX_GPUS)
		return 0;
	roll_window(sim, gpu, now_ns(), WINDOW_NS);
	return atomic_load(&sim_live(sim)->gpus[gpu].percent);
}

int sim_gpu_clients(struct sim *sim, uint32_t gpu)
{
	const struct sim_machine *m = sim_read(sim);
	int n = 0;

	if (!m)
		return -errno;
	for (int i = 0; i < SIM_MAX_CLIENTS; i++)
		n += m->clients[i].used && m->clients[i].gpu == gpu;
	sim_end(sim);
	return n;
}

int sim_gpu_detach(struct sim *sim, uint32_t gpu, bool detached)
{
	struct sim_machine *m = sim_write(sim);
	struct sim_gpu *g;

	if (!m)
		return -errno;
	if (gpu >= m->n_gpus) {
		sim_abort(sim);
		return -ENODEV;
	}
	g = &m->gpus[gpu];
	g->detached = detached;
	memset(g->gi, 0, sizeof(g->gi));
	g->mig_current = g->mig_pending = g->mig_needs_reset && g->mig_pending;
	g->vgpu_mixed = false;
	g->ecc_single = g->ecc_double = 0; /* nvml.h: volatile counts are reset each time the driver loads */
	return sim_commit(sim);
}
