/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one simulated machine: a file that every process using the machine maps.
 *
 * libnvidia-ml.so.1 and libcuda.so.1 of the simulator are two doors to this one state. Readers take a shared lock,
 * writers an exclusive one (flock: the kernel drops it when a process dies). A writer changes a private copy;
 * sim_commit() publishes it in one step, so a writer killed half-way leaves the old state. Processes are known by pid
 * and start time: what a dead process held is dropped by the next reader or writer that looks.
 *
 * The machine is found through the environment: VGPUMGR_SIM is its directory (vgpumgr sim env NAME prints it).
 * Functions return 0 or a negative errno. Handles may be used by several threads and in the child of a fork, which is
 * nobody's client until it adds itself. Sections (sim_read .. sim_end, sim_write .. sim_commit) do not nest, are short,
 * and begin and end in one thread.
 */
#ifndef VGPUMGR_SIMSTATE_H
#define VGPUMGR_SIMSTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	SIM_MAX_GPUS = 16,
	SIM_MAX_PROFILES = 24,
	SIM_MAX_PLACEMENTS = 8,
	SIM_MAX_GI = 14,
	SIM_MAX_CI = 8,
	SIM_MAX_CLIENTS = 512,
	SIM_NAME = 96,
	SIM_UUID = 48,
	SIM_MAX_FAULTS = 8,
	SIM_MAX_EVENTS = 64,
	SIM_MAX_VGPU_TYPES = 192,
	SIM_MAX_VGPUS = 1024,
	SIM_VGPU_PARAMS = 256,
};

struct sim_placement {
	uint32_t start, size; /* in units of the GPU's memory axis */
};

/* One row of the board's GPU-instance profile table. */
struct sim_profile {
	char name[SIM_NAME];       /* "1g.10gb" */
	uint32_t profile_enum;     /* NVML_GPU_INSTANCE_PROFILE_* */
	uint32_t id;               /* gi_profile_id: what create and capacity calls take */
	uint32_t slices;           /* compute slices */
	uint32_t max_instances;
	uint32_t sm_count, copy_engines, decoders, encoders, jpegs, ofas;
	uint64_t memory_bytes;
	bool media, media_all, no_media, gfx; /* +me, +me.all, -me, +gfx */
	uint32_t n_placements;
	struct sim_placement placements[SIM_MAX_PLACEMENTS];
};

struct sim_ci {
	bool used;
	uint32_t serial;           /* never used again on this GPU: a handle of a destroyed instance stays invalid */
	uint32_t id, profile_enum, slices, sm_count; /* profile_enum: NVML_COMPUTE_INSTANCE_PROFILE_* */
	struct sim_placement placement; /* in compute slices of the GI */
	char uuid[SIM_UUID];            /* "MIG-..." */
};

struct sim_gi {
	bool used;
	uint32_t serial;
	uint32_t id, profile; /* index into the GPU's profiles */
	struct sim_placement placement;
	struct sim_ci ci[SIM_MAX_CI];
};

struct sim_gpu {
	char name[SIM_NAME], uuid[SIM_UUID], serial[32], vbios[32], part_number[32];
	uint32_t pci_domain, pci_bus, pci_device, pci_device_id, pci_subsystem_id; /* ids: (device << 16) | vendor */
	int32_t numa_node;
	uint32_t architecture;           /* NVML_DEVICE_ARCH_* */
	uint32_t cc_major, cc_minor, sm_count, sm_clock_mhz, mem_clock_mhz, power_limit_mw;
	uint64_t memory_bytes, memory_reserved_bytes;
	bool mig_capable, mig_needs_reset; /* needs_reset: Ampere, the mode changes only with no client on the GPU */
	bool mig_current, mig_pending;
	bool ecc_current, ecc_pending, persistence;
	/* hardware faults: what NVML counts since the driver was loaded, and the temperature where load does not say it */
	uint32_t ecc_single, ecc_double, temperature_c;
	bool lost;                       /* fault injection: NVML_ERROR_GPU_IS_LOST, CUDA_ERROR_DEVICE_UNAVAILABLE */
	bool detached;                   /* the driver does not have it: neither NVML nor CUDA know it */
	uint32_t brand, minor, compute_mode; /* NVML_BRAND_*, /dev/nvidiaN, NVML_COMPUTEMODE_* */
	uint32_t pcie_gen, pcie_width, pcie_switch; /* GPUs with one switch number share a PCIe switch */
	uint32_t memory_bus_bits, cores_per_sm, idle_power_mw, idle_temperature_c, max_temperature_c;
	uint32_t copy_engines, decoders, encoders, jpegs, ofas; /* of the whole board */
	uint64_t bar1_bytes;
	char cpus[64];                   /* near the GPU: "0-15,128-143" */
	uint32_t compute_slices, memory_slices;
	uint32_t n_profiles;
	struct sim_profile profiles[SIM_MAX_PROFILES];
	/* vGPU, where the host's driver is the vGPU manager; vgpu_family 0: it is not */
	uint32_t vgpu_family;      /* the GPU's types are those of this family */
	uint32_t vgpu_slots;       /* places on the axis of vGPU placements, a nominal GB each */
	bool vgpu_sriov;           /* vGPUs live on VFs, one each; else on the GPU itself */
	bool vgpu_mdev;            /* the framework: mediated devices, else vendor-specific VFIO */
	bool vgpu_mixed_capable, vgpu_mixed; /* NVML's heterogeneous mode: framebuffer sizes may differ */
	uint32_t n_vfs;            /* 0: NVIDIA's tool has not made the VFs */
	uint32_t next_serial;
	struct sim_gi gi[SIM_MAX_GI]; /* those in use in the order of their ids, as are a GPU instance's ci */
};

/* A type of vGPU; several GPUs share those of one family. */
struct sim_vgpu_type {
	uint32_t family, id;
	char name[64], class_name[16], license[128]; /* "NVIDIA L40S-12Q", "Quadro" */
	uint32_t framebuffer_mib, size;  /* size: nominal GB, which is what placements count in */
	uint32_t max_instances, max_per_vm, max_per_gi; /* max_per_gi 0: time-sliced on the whole GPU */
	uint32_t gi_profile;             /* gi_profile_id that a MIG-backed type lives in */
	uint32_t heads, max_x, max_y, frame_rate_limit;
	uint32_t device_id, subsystem_id;
};

/* A vGPU: a mediated device, or a VF that a type was given to. */
struct sim_vgpu {
	uint32_t id;               /* never used again; 0: this place is free */
	uint32_t gpu, type;        /* index into the machine's types */
	int32_t vf;                /* -1: on the GPU itself */
	int32_t gi_id;             /* -1: time-sliced */
	uint32_t placement;        /* in the GPU, or in the GPU instance */
	bool removed;              /* a ghost: removed while held, gone when released */
	char uuid[SIM_UUID];       /* of a mediated device; else empty */
	char vm[SIM_UUID];         /* the VM that holds it; empty: none */
	char params[SIM_VGPU_PARAMS];
};

/* A process with a CUDA context on a GPU or on one compute instance. */
struct sim_client {
	bool used;
	pid_t pid;
	uint64_t start_time; /* field 22 of /proc/PID/stat */
	uint32_t gpu;
	int32_t gi_id, ci_id; /* -1: the whole GPU */
	uint64_t memory_bytes;
	uint64_t busy_ns;     /* time that its kernels and copies ran; utilisation is its growth over wall time */
	uint64_t busy_since_ns; /* CLOCK_MONOTONIC start of the kernel that runs now, 0 if none */
	char name[64];
};

/* What NVML's event sets hear of; types are those of nvml.h. */
struct sim_event {
	uint64_t type, data;       /* data: the number of an Xid */
	uint32_t gpu;
	int32_t gi_id, ci_id;      /* -1: the whole GPU */
};

struct sim_machine {
	char name[SIM_NAME], driver_version[32], nvml_version[32];
	int32_t cuda_driver_version; /* 13000 */
	uint32_t n_gpus;
	struct sim_gpu gpus[SIM_MAX_GPUS];
	struct sim_client clients[SIM_MAX_CLIENTS];
	uint32_t n_vgpu_types, next_vgpu_id;
	uint32_t n_vgpus;          /* places of vgpus that were ever in use */
	uint64_t vgpu_changes;     /* rises with every change of a vGPU, and when VFs come or go */
	uint64_t n_events;         /* so far; number n (from 0) is at n % SIM_MAX_EVENTS until as many came after it */
	struct sim_event events[SIM_MAX_EVENTS];
	struct sim_vgpu_type vgpu_types[SIM_MAX_VGPU_TYPES];
	struct sim_vgpu vgpus[SIM_MAX_VGPUS];
};

/* The GPU that NVML and CUDA count as number `index`, -1: there are not so many. */
static inline int sim_nth_gpu(const struct sim_machine *m, uint32_t index)
{
	for (uint32_t i = 0; i < m->n_gpus; i++)
		if (!m->gpus[i].detached && !index--)
			return (int)i;
	return -1;
}

/* How many GPUs before this one, or with n_gpus in all, NVML and CUDA know. */
static inline uint32_t sim_gpus_before(const struct sim_machine *m, uint32_t gpu)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < gpu; i++)
		n += !m->gpus[i].detached;
	return n;
}

struct sim; /* one process's handle */

/* Opens the machine of directory `dir`, or of $VGPUMGR_SIM where dir is NULL. -ENOENT: no such machine runs. */
int sim_open(const char *dir, struct sim **out);
void sim_close(struct sim *sim);
/* Who made the machine: on it, that user has root's rights. */
uid_t sim_owner(const struct sim *sim);

/* A consistent view, held under the shared lock until sim_end(). Dead clients are already left out.
 * NULL (errno set) only if the section is opened twice by one thread or, after fork, no descriptor is free. */
const struct sim_machine *sim_read(struct sim *sim);
void sim_end(struct sim *sim);

/* A private copy to change, under the exclusive lock; then either sim_commit() or sim_abort(). NULL as sim_read(). */
struct sim_machine *sim_write(struct sim *sim);
int sim_commit(struct sim *sim);
void sim_abort(struct sim *sim);

/* Rises with every commit: who waits for something asks this first. Takes no lock. */
uint64_t sim_generation(const struct sim *sim);

/* The capacity that a client of this GPU (gi_id -1) or instance can allocate, and what all its clients hold.
 * -ENODEV: no such GPU or instance. */
int sim_capacity(const struct sim_machine *m, uint32_t gpu, int32_t gi_id, uint64_t *total, uint64_t *used);

/* Registers this process as a client; the slot is valid until sim_client_remove() or exit.
 * -ENODEV: GPU in MIG mode but no instance given, or no such instance. -EIO: GPU lost. -EUSERS: client table full. */
int sim_client_add(struct sim *sim, uint32_t gpu, int32_t gi_id, int32_t ci_id, int *slot);
void sim_client_remove(struct sim *sim, int slot);
/* Charges memory against the instance's capacity over all its clients. -ENOMEM: would exceed it.
 * -ESRCH: the slot is not this process's, as in the child of a fork. */
int sim_client_charge(struct sim *sim, int slot, uint64_t bytes);
void sim_client_uncharge(struct sim *sim, int slot, uint64_t bytes);
/* Brackets running work, for utilisation; brackets of several threads may overlap. Cheap: no lock is taken. */
void sim_client_busy(struct sim *sim, int slot, bool busy);
/*
 * The clock of a GPU, where the machine has one: kernels run between begin and end, while their process has the GPU's one engine, which processes with
 * work have in turns. pass() lets device time go by, `ns` of it at least; 0: others may have their turn.
 */
void sim_engine_begin(struct sim *sim, int slot);
void sim_engine_end(struct sim *sim, int slot);
void sim_engine_pass(struct sim *sim, int slot, uint64_t ns);
bool sim_clock(const struct sim *sim);
/* From now on kernels that begin take device time. */
void sim_clock_start(struct sim *sim);
/* Device time that the client has had, ns. */
uint64_t sim_engine_time(struct sim *sim, int slot);
/* How many processes compute on the GPU; negative errno. */
int sim_gpu_clients(struct sim *sim, uint32_t gpu);
/* The driver lets go of the GPU (true) or takes it: instances are gone, MIG mode stays where the GPU stores it. */
int sim_gpu_detach(struct sim *sim, uint32_t gpu, bool detached);

/* Kinds of NVML calls that a fault can be set for. */
enum sim_call { SIM_CALL_READ, SIM_CALL_MODE_SET, SIM_CALL_GI_CREATE, SIM_CALL_GI_DESTROY, SIM_CALL_CI_CREATE,
		SIM_CALL_CI_DESTROY, SIM_CALLS };

/* From the `nth` such call on (1: the next), `times` calls wait `delay_ms` and then, if `code` is not 0, answer it:
 * without doing anything, or with `after` although they did it. gpu -1: on any GPU. */
struct sim_fault {
	enum sim_call call;
	int32_t gpu;
	uint32_t nth, times, code, delay_ms;
	bool after;
};

/* What tests do to a machine. -ENOSPC: all places for faults are taken. */
int sim_fault_set(struct sim *sim, const struct sim_fault *fault);
void sim_faults_clear(struct sim *sim);
/* Counts a call; true, with the fault, if it is to fail or wait. Cheap and without a lock where none is set. */
bool sim_fault_hit(struct sim *sim, enum sim_call call, int32_t gpu, struct sim_fault *hit);

/* Share of the last sampling window (about a second) in which some client of the GPU ran work, in percent. */
uint32_t sim_gpu_utilization(struct sim *sim, uint32_t gpu);

#endif
