/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the host: the guest's libcuda.so.1. */
#include <dlfcn.h>
#include <pthread.h>

#include "guest_math.h"

#if defined(__x86_64__)
/* As in the runtime library: loads on glibc 2.28, too. */
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

static struct math_channel channel;
static bool found;

static void find(void)
{
	/* Never closed: its threads outlive any use of ours. */
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		return;
	*(void **)&channel.open = dlsym(library, "vgpumgr_math_open");
	*(void **)&channel.create = dlsym(library, "vgpumgr_math_create");
	*(void **)&channel.destroy = dlsym(library, "vgpumgr_math_destroy");
	*(void **)&channel.call = dlsym(library, "vgpumgr_math_call");
	*(void **)&channel.make = dlsym(library, "vgpumgr_math_make");
	*(void **)&channel.current = dlsym(library, "cuCtxGetCurrent");
	*(void **)&channel.push = dlsym(library, "cuCtxPushCurrent_v2");
	*(void **)&channel.pop = dlsym(library, "cuCtxPopCurrent_v2");
	*(void **)&channel.allocate = dlsym(library, "cuMemAlloc_v2");
	*(void **)&channel.release = dlsym(library, "cuMemFree_v2");
	*(void **)&channel.alive = dlsym(library, "vgpumgr_math_alive");
	*(void **)&channel.unsupported = dlsym(library, "vgpumgr_call_unsupported");
	*(void **)&channel.pointer_attribute = dlsym(library, "cuPointerGetAttribute");
	*(void **)&channel.copy = dlsym(library, "cuMemcpy");
	*(void **)&channel.copy_async = dlsym(library, "cuMemcpyAsync");
	*(void **)&channel.copy_2d = dlsym(library, "cuMemcpy2DUnaligned_v2");
	*(void **)&channel.copy_2d_async = dlsym(library, "cuMemcpy2DAsync_v2");
	found = channel.open && channel.create && channel.destroy && channel.call && channel.alive;
}

const struct math_channel *math_channel(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find);
	return found ? &channel : NULL;
}

void math_ask_runtime(void)
{
	static const char *const names[] = { "libcudart.so.13", "libcudart.so.12" };
	int (*nothing)(void *);

	for (int i = 0; i < 2; i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);

		if (!library)
			continue;
		*(void **)&nothing = dlsym(library, "cudaFree");
		if (nothing)
			nothing(NULL);
		dlclose(library);
		return;
	}
}

void math_refuse(const char *name, atomic_flag *told)
{
	const struct math_channel *c = math_channel();

	if (c && c->unsupported)
		c->unsupported(name, told);
}

uint64_t math_version(uint32_t library)
{
	struct math_library found;

	return math_channel() && !math_channel()->open(library, &found) ? found.version : 0;
}
