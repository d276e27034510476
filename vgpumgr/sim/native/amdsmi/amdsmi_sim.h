/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What AMD SMI for virtualization hosts documents of virtual functions (its amdsmi.h, "VF and FB partitioning
 * queries" and "VF management"), declared anew, and what this library knows of the simulated machine.
 */
#ifndef AMDSMI_SIM_H
#define AMDSMI_SIM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define AMDSMI_API __attribute__((visibility("default")))

enum amdsmi_status {
	AMDSMI_STATUS_SUCCESS = 0,
	AMDSMI_STATUS_INVAL = 1,
	AMDSMI_STATUS_NOT_SUPPORTED = 2,
	AMDSMI_STATUS_API_FAILED = 7,
	AMDSMI_STATUS_NO_PERM = 10,
	AMDSMI_STATUS_OUT_OF_RESOURCES = 15,
	AMDSMI_STATUS_BUSY = 30,
	AMDSMI_STATUS_NOT_FOUND = 31,
	AMDSMI_STATUS_NOT_INIT = 32,
	AMDSMI_STATUS_DRIVER_NOT_LOADED = 34,
};

typedef void *amdsmi_processor_handle;
typedef void *amdsmi_socket_handle;

/* function: 3 bits, device: 5, bus: 8, domain: 48, from the lowest */
typedef union {
	uint64_t as_uint;
} amdsmi_bdf_t;

typedef struct {
	uint64_t handle;
} amdsmi_vf_handle_t;

/* in MiB from the start of the frame buffer */
typedef struct {
	uint32_t fb_offset;
	uint32_t fb_size;
	uint64_t reserved[3];
} amdsmi_vf_fb_info_t;

typedef struct {
	amdsmi_vf_handle_t id;
	amdsmi_vf_fb_info_t fb;
	uint64_t reserved[3];
} amdsmi_partition_info_t;

static_assert(sizeof(amdsmi_bdf_t) == 8, "as documented");
static_assert(sizeof(amdsmi_partition_info_t) == 64, "as documented");
static_assert(offsetof(amdsmi_partition_info_t, fb) == 8, "as documented");

#define SIM_MAX_GPUS 32
#define SIM_MAX_VFS 32

struct sim_vf {
	uint64_t bdf;
	uint32_t fb_offset;
	uint32_t fb_size;
};

/* One GPU that AMD's driver for hosts has, as it was when it was last looked at. */
struct sim_gpu {
	uint64_t bdf;
	uint32_t supported;
	uint32_t enabled;
	struct sim_vf vfs[SIM_MAX_VFS];
};

struct sim_gpus {
	uint32_t count;
	struct sim_gpu gpus[SIM_MAX_GPUS];
};

/* Asks the machine's driver. Returns 0 or a negative errno; ENOENT where there is no such driver. */
int sim_read_gpus(struct sim_gpus *gpus);

/* Has the driver change the number of virtual functions. Returns 0 or a negative errno. */
int sim_set_vfs(uint64_t bdf, uint32_t count);

#endif
