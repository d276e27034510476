/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the driver, and what every part of it uses. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

CUresult driver_check(void)
{
	if (drv.forked || !__atomic_load_n(&drv.initialised, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_NOT_INITIALIZED;
	return in_callback ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

struct device *device_find(CUdevice dev)
{
	return dev >= 0 && dev < drv.n_devices ? &drv.devices[dev] : NULL;
}
