/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as a whole: cuInit, versions, entry points, fork. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_sim.h"

struct driver drv = { .lock = PTHREAD_MUTEX_INITIALIZER };
_Thread_local bool in_callback;

uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t next_id(void)
{
	static uint64_t last;

	return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

static void close_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

void log_line(const char *format, ...)
{
	const char *path = getenv("VGPUMGR_SIM_LOG");
	CLEANUP(close_file) FILE *f = path && *path ? fopen(path, "ae") : NULL;
	va_list args;

	if (!f)
		return;
	va_start(args, format);
	vfprintf(f, format, args);
	va_end(args);
	fputc('\n', f);
}

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
	if (!drv.initialised)
		driver_init();
	return drv.init_result;
}

CUresult driver_check(void)
{
	if (drv.forked || !__atomic_load_n(&drv.initialised, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_NOT_INITIALIZED;
	return in_callback ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
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

/*
 * The driver's private tables are not reproduced. The documented results: NOT_FOUND for what is unknown, and
 * NOT_SUPPORTED for the table by which a vendor's runtime announces itself, because that code becomes the result of each
 * of its calls and says more than "not found" does.
 */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	static const unsigned char runtime[] = { 0x6b, 0xd5, 0xfb, 0x6c };

	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return memcmp(id->bytes, runtime, sizeof(runtime)) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_NOT_SUPPORTED;
}

/* The newest variant that is not newer than `version`; *newer: there is one, but only newer. */
static void *find_proc(const char *name, int version, bool per_thread, bool *newer)
{
	void *best = NULL;
	int best_version = 0;

	for (size_t i = 0; i < n_api_procs; i++) {
		const struct api_proc *p = &api_procs[i];

		if (p->per_thread_stream != per_thread || strcmp(p->name, name))
			continue;
		if (p->version > version)
			*newer = true;
		else if (p->version > best_version) {
			best = p->address;
			best_version = p->version;
		}
	}
	return best;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	bool newer = false, per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	CUdriverProcAddressQueryResult unused;

	if (!symbol || !function || flags & ~known || flags == known)
		return CUDA_ERROR_INVALID_VALUE;
	status = status ? status : &unused;
	*status = CU_GET_PROC_ADDRESS_SUCCESS;
	*function = per_thread ? find_proc(symbol, version, true, &newer) : NULL;
	if (!*function)
		*function = find_proc(symbol, version, false, &newer);
	if (*function)
		return CUDA_SUCCESS;
	*status = newer ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_ERROR_NOT_FOUND;
}

/* The form of CUDA 11.3, without the status. */
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* Profilers may always be switched: there is nothing to profile. */
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
