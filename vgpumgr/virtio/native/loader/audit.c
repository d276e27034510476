/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audits the dynamic loader (rtld-audit(7)) of the programs that "vgpumgr-guest run" and "vgpumgr run" start: a CUDA library
 * of this library's own directory replaces any other of the same name, even one named by an absolute path. Wheels and conda
 * packages find NVIDIA's libraries by RPATH or absolute paths, and those need the whole driver.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#if defined(__x86_64__)
/* As in the runtime library: loads on glibc 2.28, too. */
__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
#endif

enum { LIBRARIES = 64, PATH_BYTES = 256 };

/* The loader keeps what it is answered. */
static char paths[LIBRARIES][PATH_BYTES];
static int count;

EXPORT unsigned int la_version(unsigned int version);
EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag);

/* The versioned ones: what programs are built with are links without a version. */
static void list_libraries(const char *folder)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;

	while (directory && count < LIBRARIES && (entry = readdir(directory)))
		if (!strncmp(entry->d_name, "lib", 3) && strstr(entry->d_name, ".so.") &&
		    snprintf(paths[count], PATH_BYTES, "%s/%s", folder, entry->d_name) < PATH_BYTES)
			count++;
	if (directory)
		closedir(directory);
}

unsigned int la_version(unsigned int version)
{
	char folder[PATH_BYTES];
	Dl_info own;
	char *end;

	if (dladdr((void *)(uintptr_t)la_version, &own) && own.dli_fname && own.dli_fname[0] == '/' &&
	    snprintf(folder, sizeof(folder), "%s", own.dli_fname) < PATH_BYTES) {
		end = strrchr(folder, '/');
		*end = '\0';
		list_libraries(folder);
	}
	return version < LAV_CURRENT ? version : LAV_CURRENT;
}

char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag)
{
	const char *slash = strrchr(name, '/'), *file = slash ? slash + 1 : name;

	(void)cookie;
	(void)flag;
	for (int i = 0; i < count; i++)
		if (!strcmp(file, strrchr(paths[i], '/') + 1))
			return paths[i];
	return (char *)(uintptr_t)name;
}
