/* SPDX-License-Identifier: Apache-2.0 */
/* What a copy of the machine goes through before it is used: bounds, dead clients, busy times. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layout.h"

static int check_vgpus(const struct sim_machine *m)
{
	if (m->n_vgpu_types > SIM_MAX_VGPU_TYPES || m->n_vgpus > SIM_MAX_VGPUS)
		return -EPROTO;
	for (uint32_t i = 0; i < m->n_vgpu_types; i++)
		if (!m->vgpu_types[i].size)
			return -EPROTO;
	for (uint32_t i = 0; i < m->n_vgpus; i++)
		if (m->vgpus[i].id && (m->vgpus[i].gpu >= m->n_gpus || m->vgpus[i].type >= m->n_vgpu_types))
			return -EPROTO;
	return 0;
}

int sim_check(const struct sim_machine *m)
{
	if (m->n_gpus > SIM_MAX_GPUS)
		return -EPROTO;
	for (uint32_t i = 0; i < m->n_gpus; i++) {
		const struct sim_gpu *g = &m->gpus[i];

		if (g->n_profiles > SIM_MAX_PROFILES)
			return -EPROTO;
		for (uint32_t p = 0; p < g->n_profiles; p++)
			if (g->profiles[p].n_placements > SIM_MAX_PLACEMENTS)
				return -EPROTO;
		for (uint32_t k = 0; k < SIM_MAX_GI; k++)
			if (g->gi[k].used && g->gi[k].profile >= g->n_profiles)
				return -EPROTO;
	}
	for (uint32_t i = 0; i < SIM_MAX_EVENTS; i++)
		if (m->events[i].type && m->events[i].gpu >= m->n_gpus)
			return -EPROTO;
	for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++)
		if (m->clients[i].used && m->clients[i].gpu >= m->n_gpus)
			return -EPROTO;
	return check_vgpus(m);
}

void sim_drop_dead(const struct sim *sim, struct sim_machine *m)
{
	for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++) {
		struct sim_client *c = &m->clients[i];

		if (c->used && !sim_client_lives(sim, (int)i, c->pid, c->start_time))
			c->used = false;
	}
}

void sim_merge_busy(const struct sim *sim, struct sim_machine *m)
{
	for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++) {
		const struct sim_live_client *live = &sim_live(sim)->clients[i];

		if (!m->clients[i].used)
			continue;
		m->clients[i].busy_ns = atomic_load(&live->total_ns);
		m->clients[i].busy_since_ns = atomic_load(&live->since_ns);
	}
}
