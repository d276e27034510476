/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event sets. A set belongs to the process; a handle is its number here. Events themselves are in the machine's state:
 * a wait looks there whenever the state has changed, and holds no lock in between.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "nvml_sim.h"

enum { MAX_SETS = 32, POLL_MS = 10 };

/* Of each GPU: the types that are recorded, and the number of the next event that was not delivered. */
struct event_set {
	bool used;
	unsigned long long types[SIM_MAX_GPUS];
	uint64_t next[SIM_MAX_GPUS];
};

static struct {
	pthread_mutex_t mutex;
	struct event_set sets[MAX_SETS];
} events = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Between lock and unlock; NULL: no such set. */
static struct event_set *find_set(nvmlEventSet_t handle)
{
	uintptr_t number = (uintptr_t)handle;

	return number && number <= MAX_SETS && events.sets[number - 1].used ? &events.sets[number - 1] : NULL;
}

static nvmlReturn_t create_set(nvmlEventSet_t *set)
{
	for (uintptr_t i = 0; i < MAX_SETS; i++) {
		if (events.sets[i].used)
			continue;
		events.sets[i] = (struct event_set){ .used = true };
		*set = (nvmlEventSet_t)(i + 1);
		return NVML_SUCCESS;
	}
	return NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	nvmlReturn_t status;

	status = nvml_refuse(set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
	if (status)
		return status;
	pthread_mutex_lock(&events.mutex);
	status = create_set(set);
	pthread_mutex_unlock(&events.mutex);
	return status;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	nvmlReturn_t status = nvml_refuse(NVML_SUCCESS);
	struct event_set *found;

	if (status)
		return status;
	pthread_mutex_lock(&events.mutex);
	found = find_set(set);
	if (found)
		found->used = false;
	pthread_mutex_unlock(&events.mutex);
	return found ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static unsigned long long supported(const struct sim_gpu *gpu)
{
	unsigned long long ecc = nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;

	return nvmlEventTypeXidCriticalError | (gpu->ecc_current ? ecc : 0);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes)
{
	VIEW_GPU(v, device);

	if (!eventTypes)
		return NVML_ERROR_INVALID_ARGUMENT;
	*eventTypes = supported(v.gpu);
	return NVML_SUCCESS;
}

/* What came before the first registration of a GPU is not recorded. */
static nvmlReturn_t record(struct event_set *set, const struct view *v, unsigned long long types)
{
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!set->types[v->gpu_index])
		set->next[v->gpu_index] = v->m->n_events;
	set->types[v->gpu_index] |= types;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set)
{
	nvmlReturn_t status;
	VIEW_GPU(v, device);

	if (eventTypes & ~(unsigned long long)nvmlEventTypeAll)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (eventTypes & ~supported(v.gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&events.mutex);
	status = record(find_set(set), &v, eventTypes);
	pthread_mutex_unlock(&events.mutex);
	return status;
}

/* An event of an instance is for those who may see instances; one of the whole GPU for everybody. */
static bool is_wanted(const struct event_set *set, const struct sim_event *e, uint64_t number)
{
	return set->types[e->gpu] & e->type && number >= set->next[e->gpu] &&
	       (e->gi_id < 0 || !nvml_check_root());
}

static bool is_lost(const struct event_set *set, const struct sim_machine *m)
{
	for (uint32_t i = 0; i < m->n_gpus; i++)
		if (set->types[i] && (m->gpus[i].lost || m->gpus[i].detached))
			return true;
	return false;
}

/* The oldest event that was not delivered; what is older than the ring is gone. */
static nvmlReturn_t take(struct event_set *set, const struct sim_machine *m, nvmlEventData_t *data)
{
	uint64_t kept = m->n_events > SIM_MAX_EVENTS ? SIM_MAX_EVENTS : m->n_events;

	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uint64_t n = m->n_events - kept; n < m->n_events; n++) {
		const struct sim_event *e = &m->events[n % SIM_MAX_EVENTS];

		if (!is_wanted(set, e, n))
			continue;
		set->next[e->gpu] = n + 1;
		*data = (nvmlEventData_t){ .device = gpu_handle(e->gpu), .eventType = e->type, .eventData = e->data,
					   .gpuInstanceId = (unsigned int)e->gi_id,
					   .computeInstanceId = (unsigned int)e->ci_id };
		return NVML_SUCCESS;
	}
	return is_lost(set, m) ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
}

static nvmlReturn_t look(nvmlEventSet_t set, nvmlEventData_t *data, uint64_t *generation)
{
	nvmlReturn_t status;
	VIEW_MACHINE(v);

	*generation = sim_generation(nvml_state());
	pthread_mutex_lock(&events.mutex);
	status = take(find_set(set), v.m, data);
	pthread_mutex_unlock(&events.mutex);
	return status;
}

/* Until the state changes, or the time is over (false). */
static bool await_change(uint64_t generation, unsigned int *left_ms)
{
	while (*left_ms) {
		unsigned int ms = *left_ms < POLL_MS ? *left_ms : POLL_MS;
		struct sim *sim;
		bool changed;

		nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000L }, NULL);
		*left_ms -= ms;
		sim = nvml_enter();
		if (!sim)
			return true; /* shut down meanwhile, which the next look says */
		changed = sim_generation(sim) != generation;
		nvml_leave();
		if (changed)
			return true;
	}
	return false;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	uint64_t generation = 0;
	nvmlReturn_t status;

	if (!data)
		return nvml_refuse(NVML_ERROR_INVALID_ARGUMENT);
	do
		status = look(set, data, &generation);
	while (status == NVML_ERROR_TIMEOUT && await_change(generation, &timeoutms));
	return status;
}

/* Version 1 has no fields for instances. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	nvmlReturn_t status = nvmlEventSetWait_v2(set, data, timeoutms);

	if (!status)
		data->gpuInstanceId = data->computeInstanceId = 0;
	return status;
}
