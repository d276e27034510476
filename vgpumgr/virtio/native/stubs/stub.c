/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that are not forwarded: programs that are linked with them start, and get an error from what they call. */
#include <dlfcn.h>
#include <stddef.h>

#include "stub.h"

#if defined(__x86_64__)
/* As in the runtime library: loads on glibc 2.28, too. */
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

void stub_refuse(const char *name, atomic_flag *said)
{
	static int (*_Atomic say)(const char *name, atomic_flag *said);
	int (*call)(const char *name, atomic_flag *said) = say;

	if (!call) {
		/* never closed, as for the runtime */
		void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

		*(void **)&call = driver ? dlsym(driver, "vgpumgr_call_unsupported") : NULL;
		say = call;
	}
	if (call)
		call(name, said);
}

const char *stub_text(int status)
{
	if (!status)
		return "success";
	return status == stub_answer ? "not supported over a forwarded GPU" : "unknown error";
}
