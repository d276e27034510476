/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vGPUs of a simulated machine: what fits where, and who holds what. The simulated /sys and the simulated NVML are two
 * doors to this one state, as with the rest of it.
 *
 * Rules, from NVIDIA's vGPU documentation: vGPUs of a GPU without MIG all have one framebuffer size unless mixed size is
 * on; on GPUs with SR-IOV a VF has one vGPU at most; a MIG-backed type needs a GPU instance of its profile with room.
 * Functions return 0 (or a positive result) or a negative errno; those that take a machine are for open sections.
 */
#ifndef VGPUMGR_SIMVGPU_H
#define VGPUMGR_SIMVGPU_H

#include "simstate.h"

enum { SIM_MAX_VGPU_PLACES = 288 };

/* Where a vGPU goes or is. */
struct sim_vgpu_place {
	int32_t gi_id; /* -1: on the GPU itself */
	uint32_t placement;
};

/* Index of the GPU's type with this id, or -ENOENT. */
int sim_vgpu_type_index(const struct sim_machine *m, uint32_t gpu, uint32_t id);
/* How many vGPUs of the type can be made now through this VF (0 or 1) or, vf -1, on the GPU itself. */
uint32_t sim_vgpu_available(const struct sim_machine *m, uint32_t gpu, int32_t vf, uint32_t type);
/* True if the GPU takes one more of the type, whatever the VF; then where the driver puts it. */
bool sim_vgpu_fits(const struct sim_machine *m, uint32_t gpu, uint32_t type, struct sim_vgpu_place *out);
/* The same for one GPU instance only. */
bool sim_vgpu_fits_gi(const struct sim_machine *m, uint32_t gpu, const struct sim_gi *gi, uint32_t type,
		      struct sim_vgpu_place *out);
/* Placement ids of a type on the GPU (gi_id -1) or in a GPU instance: all, or those free now. Returns how many. */
uint32_t sim_vgpu_placements(const struct sim_machine *m, uint32_t gpu, int32_t gi_id, uint32_t type, bool only_free,
			     uint32_t out[SIM_MAX_VGPU_PLACES]);
/* How many vGPUs the GPU has, ghosts included; with `gi`, how many of them in that instance. */
uint32_t sim_vgpu_count(const struct sim_machine *m, uint32_t gpu, const struct sim_gi *gi);

/*
 * Makes a vGPU; `uuid` empty: a VF's type. Returns its id. -EEXIST: the UUID is in use, also by a ghost. -EINVAL: the GPU
 * has no such type. -ENODEV: no such VF. -EBUSY: the VF has a vGPU. -ENOSPC: as many as there can be. -EIO: does not fit
 * beside the others.
 */
int sim_vgpu_create(struct sim *sim, uint32_t gpu, int32_t vf, uint32_t type_id, const char *uuid);
/* -ENOENT: no such vGPU. -EINPROGRESS: held; it is a ghost now, and gone when released. */
int sim_vgpu_remove(struct sim *sim, uint32_t id);
/* -EBUSY: somebody holds it. */
int sim_vgpu_hold(struct sim *sim, uint32_t id, const char *vm);
int sim_vgpu_release(struct sim *sim, uint32_t id);
/* Plugin parameters. -EBUSY: held. -E2BIG: too long. */
int sim_vgpu_set_params(struct sim *sim, uint32_t id, const char *params);
/* Moves it, where mixed size is on. -EPERM: it is off, or held. -EINVAL: the type has no such placement. -EIO: taken. */
int sim_vgpu_set_placement(struct sim *sim, uint32_t id, uint32_t placement);
/*
 * NVIDIA's tool makes (`count`) or removes (0) all VFs: vGPUs, GPU instances and mixed size are wiped, MIG mode stays.
 * Nothing happens where the count is as wished. -EBUSY: a vGPU is held, or a process computes on the GPU.
 */
int sim_vgpu_set_vfs(struct sim *sim, uint32_t gpu, uint32_t count);

/* For callers without a section: copies of the live vGPUs, at most `room`; returns how many. */
int sim_vgpu_list(struct sim *sim, struct sim_vgpu *out, uint32_t room);
/* The rising number of changes that a tree of files must follow. */
uint64_t sim_vgpu_changes(struct sim *sim);
/* sim_vgpu_available() in a section of its own, the type by its id. */
int sim_vgpu_read_available(struct sim *sim, uint32_t gpu, int32_t vf, uint32_t type_id);
/* Sizes of the structures, for callers in other languages. */
uint32_t sim_vgpu_size(void);

#endif
