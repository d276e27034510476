/* SPDX-License-Identifier: Apache-2.0 */
/* This process in the machine's state: who uses which device, how much of its memory, and when it works. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_sim.h"

/* Guards the count of contexts: attaching and detaching are not one step of the machine. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult to_cuda(int error)
{
	switch (error) {
	case 0:
		return CUDA_SUCCESS;
	case -ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case -ENODEV: /* the instance was destroyed, or MIG mode was switched on */
	case -EIO:    /* the GPU is lost */
	case -EUSERS:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	default:
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
}

CUresult client_attach(struct device *dev)
{
	int error = 0;

	pthread_mutex_lock(&lock);
	if (!dev->n_contexts)
		error = sim_client_add(drv.sim, dev->gpu, dev->gi_id, dev->ci_id, &dev->slot);
	if (!error)
		dev->n_contexts++;
	pthread_mutex_unlock(&lock);
	return to_cuda(error);
}

void client_detach(struct device *dev)
{
	pthread_mutex_lock(&lock);
	if (!--dev->n_contexts)
		sim_client_remove(drv.sim, dev->slot);
	pthread_mutex_unlock(&lock);
}

static void close_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* Bytes that all programs together may take of the machine, as `sim start --memory` wrote; UINT64_MAX: no limit. */
static uint64_t machine_limit(void)
{
	const char *directory = getenv("VGPUMGR_SIM");
	char path[4096];
	uint64_t limit;

	if (!directory || snprintf(path, sizeof(path), "%s/memory", directory) >= (int)sizeof(path))
		return UINT64_MAX;
	CLEANUP(close_file) FILE *f = fopen(path, "re");
	return f && fscanf(f, "%" SCNu64, &limit) == 1 ? limit : UINT64_MAX;
}

/* What the machine's limit leaves. */
static uint64_t machine_left(const struct sim_machine *m)
{
	uint64_t limit = machine_limit(), used = 0;

	for (int i = 0; i < SIM_MAX_CLIENTS; i++) {
		if (m->clients[i].used)
			used += m->clients[i].memory_bytes;
	}
	return limit == UINT64_MAX ? limit : limit > used ? limit - used : 0;
}

static bool machine_has(uint64_t bytes)
{
	const struct sim_machine *m = sim_read(drv.sim);
	uint64_t left = UINT64_MAX;

	if (m) {
		left = machine_left(m);
		sim_end(drv.sim);
	}
	return bytes <= left;
}

CUresult client_charge(struct device *dev, uint64_t bytes)
{
	if (!machine_has(bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return to_cuda(sim_client_charge(drv.sim, dev->slot, bytes));
}

void client_uncharge(struct device *dev, uint64_t bytes)
{
	sim_client_uncharge(drv.sim, dev->slot, bytes);
}

void client_busy(struct device *dev, int change)
{
	bool before = dev->n_busy > 0;

	dev->n_busy += change;
	if (before != (dev->n_busy > 0))
		sim_client_busy(drv.sim, dev->slot, dev->n_busy > 0);
}

CUresult client_memory(struct device *dev, uint64_t *free_bytes, uint64_t *total_bytes)
{
	const struct sim_machine *m;
	uint64_t used = 0, left = UINT64_MAX;
	int error = -ENODEV;

	m = sim_read(drv.sim);
	if (m) {
		error = sim_capacity(m, dev->gpu, dev->gi_id, total_bytes, &used);
		left = machine_left(m);
		sim_end(drv.sim);
	}
	if (!error)
		*free_bytes = *total_bytes > used ? *total_bytes - used : 0;
	if (!error && left < *free_bytes)
		*free_bytes = left;
	return to_cuda(error);
}
