/* SPDX-License-Identifier: Apache-2.0 */
/* This process in the machine's state: who uses which device, how much of its memory, and when it works. */
#include <errno.h>

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

CUresult client_charge(struct device *dev, uint64_t bytes)
{
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
	uint64_t used = 0;
	int error = -ENODEV;

	m = sim_read(drv.sim);
	if (m) {
		error = sim_capacity(m, dev->gpu, dev->gi_id, total_bytes, &used);
		sim_end(drv.sim);
	}
	if (!error)
		*free_bytes = *total_bytes > used ? *total_bytes - used : 0;
	return to_cuda(error);
}
