/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGetExportTable: the door to the driver's private tables. None is implemented and none will be. A runtime that asks
 * for one cannot start here; it gets a documented code, and stderr gets one message for each file.
 */
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

enum { FILES = 32 };

struct owner {
	uintptr_t caller;
	uintptr_t base;
	const char *file;
};

/* dl_iterate_phdr() and not dladdr(): the latter's symbol version would keep this library off older systems. */
static int find_owner(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct owner *o = argument;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || o->caller - info->dlpi_addr - p->p_vaddr >= p->p_memsz)
			continue;
		o->base = info->dlpi_addr;
		o->file = info->dlpi_name;
		return 1;
	}
	return 0;
}

/* Whether a library of that name lies beside this one: the guest package's. */
static bool is_beside(const char *name)
{
	struct owner own = { .caller = (uintptr_t)find_owner };
	char path[4096];
	const char *end;

	if (!dl_iterate_phdr(find_owner, &own))
		return false;
	end = strrchr(own.file, '/');
	return end && snprintf(path, sizeof(path), "%.*s/%s", (int)(end - own.file), own.file, name) < (int)sizeof(path) &&
	       !access(path, R_OK);
}

static const char *advice(const char *file, char *text, size_t size)
{
	const char *base = strrchr(file, '/');

	base = base ? base + 1 : file;
	if (is_beside(base)) {
		snprintf(text, size,
			 "The guest package has its own %s. Start the program with 'vgpumgr-guest run', which takes that one, or "
			 "put it into the environment for good: 'vgpumgr-guest adopt'.", base);
	} else if (strstr(base, ".so")) {
		snprintf(text, size,
			 "This library has the CUDA runtime built in. The guest package has none of that name.");
	} else {
		snprintf(text, size,
			 "The CUDA runtime is linked statically. Rebuild with 'nvcc -cudart shared' "
			 "(CMake: CMAKE_CUDA_RUNTIME_LIBRARY=Shared).");
	}
	return text;
}

static const char *program_path(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	path[n > 0 ? n : 0] = 0;
	return path;
}

static void tell(const void *caller)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uintptr_t told[FILES];
	static int count;
	char text[512], path[4096];
	struct owner owner = { .caller = (uintptr_t)caller };
	bool seen = false;

	if (!dl_iterate_phdr(find_owner, &owner))
		return;
	if (!*owner.file) /* the program itself has no name there */
		owner.file = program_path(path, sizeof(path));
	pthread_mutex_lock(&lock);
	for (int i = 0; i < count; i++)
		seen = seen || told[i] == owner.base;
	if (!seen && count < FILES)
		told[count++] = owner.base;
	else
		seen = true;
	pthread_mutex_unlock(&lock);
	if (seen)
		return;
	dprintf(STDERR_FILENO,
		"vgpumgr: %s holds a CUDA runtime that needs private driver tables, and cannot start over a forwarded "
		"GPU.\nvgpumgr: %s\nvgpumgr: A VM with a passthrough, vf or mdev slice runs the vendor's driver and has "
		"no such limit.\n",
		owner.file, advice(owner.file, text, sizeof(text)));
}

SHIM_API CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	CUresult r = cuda_export_table(ppExportTable, pExportTableId);

	if (r == CUDA_ERROR_NOT_SUPPORTED)
		tell(__builtin_return_address(0));
	return r;
}
