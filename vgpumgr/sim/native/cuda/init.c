/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as a whole: cuInit, versions, entry points, fork. */
#include <stdlib.h>

#include "ipc.h"

/* As on hardware, a child of an initialised process cannot use CUDA: the worker threads did not come along. */
static void forked_child(void)
{
	drv.forked = drv.initialised;
}

static CUresult find_devices(void)
{
	const struct sim_machine *m;
	CUresult r;

	if (sim_open(NULL, &drv.sim))
		return CUDA_ERROR_NO_DEVICE;
	m = sim_read(drv.sim);
	if (!m)
		return CUDA_ERROR_NO_DEVICE;
	drv.version = m->cuda_driver_version;
	r = visible_devices(m, getenv("CUDA_VISIBLE_DEVICES"));
	sim_end(drv.sim);
	return r;
}

static void driver_init(void)
{
	drv.init_result = find_devices();
	if (drv.init_result != CUDA_SUCCESS) {
		if (drv.sim)
			sim_close(drv.sim);
		drv.sim = NULL;
		return;
	}
	ipc_init();
	pthread_atfork(NULL, NULL, forked_child);
	__atomic_store_n(&drv.initialised, true, __ATOMIC_RELEASE);
}

CUresult cuInit(unsigned int flags)
{
	if (drv.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	/* A failed start may be tried again: the machine may have been started meanwhile. */
	if (!drv.initialised) {
		CUresult r = check_init();

		if (r != CUDA_SUCCESS)
			return r;
		driver_init();
	}
	return drv.init_result;
}

static int version_of_machine(void)
{
	struct sim *sim;
	const struct sim_machine *m;
	int version = 0;

	if (sim_open(NULL, &sim))
		return 0;
	m = sim_read(sim);
	if (m) {
		version = m->cuda_driver_version;
		sim_end(sim);
	}
	sim_close(sim);
	return version;
}

/* Needs no cuInit. Without a machine there is no driver: version 0. */
CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = drv.initialised ? drv.version : version_of_machine();
	return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	return cuda_export_table(table, id);
}

CUresult cuGetErrorName(CUresult error, const char **out)
{
	return cuda_error_name(error, out);
}

CUresult cuGetErrorString(CUresult error, const char **out)
{
	return cuda_error_string(error, out);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	return cuda_find_proc(api_procs, n_api_procs, symbol, version, flags, function, status);
}

/* The form of CUDA 11.3, without the status. */
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/*
 * Profilers may always be switched: there is nothing to profile. cudaProfiler.h declares them, which not every distribution
 * of the headers holds.
 */
API CUresult cuProfilerStart(void);
API CUresult cuProfilerStop(void);

CUresult cuProfilerStart(void)
{
	CONTEXT_ENTER(ctx);
	return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
	CONTEXT_ENTER(ctx);
	return CUDA_SUCCESS;
}
