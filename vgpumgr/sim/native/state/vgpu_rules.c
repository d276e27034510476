/* SPDX-License-Identifier: Apache-2.0 */
/* What vGPUs fit where, on the machine's state alone. */
#include <errno.h>
#include <string.h>

#include "simvgpu.h"

int sim_vgpu_type_index(const struct sim_machine *m, uint32_t gpu, uint32_t id)
{
	for (uint32_t i = 0; i < m->n_vgpu_types; i++)
		if (m->vgpu_types[i].id == id && m->vgpu_types[i].family == m->gpus[gpu].vgpu_family)
			return (int)i;
	return -ENOENT;
}

static bool lives_in(const struct sim_vgpu *v, uint32_t gpu, int32_t gi_id)
{
	return v->id && v->gpu == gpu && v->gi_id == gi_id;
}

/* The vGPUs of a GPU (gi_id -1) or of one instance: how many, and whether all have this framebuffer. */
static uint32_t count(const struct sim_machine *m, uint32_t gpu, int32_t gi_id, uint32_t framebuffer, bool *same)
{
	uint32_t n = 0;

	*same = true;
	for (uint32_t i = 0; i < m->n_vgpus; i++) {
		const struct sim_vgpu *v = &m->vgpus[i];

		if (!lives_in(v, gpu, gi_id))
			continue;
		n++;
		*same &= m->vgpu_types[v->type].framebuffer_mib == framebuffer;
	}
	return n;
}

uint32_t sim_vgpu_count(const struct sim_machine *m, uint32_t gpu, const struct sim_gi *gi)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->n_vgpus; i++)
		n += m->vgpus[i].id && m->vgpus[i].gpu == gpu && (!gi || m->vgpus[i].gi_id == (int32_t)gi->id);
	return n;
}

static bool place_is_free(const struct sim_machine *m, uint32_t gpu, int32_t gi_id, uint32_t start, uint32_t size)
{
	for (uint32_t i = 0; i < m->n_vgpus; i++) {
		const struct sim_vgpu *v = &m->vgpus[i];

		if (lives_in(v, gpu, gi_id) && start < v->placement + m->vgpu_types[v->type].size &&
		    v->placement < start + size)
			return false;
	}
	return true;
}

uint32_t sim_vgpu_placements(const struct sim_machine *m, uint32_t gpu, int32_t gi_id, uint32_t type, bool only_free,
			     uint32_t out[SIM_MAX_VGPU_PLACES])
{
	const struct sim_vgpu_type *t = &m->vgpu_types[type];
	uint32_t places = gi_id < 0 ? m->gpus[gpu].vgpu_slots / t->size : t->max_per_gi, n = 0;

	for (uint32_t i = 0; i < places && n < SIM_MAX_VGPU_PLACES; i++)
		if (!only_free || place_is_free(m, gpu, gi_id, i * t->size, t->size))
			out[n++] = i * t->size;
	return n;
}

static bool choose(const struct sim_machine *m, uint32_t gpu, int32_t gi_id, uint32_t type, struct sim_vgpu_place *out)
{
	uint32_t places[SIM_MAX_VGPU_PLACES];

	if (!sim_vgpu_placements(m, gpu, gi_id, type, true, places))
		return false;
	*out = (struct sim_vgpu_place){ gi_id, places[0] };
	return true;
}

bool sim_vgpu_fits_gi(const struct sim_machine *m, uint32_t gpu, const struct sim_gi *gi, uint32_t type,
		      struct sim_vgpu_place *out)
{
	const struct sim_vgpu_type *t = &m->vgpu_types[type];
	bool same;

	if (!gi->used || !t->max_per_gi || m->gpus[gpu].profiles[gi->profile].id != t->gi_profile)
		return false;
	if (count(m, gpu, (int32_t)gi->id, t->framebuffer_mib, &same) >= t->max_per_gi || !same)
		return false;
	return choose(m, gpu, (int32_t)gi->id, type, out);
}

static bool fits_mig(const struct sim_machine *m, uint32_t gpu, uint32_t type, struct sim_vgpu_place *out)
{
	for (uint32_t i = 0; i < SIM_MAX_GI; i++)
		if (sim_vgpu_fits_gi(m, gpu, &m->gpus[gpu].gi[i], type, out))
			return true;
	return false;
}

bool sim_vgpu_fits(const struct sim_machine *m, uint32_t gpu, uint32_t type, struct sim_vgpu_place *out)
{
	const struct sim_vgpu_type *t = &m->vgpu_types[type];
	const struct sim_gpu *g = &m->gpus[gpu];
	uint32_t n;
	bool same;

	if (g->mig_current != !!t->max_per_gi)
		return false;
	if (g->mig_current)
		return fits_mig(m, gpu, type, out);
	n = count(m, gpu, -1, t->framebuffer_mib, &same);
	if (!g->vgpu_mixed && (!same || n >= t->max_instances))
		return false;
	return choose(m, gpu, -1, type, out);
}

static bool vf_is_free(const struct sim_machine *m, uint32_t gpu, int32_t vf)
{
	for (uint32_t i = 0; i < m->n_vgpus; i++)
		if (m->vgpus[i].id && m->vgpus[i].gpu == gpu && m->vgpus[i].vf == vf)
			return false;
	return vf >= 0 && (uint32_t)vf < m->gpus[gpu].n_vfs;
}

/* Without SR-IOV: all that still fit. */
static uint32_t remaining(const struct sim_machine *m, uint32_t gpu, uint32_t type)
{
	uint32_t places[SIM_MAX_VGPU_PLACES], max = m->vgpu_types[type].max_instances;
	uint32_t used = sim_vgpu_count(m, gpu, NULL);

	if (m->gpus[gpu].vgpu_mixed)
		return sim_vgpu_placements(m, gpu, -1, type, true, places);
	return used < max ? max - used : 0;
}

uint32_t sim_vgpu_available(const struct sim_machine *m, uint32_t gpu, int32_t vf, uint32_t type)
{
	struct sim_vgpu_place place;

	if (!sim_vgpu_fits(m, gpu, type, &place))
		return 0;
	if (m->gpus[gpu].vgpu_sriov)
		return vf_is_free(m, gpu, vf);
	return vf < 0 ? remaining(m, gpu, type) : 0;
}
