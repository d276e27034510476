/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a GPU's time each process has had, where the machine has a clock (state/engine.c). A genuine driver keeps
 * samples of the last seconds; here one is taken whenever this process asks, so that a first question finds nothing.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "nvml_sim.h"

enum { KEPT = 4 };

struct sample {
	uint64_t at_us; /* 0: none yet; since 1970, as NVML's timestamps */
	struct {
		pid_t pid;
		uint64_t start, ns;
	} clients[SIM_MAX_CLIENTS];
};

/* The last samples of each GPU, the newest at `next` - 1. */
static struct {
	unsigned int next;
	struct sample *kept[KEPT];
} history[SIM_MAX_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take_sample(const struct view *v, struct sample *s)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	*s = (struct sample){ .at_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000 };
	for (int i = 0; i < SIM_MAX_CLIENTS; i++) {
		const struct sim_client *c = &v->m->clients[i];

		if (!c->used || c->gpu != v->gpu_index)
			continue;
		s->clients[i].pid = c->pid;
		s->clients[i].start = c->start_time;
		s->clients[i].ns = sim_engine_time(nvml_state(), i);
	}
}

/* The one that is nearest to a time; 0: the oldest. NULL: there is none. Under the lock. */
static const struct sample *find_sample(uint32_t gpu, uint64_t us)
{
	const struct sample *best = NULL;
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < KEPT; i++) {
		const struct sample *s = history[gpu].kept[i];
		uint64_t away;

		if (!s || !s->at_us)
			continue;
		away = s->at_us > us ? s->at_us - us : us - s->at_us;
		if (away < least) {
			least = away;
			best = s;
		}
	}
	return best;
}

static void keep(uint32_t gpu, const struct sample *s)
{
	struct sample **place = &history[gpu].kept[history[gpu].next++ % KEPT];

	if (!*place)
		*place = malloc(sizeof(**place));
	if (*place)
		**place = *s;
}

/* One entry for each process that has had something, however many contexts it has. */
static unsigned int compare(const struct sample *from, const struct sample *to, nvmlProcessUtilizationSample_t *found)
{
	uint64_t us = to->at_us > from->at_us ? to->at_us - from->at_us : 1, had[SIM_MAX_CLIENTS] = { 0 };
	unsigned int n = 0, kept = 0;

	for (int i = 0; i < SIM_MAX_CLIENTS; i++) {
		bool same = from->clients[i].pid == to->clients[i].pid && from->clients[i].start == to->clients[i].start;
		uint64_t ns = to->clients[i].ns - (same ? from->clients[i].ns : 0);
		unsigned int at = 0;

		if (!to->clients[i].pid || !ns)
			continue;
		while (at < n && found[at].pid != (unsigned int)to->clients[i].pid)
			at++;
		n += at == n;
		found[at] = (nvmlProcessUtilizationSample_t){ .pid = (unsigned int)to->clients[i].pid, .timeStamp = to->at_us };
		had[at] += ns;
	}
	for (unsigned int i = 0; i < n; i++) {
		uint64_t percent = had[i] / 10 / us;

		found[i].smUtil = percent > 100 ? 100 : (unsigned int)percent;
		if (found[i].smUtil)
			found[kept++] = found[i];
	}
	return kept;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
					     unsigned int *processSamplesCount, unsigned long long lastSeenTimeStamp)
{
	nvmlProcessUtilizationSample_t found[SIM_MAX_CLIENTS];
	unsigned int room, n = 0;
	const struct sample *from;
	static struct sample now; /* under the lock */
	VIEW_DEVICE(v, device);

	REFUSE_MIG(v);
	if (v.gpu->mig_current)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!processSamplesCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	room = utilization ? *processSamplesCount : 0;
	pthread_mutex_lock(&lock);
	take_sample(&v, &now);
	from = find_sample(v.gpu_index, lastSeenTimeStamp);
	if (from)
		n = compare(from, &now, found);
	/* a question for the size is followed by another one about the same time */
	if (!n || room >= n)
		keep(v.gpu_index, &now);
	pthread_mutex_unlock(&lock);
	*processSamplesCount = n;
	if (!n)
		return NVML_ERROR_NOT_FOUND;
	if (room < n)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++)
		utilization[i] = found[i];
	return NVML_SUCCESS;
}
