/* SPDX-License-Identifier: Apache-2.0 */
/* vGPUs come and go, are held and released. */
#include <errno.h>
#include <string.h>

#include "simvgpu.h"

static struct sim_vgpu *find(struct sim_machine *m, uint32_t id)
{
	for (uint32_t i = 0; id && i < m->n_vgpus; i++)
		if (m->vgpus[i].id == id)
			return &m->vgpus[i];
	return NULL;
}

static struct sim_vgpu *free_place(struct sim_machine *m)
{
	for (uint32_t i = 0; i < m->n_vgpus; i++)
		if (!m->vgpus[i].id)
			return &m->vgpus[i];
	return m->n_vgpus < SIM_MAX_VGPUS ? &m->vgpus[m->n_vgpus++] : NULL;
}

static int finish(struct sim *sim, int err)
{
	int failed;

	if (err < 0 && err != -EINPROGRESS) {
		sim_abort(sim);
		return err;
	}
	failed = sim_commit(sim);
	return failed ? failed : err;
}

/* A change of one vGPU: the section, and the vGPU in it. NULL: `err` says why, and no section is open. */
static struct sim_vgpu *change(struct sim *sim, uint32_t id, struct sim_machine **m, int *err)
{
	struct sim_vgpu *v;

	*m = sim_write(sim);
	if (!*m) {
		*err = -errno;
		return NULL;
	}
	v = find(*m, id);
	if (!v) {
		sim_abort(sim);
		*err = -ENOENT;
	}
	return v;
}

static bool has_uuid(const struct sim_machine *m, const char *uuid)
{
	for (uint32_t i = 0; *uuid && i < m->n_vgpus; i++)
		if (m->vgpus[i].id && !strcmp(m->vgpus[i].uuid, uuid))
			return true;
	return false;
}

static bool vf_taken(const struct sim_machine *m, uint32_t gpu, int32_t vf)
{
	for (uint32_t i = 0; vf >= 0 && i < m->n_vgpus; i++)
		if (m->vgpus[i].id && m->vgpus[i].gpu == gpu && m->vgpus[i].vf == vf)
			return true;
	return false;
}

/* Why no vGPU of the type can be made: the GPU has as many as it can have, or others forbid it. */
static int why_not(const struct sim_machine *m, uint32_t gpu, uint32_t type)
{
	const struct sim_gpu *g = &m->gpus[gpu];

	return !g->mig_current && sim_vgpu_count(m, gpu, NULL) >= m->vgpu_types[type].max_instances ? -ENOSPC : -EIO;
}

static int create(struct sim_machine *m, uint32_t gpu, int32_t vf, uint32_t type_id, const char *uuid)
{
	struct sim_vgpu_place place;
	struct sim_vgpu *v;
	int type;

	if (gpu >= m->n_gpus || (m->gpus[gpu].vgpu_sriov ? vf < 0 || (uint32_t)vf >= m->gpus[gpu].n_vfs : vf >= 0))
		return -ENODEV;
	type = sim_vgpu_type_index(m, gpu, type_id);
	if (type < 0 || strlen(uuid) >= SIM_UUID)
		return -EINVAL;
	if (has_uuid(m, uuid))
		return -EEXIST;
	if (vf_taken(m, gpu, vf))
		return -EBUSY;
	if (!sim_vgpu_fits(m, gpu, (uint32_t)type, &place))
		return why_not(m, gpu, (uint32_t)type);
	v = free_place(m);
	if (!v)
		return -ENOSPC;
	*v = (struct sim_vgpu){ .id = ++m->next_vgpu_id, .gpu = gpu, .type = (uint32_t)type, .vf = vf,
				.gi_id = place.gi_id, .placement = place.placement };
	strcpy(v->uuid, uuid);
	m->vgpu_changes++;
	return (int)v->id;
}

int sim_vgpu_create(struct sim *sim, uint32_t gpu, int32_t vf, uint32_t type_id, const char *uuid)
{
	struct sim_machine *m = sim_write(sim);

	return m ? finish(sim, create(m, gpu, vf, type_id, uuid)) : -errno;
}

int sim_vgpu_remove(struct sim *sim, uint32_t id)
{
	struct sim_machine *m;
	int err;
	struct sim_vgpu *v = change(sim, id, &m, &err);

	if (!v)
		return err;
	m->vgpu_changes++;
	if (!*v->vm) {
		v->id = 0;
		return finish(sim, 0);
	}
	v->removed = true;
	return finish(sim, -EINPROGRESS);
}

int sim_vgpu_hold(struct sim *sim, uint32_t id, const char *vm)
{
	struct sim_machine *m;
	int err;
	struct sim_vgpu *v = change(sim, id, &m, &err);

	if (!v)
		return err;
	if (*v->vm || v->removed)
		return finish(sim, -EBUSY);
	if (!*vm || strlen(vm) >= sizeof(v->vm))
		return finish(sim, -EINVAL);
	strcpy(v->vm, vm);
	m->vgpu_changes++;
	return finish(sim, 0);
}

int sim_vgpu_release(struct sim *sim, uint32_t id)
{
	struct sim_machine *m;
	int err;
	struct sim_vgpu *v = change(sim, id, &m, &err);

	if (!v)
		return err;
	*v->vm = 0;
	if (v->removed)
		v->id = 0;
	m->vgpu_changes++;
	return finish(sim, 0);
}

int sim_vgpu_set_params(struct sim *sim, uint32_t id, const char *params)
{
	struct sim_machine *m;
	int err;
	struct sim_vgpu *v = change(sim, id, &m, &err);

	if (!v)
		return err;
	if (*v->vm)
		return finish(sim, -EBUSY);
	if (strlen(params) >= sizeof(v->params))
		return finish(sim, -E2BIG);
	strcpy(v->params, params);
	m->vgpu_changes++;
	return finish(sim, 0);
}

/* -EINVAL, -EIO or 0 for one of the type's placements; `v` itself is in nobody's way. */
static int check_placement(struct sim_machine *m, struct sim_vgpu *v, uint32_t placement)
{
	uint32_t places[SIM_MAX_VGPU_PLACES], n, id = v->id;

	v->id = 0;
	for (int only_free = 1; only_free >= 0; only_free--) {
		n = sim_vgpu_placements(m, v->gpu, v->gi_id, v->type, only_free, places);
		for (uint32_t i = 0; i < n; i++) {
			if (places[i] == placement) {
				v->id = id;
				return only_free ? 0 : -EIO;
			}
		}
	}
	v->id = id;
	return -EINVAL;
}

int sim_vgpu_set_placement(struct sim *sim, uint32_t id, uint32_t placement)
{
	struct sim_machine *m;
	int err;
	struct sim_vgpu *v = change(sim, id, &m, &err);

	if (!v)
		return err;
	if (!m->gpus[v->gpu].vgpu_mixed || *v->vm)
		return finish(sim, -EPERM);
	err = check_placement(m, v, placement);
	if (!err) {
		v->placement = placement;
		m->vgpu_changes++;
	}
	return finish(sim, err);
}

static bool in_use(const struct sim_machine *m, uint32_t gpu)
{
	for (uint32_t i = 0; i < m->n_vgpus; i++)
		if (m->vgpus[i].id && m->vgpus[i].gpu == gpu && *m->vgpus[i].vm)
			return true;
	for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++)
		if (m->clients[i].used && m->clients[i].gpu == gpu)
			return true;
	return false;
}

static void wipe(struct sim_machine *m, uint32_t gpu)
{
	for (uint32_t i = 0; i < m->n_vgpus; i++)
		if (m->vgpus[i].gpu == gpu)
			m->vgpus[i].id = 0;
	memset(m->gpus[gpu].gi, 0, sizeof(m->gpus[gpu].gi));
	m->gpus[gpu].vgpu_mixed = false;
}

int sim_vgpu_set_vfs(struct sim *sim, uint32_t gpu, uint32_t count)
{
	struct sim_machine *m = sim_write(sim);

	if (!m)
		return -errno;
	if (gpu >= m->n_gpus || !m->gpus[gpu].vgpu_sriov)
		return finish(sim, -ENODEV);
	if (m->gpus[gpu].n_vfs == count)
		return finish(sim, 0);
	if (in_use(m, gpu))
		return finish(sim, -EBUSY);
	wipe(m, gpu);
	m->gpus[gpu].n_vfs = count;
	m->vgpu_changes++;
	return finish(sim, 0);
}

int sim_vgpu_list(struct sim *sim, struct sim_vgpu *out, uint32_t room)
{
	const struct sim_machine *m = sim_read(sim);
	uint32_t n = 0;

	if (!m)
		return -errno;
	for (uint32_t i = 0; i < m->n_vgpus && n < room; i++)
		if (m->vgpus[i].id)
			out[n++] = m->vgpus[i];
	sim_end(sim);
	return (int)n;
}

uint64_t sim_vgpu_changes(struct sim *sim)
{
	const struct sim_machine *m = sim_read(sim);
	uint64_t changes;

	if (!m)
		return 0;
	changes = m->vgpu_changes;
	sim_end(sim);
	return changes;
}

int sim_vgpu_read_available(struct sim *sim, uint32_t gpu, int32_t vf, uint32_t type_id)
{
	const struct sim_machine *m = sim_read(sim);
	int type, n;

	if (!m)
		return -errno;
	type = gpu < m->n_gpus ? sim_vgpu_type_index(m, gpu, type_id) : -ENODEV;
	n = type < 0 ? type : (int)sim_vgpu_available(m, gpu, vf, (uint32_t)type);
	sim_end(sim);
	return n;
}

uint32_t sim_vgpu_size(void)
{
	return sizeof(struct sim_vgpu);
}
