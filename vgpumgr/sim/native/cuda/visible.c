/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which devices a process sees: the machine and CUDA_VISIBLE_DEVICES, as NVIDIA's programming guide (environment
 * variables) and MIG user guide (device enumeration) say.
 *
 * - The list's first element decides its kind: indices, GPU- UUIDs or MIG- UUIDs; a UUID may be cut short as long as one
 *   device alone begins with it. The first element that is none of these, or names nothing, ends the list; a repeated one
 *   makes it empty.
 * - A MIG device is one compute instance, and a process has at most one: the list's first.
 * - A GPU in MIG mode named by index or UUID stands for its first compute instance, if it comes first in the list.
 * - Without the variable: every GPU that is not in MIG mode; if all are, the first compute instance of the machine.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_sim.h"

enum { MAX_ELEMENT = 128 };

bool parse_uuid(const char *text, CUuuid *uuid)
{
	const char *p = strchr(text, '-');
	int n = 0;

	memset(uuid, 0, sizeof(*uuid));
	for (p = p ? p + 1 : text; *p && n < 32; p++) {
		const char *digits = "0123456789abcdef", *d = strchr(digits, tolower((unsigned char)*p));

		if (*p == '-')
			continue;
		if (!d)
			return false;
		uuid->bytes[n / 2] = (char)(uuid->bytes[n / 2] << 4 | (d - digits));
		n++;
	}
	return n == 32;
}

/* "NVIDIA A100-SXM4-80GB MIG 1g.10gb"; a compute instance with part of its GPU instance's slices: "MIG 1c.3g.40gb". */
static void name_instance(struct device *d, const struct sim_gpu *g, const struct sim_gi *gi, const struct sim_ci *ci)
{
	const struct sim_profile *p = &g->profiles[gi->profile];

	if (ci->slices == p->slices)
		snprintf(d->name, sizeof(d->name), "%s MIG %s", g->name, p->name);
	else
		snprintf(d->name, sizeof(d->name), "%s MIG %uc.%s", g->name, ci->slices, p->name);
}

static struct device *add_device(const struct sim_machine *m, uint32_t gpu)
{
	const struct sim_gpu *g = &m->gpus[gpu];
	struct device *d = &drv.devices[drv.n_devices];

	*d = (struct device){ .ordinal = drv.n_devices, .gpu = gpu, .gi_id = -1, .ci_id = -1, .slot = -1, .info = *g };
	d->sm_count = g->sm_count;
	snprintf(d->name, sizeof(d->name), "%s", g->name);
	parse_uuid(g->uuid, &d->gpu_uuid);
	d->uuid = d->gpu_uuid;
	drv.n_devices++;
	return d;
}

static void add_gpu(const struct sim_machine *m, uint32_t gpu)
{
	struct device *d = add_device(m, gpu);
	uint64_t used;

	sim_capacity(m, gpu, -1, &d->total_bytes, &used);
}

static void add_instance(const struct sim_machine *m, uint32_t gpu, const struct sim_gi *gi, const struct sim_ci *ci)
{
	struct device *d = add_device(m, gpu);
	uint64_t used;

	d->gi_id = (int32_t)gi->id;
	d->ci_id = (int32_t)ci->id;
	d->sm_count = ci->sm_count;
	d->copy_engines = m->gpus[gpu].profiles[gi->profile].copy_engines;
	parse_uuid(ci->uuid, &d->uuid);
	name_instance(d, &m->gpus[gpu], gi, ci);
	sim_capacity(m, gpu, d->gi_id, &d->total_bytes, &used);
}

/* The first compute instance of a GPU, in the order of ids as NVML lists them, becomes the only device. */
static bool add_first_instance(const struct sim_machine *m, uint32_t gpu)
{
	const struct sim_gi *first_gi = NULL;
	const struct sim_ci *first = NULL;

	for (size_t i = 0; i < SIM_MAX_GI; i++) {
		const struct sim_gi *gi = &m->gpus[gpu].gi[i];

		if (!gi->used || (first && gi->id > first_gi->id))
			continue;
		for (size_t k = 0; k < SIM_MAX_CI; k++) {
			const struct sim_ci *ci = &gi->ci[k];

			if (!ci->used || (first && first_gi == gi && ci->id > first->id))
				continue;
			first_gi = gi;
			first = ci;
		}
	}
	if (first)
		add_instance(m, gpu, first_gi, first);
	return first != NULL;
}

static void add_default(const struct sim_machine *m)
{
	for (uint32_t i = 0; i < m->n_gpus; i++) {
		if (!m->gpus[i].mig_current && !m->gpus[i].detached)
			add_gpu(m, i);
	}
	for (uint32_t i = 0; i < m->n_gpus && !drv.n_devices; i++)
		add_first_instance(m, i);
}

static bool starts_with(const char *text, const char *prefix)
{
	return !strncasecmp(text, prefix, strlen(prefix));
}

/* One GPU by index or by the start of its UUID; -1: none or not unique. */
static int find_gpu(const struct sim_machine *m, const char *element)
{
	int found = -1;
	char *end;

	if (isdigit((unsigned char)*element)) {
		unsigned long index = strtoul(element, &end, 10);

		return index < SIM_MAX_GPUS ? sim_nth_gpu(m, (uint32_t)index) : -1;
	}
	if (!starts_with(element, "GPU-"))
		return -1;
	for (uint32_t i = 0; i < m->n_gpus; i++) {
		if (m->gpus[i].detached || !starts_with(m->gpus[i].uuid, element))
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

struct instance {
	uint32_t gpu;
	const struct sim_gi *gi;
	const struct sim_ci *ci;
	unsigned matches;
};

/* The drivers before R470 wrote MIG-GPU-<uuid>/<gi>/<ci>; both forms are understood. */
static bool is_instance(const struct sim_gpu *g, const struct sim_gi *gi, const struct sim_ci *ci, const char *element)
{
	char old[MAX_ELEMENT];

	snprintf(old, sizeof(old), "MIG-%s/%u/%u", g->uuid, gi->id, ci->id);
	return starts_with(ci->uuid, element) || !strcasecmp(old, element);
}

static void match_instances(const struct sim_machine *m, uint32_t gpu, const char *element, struct instance *found)
{
	const struct sim_gpu *g = &m->gpus[gpu];

	for (size_t i = 0; i < SIM_MAX_GI; i++) {
		for (size_t k = 0; g->gi[i].used && k < SIM_MAX_CI; k++) {
			const struct sim_ci *ci = &g->gi[i].ci[k];

			if (ci->used && is_instance(g, &g->gi[i], ci, element))
				*found = (struct instance){ gpu, &g->gi[i], ci, found->matches + 1 };
		}
	}
}

/* MIG devices after the first are not visible: the rest of such a list is not even looked at. */
static void add_mig_list(const struct sim_machine *m, const char *element)
{
	struct instance found = { 0 };

	for (uint32_t gpu = 0; gpu < m->n_gpus; gpu++)
		match_instances(m, gpu, element, &found);
	if (found.matches == 1)
		add_instance(m, found.gpu, found.gi, found.ci);
}

/* Copies the next comma-separated element, without white space; false at the end. */
static bool next_element(const char **list, char *out)
{
	size_t n = 0;

	if (!*list)
		return false;
	while (**list && **list != ',') {
		if (!isspace((unsigned char)**list) && n < MAX_ELEMENT - 1)
			out[n++] = **list;
		++*list;
	}
	*list = **list ? *list + 1 : NULL;
	out[n] = '\0';
	return true;
}

static void add_gpu_list(const struct sim_machine *m, const char *list)
{
	char element[MAX_ELEMENT];
	bool by_index = false;

	for (bool first = true; next_element(&list, element); first = false) {
		int gpu = find_gpu(m, element);

		if (first)
			by_index = isdigit((unsigned char)*element);
		if (gpu < 0 || by_index != !!isdigit((unsigned char)*element))
			return;
		for (int i = 0; i < drv.n_devices; i++) {
			if (drv.devices[i].gpu == (uint32_t)gpu) {
				drv.n_devices = 0;
				return;
			}
		}
		if (m->gpus[gpu].mig_current) {
			if (first)
				add_first_instance(m, (uint32_t)gpu);
			return;
		}
		add_gpu(m, (uint32_t)gpu);
	}
}

CUresult visible_devices(const struct sim_machine *m, const char *list)
{
	const char *rest = list;
	char first[MAX_ELEMENT];

	drv.n_devices = 0;
	if (!list)
		add_default(m);
	else if (next_element(&rest, first) && starts_with(first, "MIG-"))
		add_mig_list(m, first);
	else
		add_gpu_list(m, list);
	return drv.n_devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
