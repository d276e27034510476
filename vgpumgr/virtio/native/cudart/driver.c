/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's function table. */
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__x86_64__)
/*
 * glibc 2.34 moved these into libc under a new version. The old names still work there, and with them the library also
 * loads into programs on glibc 2.28.
 */
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

struct driver driver;

static bool loaded;
static int (*call_unsupported)(const char *name, atomic_flag *said);
/* Recursive: a driver may fork helpers while it is being initialised under this lock. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void rt_lock(void)
{
	pthread_mutex_lock(&lock);
}

void rt_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* The child's only thread is not the one that took the lock, as far as its number goes: it cannot unlock it. */
static void free_in_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

/* A fork waits until no other thread is inside. */
__attribute__((constructor)) static void prepare_for_fork(void)
{
	pthread_atfork(rt_lock, rt_unlock, free_in_child);
}

#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
#define RESOLVE(name) driver.name = (__typeof__(driver.name))dlsym(library, TEXT(name));

static int resolve(void)
{
	/* Never closed: the driver's threads and exit handlers outlive any use of ours. */
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		return -ENOENT;
	DRIVER_CALLS(RESOLVE)
	*(void **)&call_unsupported = dlsym(library, "vgpumgr_call_unsupported");
	return 0;
}

int driver_load(void)
{
	int err = loaded ? 0 : resolve();

	loaded = err == 0;
	return err;
}

void driver_call_unsupported(const char *name, atomic_flag *said)
{
	rt_lock();
	driver_load();
	rt_unlock();
	if (call_unsupported)
		call_unsupported(name, said);
}
