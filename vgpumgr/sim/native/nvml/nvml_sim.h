/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the simulated NVML share: handles and views.
 *
 * A handle is a number, not an address: what it names (GPU, instances and their serial number) is looked up in the
 * machine's state at each call, so a handle of a destroyed instance is refused and none needs freeing or locking.
 *
 * A view is one consistent look at the machine. VIEW_* opens one for a handle and returns from the calling NVML
 * function with the right error if that cannot be; the view closes itself at the end of its scope.
 */
#ifndef VGPUMGR_NVML_SIM_H
#define VGPUMGR_NVML_SIM_H

#include <nvml.h>

#include "simstate.h"

enum handle_kind { HANDLE_GPU = 1, HANDLE_MIG, HANDLE_GI, HANDLE_CI };

struct view {
	nvmlReturn_t status;
	bool writing;
	nvmlReturn_t after; /* a fault: what to answer although the change is made */
	struct sim_machine *m; /* to be changed only while writing */
	uint32_t gpu_index;
	struct sim_gpu *gpu;
	struct sim_gi *gi; /* NULL: a handle of a whole GPU */
	struct sim_ci *ci;
};

/* For a handle of one of the kinds in `kinds` (1 << kind each). NULL: only the machine. `function`: the caller's name,
 * by which a writing call is told from others where a fault is set. */
struct view view_open(const void *handle, unsigned int kinds, bool writing, const char *function);
void view_close(struct view *view);
/* Publishes the change and ends the view. NVML_ERROR_UNKNOWN if the state cannot be written. */
nvmlReturn_t view_commit(struct view *view);

#define VIEW_OF(v, handle, kinds, writing)                                                          \
	struct view v __attribute__((cleanup(view_close))) = view_open(handle, kinds, writing, __func__); \
	do {                                                                                        \
		if ((v).status != NVML_SUCCESS)                                                     \
			return (v).status;                                                          \
	} while (0)
#define VIEW_MACHINE(v) VIEW_OF(v, NULL, 0, false)
#define VIEW_GPU(v, device) VIEW_OF(v, device, 1u << HANDLE_GPU, false)
#define VIEW_DEVICE(v, device) VIEW_OF(v, device, 1u << HANDLE_GPU | 1u << HANDLE_MIG, false)
#define VIEW_MIG(v, device) VIEW_OF(v, device, 1u << HANDLE_MIG, false)
#define VIEW_GI(v, handle) VIEW_OF(v, handle, 1u << HANDLE_GI, false)
#define VIEW_CI(v, handle) VIEW_OF(v, handle, 1u << HANDLE_CI, false)
#define CHANGE_GPU(v, device) VIEW_OF(v, device, 1u << HANDLE_GPU, true)
#define CHANGE_GI(v, handle) VIEW_OF(v, handle, 1u << HANDLE_GI, true)
#define CHANGE_CI(v, handle) VIEW_OF(v, handle, 1u << HANDLE_CI, true)

/* For the functions of telemetry that know no MIG device. */
#define REFUSE_MIG(v)                                            \
	do {                                                     \
		if ((v).gi)                                      \
			return NVML_ERROR_NOT_SUPPORTED;         \
	} while (0)

nvmlDevice_t gpu_handle(uint32_t gpu);
nvmlDevice_t mig_handle(uint32_t gpu, const struct sim_gi *gi, const struct sim_ci *ci);
nvmlGpuInstance_t gi_handle(uint32_t gpu, const struct sim_gi *gi);
nvmlComputeInstance_t ci_handle(uint32_t gpu, const struct sim_gi *gi, const struct sim_ci *ci);

/* The process's handle of the machine, between nvml_enter() and nvml_leave(); NULL (and nothing to leave) if NVML is
 * not initialised. */
struct sim *nvml_enter(void);
void nvml_leave(void);
/* For functions that need the handle while a view of this thread is open. */
struct sim *nvml_state(void);
/* `status`, or UNINITIALIZED where that comes first. */
nvmlReturn_t nvml_refuse(nvmlReturn_t status);
nvmlReturn_t nvml_not_offered(void);
nvmlReturn_t nvml_from_errno(int err);
/* For calls that need root, which the machine's owner is too: SUCCESS or NO_PERMISSION. Only while a view is open. */
nvmlReturn_t nvml_check_root(void);

/* Copies a string into a caller's buffer of `length` bytes, as all NVML getters do. */
nvmlReturn_t put_text(char *to, unsigned int length, const char *from);
/* Answers a getter with one number. */
nvmlReturn_t put_uint(unsigned int *to, unsigned int value);

/* "NVIDIA A100-SXM4-80GB MIG 1g.10gb"; the part after "MIG " is also the name of profiles. */
void mig_profile_name(const struct sim_profile *profile, uint32_t ci_slices, char *name, size_t size);

#endif
