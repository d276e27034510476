/* SPDX-License-Identifier: Apache-2.0 */
/* Handles and views. */
#include <errno.h>
#include <stdint.h>

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
	if (v->gpu->lost)
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

struct view view_open(const void *handle, unsigned int kinds, bool writing)
{
	struct view v = { .writing = writing };
	struct sim *sim = nvml_enter();

	if (!sim) {
		v.status = NVML_ERROR_UNINITIALIZED;
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
	return err ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}
