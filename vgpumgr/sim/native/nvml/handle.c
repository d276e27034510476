/* SPDX-License-Identifier: Apache-2.0 */
/* Handles and views. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "nvml_sim.h"

/* A handle's bits: mark (8) kind (4) serial (32) GPU (8) GPU instance (6) compute instance (6). */
static const uint64_t MARK = 0x56;

struct parts {
	unsigned int kind;
	uint32_t serial, gpu, gi_id, ci_id;
};

static void *pack(enum handle_kind kind, uint32_t serial, uint32_t gpu, uint32_t gi_id, uint32_t ci_id)
{
	return (void *)(uintptr_t)(MARK << 56 | (uint64_t)kind << 52 | (uint64_t)serial << 20 | (uint64_t)gpu << 12 |
				   (uint64_t)gi_id << 6 | ci_id);
}

static bool unpack(const void *handle, struct parts *p)
{
	uint64_t bits = (uintptr_t)handle;

	*p = (struct parts){ .kind = bits >> 52 & 0xf, .serial = (uint32_t)(bits >> 20), .gpu = bits >> 12 & 0xff,
			     .gi_id = bits >> 6 & 0x3f, .ci_id = bits & 0x3f };
	return bits >> 56 == MARK;
}

nvmlDevice_t gpu_handle(uint32_t gpu)
{
	return pack(HANDLE_GPU, 0, gpu, 0, 0);
}

nvmlDevice_t mig_handle(uint32_t gpu, const struct sim_gi *gi, const struct sim_ci *ci)
{
	return pack(HANDLE_MIG, ci->serial, gpu, gi->id, ci->id);
}

nvmlGpuInstance_t gi_handle(uint32_t gpu, const struct sim_gi *gi)
{
	return pack(HANDLE_GI, gi->serial, gpu, gi->id, 0);
}

nvmlComputeInstance_t ci_handle(uint32_t gpu, const struct sim_gi *gi, const struct sim_ci *ci)
{
	return pack(HANDLE_CI, ci->serial, gpu, gi->id, ci->id);
}

static struct sim_gi *find_gi(struct sim_gpu *gpu, uint32_t id)
{
	for (uint32_t i = 0; i < SIM_MAX_GI; i++)
		if (gpu->gi[i].used && gpu->gi[i].id == id)
			return &gpu->gi[i];
	return NULL;
}

static struct sim_ci *find_ci(struct sim_gi *gi, uint32_t id)
{
	for (uint32_t i = 0; i < SIM_MAX_CI; i++)
		if (gi->ci[i].used && gi->ci[i].id == id)
			return &gi->ci[i];
	return NULL;
}

/* Finds what the handle names. INVALID_ARGUMENT: nothing of these kinds, or no longer there. */
static nvmlReturn_t resolve(struct view *v, const void *handle, unsigned int kinds)
{
	struct parts p;

	if (!unpack(handle, &p) || !(kinds >> p.kind & 1) || p.gpu >= v->m->n_gpus)
		return NVML_ERROR_INVALID_ARGUMENT;
	v->gpu_index = p.gpu;
	v->gpu = &v->m->gpus[p.gpu];
	if (v->gpu->lost || v->gpu->detached)
		return NVML_ERROR_GPU_IS_LOST;
	if (p.kind == HANDLE_GPU)
		return NVML_SUCCESS;
	v->gi = find_gi(v->gpu, p.gi_id);
	if (!v->gi)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (p.kind == HANDLE_GI)
		return v->gi->serial == p.serial ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
	v->ci = find_ci(v->gi, p.ci_id);
	return v->ci && v->ci->serial == p.serial ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* Functions that change something, as the faults know them. */
static enum sim_call call_of(const char *function, bool writing)
{
	static const char *const names[] = {
		[SIM_CALL_MODE_SET] = "nvmlDeviceSetMigMode",
		[SIM_CALL_GI_CREATE] = "create_gpu_instance",
		[SIM_CALL_GI_DESTROY] = "nvmlGpuInstanceDestroy",
		[SIM_CALL_CI_CREATE] = "create_compute_instance",
		[SIM_CALL_CI_DESTROY] = "nvmlComputeInstanceDestroy",
	};

	for (unsigned int i = 0; writing && i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i] && !strcmp(names[i], function))
			return (enum sim_call)i;
	return SIM_CALL_READ;
}

/* Waits and fails as a test asked for: before the machine is locked, so that others go on meanwhile. */
static nvmlReturn_t suffer_fault(struct sim *sim, const void *handle, enum sim_call call, struct view *v)
{
	struct sim_fault hit;
	struct parts p;
	int32_t gpu = handle && unpack(handle, &p) ? (int32_t)p.gpu : -1;

	if (!sim_fault_hit(sim, call, gpu, &hit))
		return NVML_SUCCESS;
	if (hit.delay_ms) {
		struct timespec t = { hit.delay_ms / 1000, hit.delay_ms % 1000 * 1000000L };

		while (nanosleep(&t, &t) && errno == EINTR)
			continue;
	}
	if (hit.after) {
		v->after = (nvmlReturn_t)hit.code;
		return NVML_SUCCESS;
	}
	return (nvmlReturn_t)hit.code;
}

struct view view_open(const void *handle, unsigned int kinds, bool writing, const char *function)
{
	struct view v = { .writing = writing };
	struct sim *sim = nvml_enter();

	if (!sim) {
		v.status = NVML_ERROR_UNINITIALIZED;
		return v;
	}
	v.status = suffer_fault(sim, handle, call_of(function, writing), &v);
	if (v.status) {
		nvml_leave();
		return v;
	}
	/* readers get the same private copy, which nothing but a writing view changes */
	v.m = writing ? sim_write(sim) : (struct sim_machine *)sim_read(sim);
	if (!v.m) {
		v.status = nvml_from_errno(-errno);
		nvml_leave();
		return v;
	}
	v.status = kinds ? resolve(&v, handle, kinds) : NVML_SUCCESS;
	return v;
}

void view_close(struct view *view)
{
	if (!view->m)
		return;
	if (view->writing)
		sim_abort(nvml_state());
	else
		sim_end(nvml_state());
	view->m = NULL;
	nvml_leave();
}

nvmlReturn_t view_commit(struct view *view)
{
	int err = sim_commit(nvml_state());

	view->m = NULL;
	nvml_leave();
	return err ? NVML_ERROR_UNKNOWN : view->after;
}
