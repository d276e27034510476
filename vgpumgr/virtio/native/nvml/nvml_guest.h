/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's libnvidia-ml.so.1: the slices of the VM as its GPUs. What a slice is comes from the worker, once; what is used
 * of it is asked each time. A process that uses this library has a lane of each slice while it is initialised, and no context.
 * What only a whole GPU has (temperature, power, clocks, modes) answers NVML_ERROR_NOT_SUPPORTED.
 */
#ifndef VGPUMGR_NVML_GUEST_H
#define VGPUMGR_NVML_GUEST_H

#include <nvml.h>
#include <stdbool.h>
#include <stdint.h>
#include <transport.h>

#include "vg_ops.h"

enum { GPUS_MAX = 64 };

struct gpu {
	struct vg_conn *conn;
	unsigned int index;
	struct vg_device_snapshot_reply is;
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
	unsigned int pci[4]; /* domain, bus, device, function, as on the host */
};

/* ---- library.c: calls hold one lock, so that nvmlShutdown cannot take the connections from under them */

/* Takes the lock. False, and no lock, before nvmlInit. */
bool nvml_enter(void);
void nvml_leave(void);
nvmlReturn_t nvml_not_offered(void);
nvmlReturn_t nvml_put_text(char *to, unsigned int length, const char *from);

static inline void nvml_leave_scope(const bool *entered)
{
	if (*entered)
		nvml_leave();
}
#define NVML_ENTER()                                                                                                   \
	__attribute__((cleanup(nvml_leave_scope))) bool entered_ = nvml_enter();                                       \
	if (!entered_)                                                                                                 \
	return NVML_ERROR_UNINITIALIZED
/* The same, and the GPU of a handle. */
#define NVML_ENTER_GPU(name, device)                                                                                   \
	NVML_ENTER();                                                                                                  \
	struct gpu *name = gpus_find(device);                                                                          \
	if (!name)                                                                                                     \
	return NVML_ERROR_INVALID_ARGUMENT

/* ---- gpus.c, under the lock */

nvmlReturn_t gpus_open(void);
void gpus_close(void);
unsigned int gpus_count(void);
struct gpu *gpus_at(unsigned int index);
struct gpu *gpus_find(nvmlDevice_t device);
/* What CUDA calls the driver's version, 13000 for 13.0. */
int gpus_cuda_version(void);
int gpu_attribute(const struct gpu *gpu, unsigned int attribute);

struct use {
	unsigned int count;
	unsigned long long bytes; /* of all */
	struct {
		unsigned int pid;
		unsigned long long bytes;
	} process[sizeof(((struct vg_device_use_reply *)0)->processes) / sizeof(struct vg_lane_use)];
};
/* What processes of this VM use of it now. */
nvmlReturn_t gpu_read_use(struct gpu *gpu, struct use *use);

#endif
