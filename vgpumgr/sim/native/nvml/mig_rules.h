/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of MIG, on the machine's state alone: what fits where. Nothing here knows handles or NVML's functions.
 * Sources: NVIDIA's MIG user guide and nvml.h.
 */
#ifndef VGPUMGR_MIG_RULES_H
#define VGPUMGR_MIG_RULES_H

#include "simstate.h"

/* The row with this profile id (or, second function, this NVML_GPU_INSTANCE_PROFILE_*); NULL if the board has none. */
const struct sim_profile *rules_profile(const struct sim_gpu *gpu, uint32_t id);
const struct sim_profile *rules_profile_by_enum(const struct sim_gpu *gpu, uint32_t profile_enum);

/* True if the profile has this placement at all. */
bool rules_has_placement(const struct sim_profile *profile, struct sim_placement at);
/* True if an instance may be made there now: nothing overlaps, and compute slices, media engines and the profile's
 * number of instances suffice. */
bool rules_fits(const struct sim_gpu *gpu, const struct sim_profile *profile, struct sim_placement at);
/* Where the driver puts an instance when it is not told; false if nowhere. */
bool rules_choose(const struct sim_gpu *gpu, const struct sim_profile *profile, struct sim_placement *at);
/* How many more instances of the profile can be made. */
uint32_t rules_remaining(const struct sim_gpu *gpu, const struct sim_profile *profile);
/* Makes the instance; NULL if it does not fit. */
struct sim_gi *rules_create(struct sim_gpu *gpu, const struct sim_profile *profile, struct sim_placement at);

/* Compute instances. A profile is named by NVML_COMPUTE_INSTANCE_PROFILE_*, which is its id too. */
struct ci_profile {
	uint32_t id, slices, sm_count, max_instances, n_placements;
	struct sim_placement placements[SIM_MAX_CI];
};

enum { CI_PROFILES = 9 }; /* NVML_COMPUTE_INSTANCE_PROFILE_COUNT */

/* False if this GPU instance has no such profile. */
bool rules_ci_profile(const struct sim_gpu *gpu, const struct sim_gi *gi, uint32_t id, struct ci_profile *out);
bool rules_ci_fits(const struct sim_gi *gi, const struct ci_profile *profile, struct sim_placement at);
bool rules_ci_choose(const struct sim_gi *gi, const struct ci_profile *profile, struct sim_placement *at);
uint32_t rules_ci_remaining(const struct sim_gi *gi, const struct ci_profile *profile);
struct sim_ci *rules_ci_create(struct sim_gpu *gpu, struct sim_gi *gi, const struct ci_profile *profile,
			       struct sim_placement at);

/* True if a client computes on the GPU (gi NULL), in the instance (ci NULL), on the compute instance. */
bool rules_busy(const struct sim_machine *m, uint32_t gpu, const struct sim_gi *gi, const struct sim_ci *ci);

#endif
