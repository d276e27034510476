/* SPDX-License-Identifier: Apache-2.0 */
#include "mig_rules.h"

#include <nvml.h>
#include <stdio.h>
#include <string.h>

const struct sim_profile *rules_profile(const struct sim_gpu *gpu, uint32_t id)
{
	for (uint32_t i = 0; i < gpu->n_profiles; i++)
		if (gpu->profiles[i].id == id)
			return &gpu->profiles[i];
	return NULL;
}

const struct sim_profile *rules_profile_by_enum(const struct sim_gpu *gpu, uint32_t profile_enum)
{
	for (uint32_t i = 0; i < gpu->n_profiles; i++)
		if (gpu->profiles[i].profile_enum == profile_enum)
			return &gpu->profiles[i];
	return NULL;
}

static bool same(struct sim_placement a, struct sim_placement b)
{
	return a.start == b.start && a.size == b.size;
}

static bool overlap(struct sim_placement a, struct sim_placement b)
{
	return a.start < b.start + b.size && b.start < a.start + a.size;
}

bool rules_has_placement(const struct sim_profile *profile, struct sim_placement at)
{
	for (uint32_t i = 0; i < profile->n_placements; i++)
		if (same(profile->placements[i], at))
			return true;
	return false;
}

/* What all live instances take of the GPU. */
struct usage {
	uint32_t slices, decoders, encoders, jpegs, ofas, of_profile;
	bool media_all, any_media; /* a live +me.all; a live instance of any profile but -me */
};

static struct usage usage_of(const struct sim_gpu *gpu, const struct sim_profile *profile)
{
	struct usage u = { 0 };

	for (uint32_t i = 0; i < SIM_MAX_GI; i++) {
		const struct sim_profile *p = &gpu->profiles[gpu->gi[i].profile];

		if (!gpu->gi[i].used)
			continue;
		u.slices += p->slices;
		u.decoders += p->decoders;
		u.encoders += p->encoders;
		u.jpegs += p->jpegs;
		u.ofas += p->ofas;
		u.of_profile += p == profile;
		u.media_all |= p->media_all;
		u.any_media |= !p->no_media;
	}
	return u;
}

/* nvml.h: an instance with all media engines prevents all but the profiles without any, and the other way round. */
static bool media_excluded(const struct usage *u, const struct sim_profile *p)
{
	return (u->media_all && !p->no_media) || (p->media_all && u->any_media);
}

/* Everything but the place on the memory axis. */
static bool within_budgets(const struct sim_gpu *gpu, const struct usage *u, const struct sim_profile *p)
{
	return u->slices + p->slices <= gpu->compute_slices && u->of_profile < p->max_instances &&
	       u->decoders + p->decoders <= gpu->decoders && u->encoders + p->encoders <= gpu->encoders &&
	       u->jpegs + p->jpegs <= gpu->jpegs && u->ofas + p->ofas <= gpu->ofas && !media_excluded(u, p);
}

static bool place_is_free(const struct sim_gpu *gpu, struct sim_placement at)
{
	for (uint32_t i = 0; i < SIM_MAX_GI; i++)
		if (gpu->gi[i].used && overlap(gpu->gi[i].placement, at))
			return false;
	return at.start + at.size <= gpu->memory_slices;
}

bool rules_fits(const struct sim_gpu *gpu, const struct sim_profile *profile, struct sim_placement at)
{
	struct usage u = usage_of(gpu, profile);

	return within_budgets(gpu, &u, profile) && place_is_free(gpu, at);
}

/*
 * The driver does not take the lowest free place: in the A100 transcripts of NVIDIA's MIG user guide a lone 2g goes to
 * 4, single 1g to 6 first and then 0, 1, 2, 3, the first of two 3g gets instance id 2. The last place first, then
 * upwards from the lowest, agrees with all of them; other boards are assumed to do the same.
 */
bool rules_choose(const struct sim_gpu *gpu, const struct sim_profile *profile, struct sim_placement *at)
{
	for (uint32_t i = 0; i < profile->n_placements; i++) {
		uint32_t index = i ? i - 1 : profile->n_placements - 1;

		if (rules_fits(gpu, profile, profile->placements[index])) {
			*at = profile->placements[index];
			return true;
		}
	}
	return false;
}

uint32_t rules_remaining(const struct sim_gpu *gpu, const struct sim_profile *profile)
{
	struct sim_gpu *trial = &(struct sim_gpu){ 0 };
	uint32_t n = 0;

	*trial = *gpu;
	profile = rules_profile(trial, profile->id);
	/* places of one profile have one size, so taking them from the lowest up gives the most */
	for (uint32_t i = 0; i < profile->n_placements; i++)
		n += rules_create(trial, profile, profile->placements[i]) != NULL;
	return n;
}

/*
 * Ids as in the user guide's transcripts: nodes of the tree that halves the memory axis, 0 the whole, 1 and 2 the
 * halves, 3 to 6 the quarters, from 7 the eighths (19,14,5 on an empty A100 gives 13, 5, 1).
 */
static uint32_t gi_id(const struct sim_gpu *gpu, struct sim_placement at)
{
	uint32_t parts = 1;

	while (at.size * parts * 2 <= gpu->memory_slices)
		parts *= 2;
	return parts - 1 + at.start / at.size;
}

/* A free entry where the table stays in the order of ids; NULL if it is full. */
static struct sim_gi *insert_gi(struct sim_gpu *gpu, uint32_t id)
{
	uint32_t used = 0, at = 0;

	for (uint32_t i = 0; i < SIM_MAX_GI; i++)
		if (gpu->gi[i].used && used++ != i)
			gpu->gi[used - 1] = gpu->gi[i];
	if (used == SIM_MAX_GI)
		return NULL;
	while (at < used && gpu->gi[at].id < id)
		at++;
	memmove(&gpu->gi[at + 1], &gpu->gi[at], (used - at) * sizeof(gpu->gi[0]));
	for (uint32_t i = used + 1; i < SIM_MAX_GI; i++)
		gpu->gi[i].used = false;
	return &gpu->gi[at];
}

struct sim_gi *rules_create(struct sim_gpu *gpu, const struct sim_profile *profile, struct sim_placement at)
{
	uint32_t id = gi_id(gpu, at);
	struct sim_gi *gi = rules_fits(gpu, profile, at) ? insert_gi(gpu, id) : NULL;

	if (gi)
		*gi = (struct sim_gi){ .used = true, .serial = ++gpu->next_serial, .id = id,
				       .profile = (uint32_t)(profile - gpu->profiles), .placement = at };
	return gi;
}

/* By NVML_COMPUTE_INSTANCE_PROFILE_*: slices, and the grid on which such an instance may start. */
static const struct {
	uint32_t slices, grid;
} ci_shapes[CI_PROFILES] = {
	[NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE] = { 1, 1 }, [NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE] = { 2, 2 },
	[NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE] = { 3, 4 }, [NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE] = { 4, 4 },
	[NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE] = { 7, 8 },
};
_Static_assert(CI_PROFILES == NVML_COMPUTE_INSTANCE_PROFILE_COUNT, "as many as NVML knows");

/* Which of them a GPU instance of so many slices offers (MIG user guide; a 4g, for one, has no 3c). */
static const uint8_t ci_offered[] = {
	[1] = 1 << NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE,
	[2] = 1 << NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE | 1 << NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE,
	[3] = 1 << NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE | 1 << NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE |
	      1 << NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE,
	[4] = 1 << NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE | 1 << NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE |
	      1 << NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE,
	[7] = 1 << NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE | 1 << NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE |
	      1 << NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE | 1 << NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE |
	      1 << NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE,
};

/* A compute instance of all slices has all SMs; a smaller one that of so many 1g. */
static uint32_t ci_sm_count(const struct sim_gpu *gpu, const struct sim_profile *gi_profile, uint32_t slices)
{
	const struct sim_profile *one = rules_profile_by_enum(gpu, NVML_GPU_INSTANCE_PROFILE_1_SLICE);

	if (slices == gi_profile->slices || !one)
		return gi_profile->sm_count * slices / gi_profile->slices;
	return one->sm_count * slices;
}

bool rules_ci_profile(const struct sim_gpu *gpu, const struct sim_gi *gi, uint32_t id, struct ci_profile *out)
{
	const struct sim_profile *p = &gpu->profiles[gi->profile];

	if (id >= CI_PROFILES || p->slices >= sizeof(ci_offered) || !(ci_offered[p->slices] >> id & 1))
		return false;
	*out = (struct ci_profile){ .id = id, .slices = ci_shapes[id].slices };
	out->sm_count = ci_sm_count(gpu, p, out->slices);
	for (uint32_t start = 0; start + out->slices <= p->slices; start += ci_shapes[id].grid)
		out->placements[out->n_placements++] = (struct sim_placement){ start, out->slices };
	out->max_instances = out->n_placements;
	return true;
}

bool rules_ci_fits(const struct sim_gi *gi, const struct ci_profile *profile, struct sim_placement at)
{
	bool known = false;

	for (uint32_t i = 0; i < profile->n_placements; i++)
		known |= same(profile->placements[i], at);
	for (uint32_t i = 0; i < SIM_MAX_CI; i++)
		if (gi->ci[i].used && overlap(gi->ci[i].placement, at))
			return false;
	return known;
}

bool rules_ci_choose(const struct sim_gi *gi, const struct ci_profile *profile, struct sim_placement *at)
{
	for (uint32_t i = 0; i < profile->n_placements; i++) {
		if (rules_ci_fits(gi, profile, profile->placements[i])) {
			*at = profile->placements[i];
			return true;
		}
	}
	return false;
}

uint32_t rules_ci_remaining(const struct sim_gi *gi, const struct ci_profile *profile)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < profile->n_placements; i++)
		n += rules_ci_fits(gi, profile, profile->placements[i]);
	return n; /* places of one profile do not overlap */
}

static uint64_t hash(const char *text, uint64_t seed)
{
	uint64_t h = 0xcbf29ce484222325 ^ seed; /* FNV-1a, and a final mix */

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3;
	h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
	return h ^ h >> 33;
}

/* The same place gives the same UUID again, as is reported of hardware: it is made of GPU, profile and places. */
static void make_uuid(const struct sim_gpu *gpu, const struct sim_gi *gi, struct sim_ci *ci)
{
	char text[256];
	uint64_t a, b;

	snprintf(text, sizeof(text), "%s/%u/%u:%u/%u/%u:%u", gpu->uuid, gpu->profiles[gi->profile].id,
		 gi->placement.start, gi->placement.size, ci->profile_enum, ci->placement.start, ci->placement.size);
	a = hash(text, 0);
	b = hash(text, a);
	snprintf(ci->uuid, sizeof(ci->uuid), "MIG-%08x-%04x-5%03x-%04x-%012llx", (unsigned int)(a >> 32),
		 (unsigned int)(a >> 16 & 0xffff), (unsigned int)(a & 0xfff), (unsigned int)(b >> 48 & 0x3fff) | 0x8000,
		 (unsigned long long)(b & 0xffffffffffff));
}

static bool ci_id_taken(const struct sim_gi *gi, uint32_t id)
{
	for (uint32_t i = 0; i < SIM_MAX_CI; i++)
		if (gi->ci[i].used && gi->ci[i].id == id)
			return true;
	return false;
}

struct sim_ci *rules_ci_create(struct sim_gpu *gpu, struct sim_gi *gi, const struct ci_profile *profile,
			       struct sim_placement at)
{
	uint32_t id = 0;

	if (!rules_ci_fits(gi, profile, at))
		return NULL;
	while (ci_id_taken(gi, id))
		id++;
	for (uint32_t i = 0; i < SIM_MAX_CI; i++) {
		struct sim_ci *ci = &gi->ci[i];

		if (ci->used)
			continue;
		*ci = (struct sim_ci){ .used = true, .serial = ++gpu->next_serial, .id = id,
				       .profile_enum = profile->id, .slices = profile->slices,
				       .sm_count = profile->sm_count, .placement = at };
		make_uuid(gpu, gi, ci);
		return ci;
	}
	return NULL;
}

bool rules_busy(const struct sim_machine *m, uint32_t gpu, const struct sim_gi *gi, const struct sim_ci *ci)
{
	for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++) {
		const struct sim_client *c = &m->clients[i];

		if (c->used && c->gpu == gpu && (!gi || c->gi_id == (int32_t)gi->id) &&
		    (!ci || c->ci_id == (int32_t)ci->id))
			return true;
	}
	return false;
}
