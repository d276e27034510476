/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of mathematics that the host has: a session loads one when it is asked for it first. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blas_functions.h"
#include "mathematics.h"
#include "sparse_wire.h"

enum { LIBRARIES = VG_MATH_RAND + 1, PATH_BYTES = 256, MAJORS = 2, FOUND = 256 };

/* Without create: it has no handles. */
static const struct {
	const char *name, *create, *destroy, *property;
	int majors[MAJORS];       /* newest first */
} known[LIBRARIES] = {
	[VG_MATH_BLAS] = { "libcublas.so", "cublasCreate_v2", "cublasDestroy_v2", "cublasGetProperty", { 13, 12 } },
	[VG_MATH_LT] = { "libcublasLt.so", "cublasLtCreate", "cublasLtDestroy", "cublasLtGetProperty", { 13, 12 } },
	[VG_MATH_DNN] = { "libcudnn.so", "cudnnCreate", "cudnnDestroy", "cudnnGetProperty", { 9 } },
	[VG_MATH_FFT] = { "libcufft.so", NULL, NULL, "cufftGetProperty", { 12, 11 } },
	[VG_MATH_SOLVER] = { "libcusolver.so", "cusolverDnCreate", "cusolverDnDestroy", "cusolverGetProperty", { 12, 11 } },
	[VG_MATH_SPARSE] = { "libcusparse.so", "cusparseCreate", "cusparseDestroy", "cusparseGetProperty", { 12 } },
	[VG_MATH_RAND] = { "libcurand.so", NULL, NULL, "curandGetProperty", { 10 } },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *directories = "";
static struct {
	_Atomic(void *) handle;
	char path[PATH_BYTES];
} loaded[LIBRARIES];

void wk_math_read(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], VG_OPTION_MATH, strlen(VG_OPTION_MATH)))
			directories = argv[i] + strlen(VG_OPTION_MATH);
}

static void *open_in(const char *directory, size_t length, uint32_t library, int major, char *path)
{
	if (snprintf(path, PATH_BYTES, "%.*s%s%s.%d", (int)length, directory, length ? "/" : "", known[library].name, major) >=
	    PATH_BYTES)
		return NULL;
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* In one of the directories, then where the loader looks. */
static void *open_library(uint32_t library, char *path)
{
	for (int m = 0; m < MAJORS && known[library].majors[m]; m++) {
		int major = known[library].majors[m];
		const char *directory = directories;
		void *found;

		for (;;) {
			size_t length = strcspn(directory, ":");

			found = open_in(directory, length, library, major, path);
			if (found)
				return found;
			if (!directory[length])
				break;
			directory += length + 1;
		}
		found = open_in("", 0, library, major, path);
		if (found)
			return found;
	}
	return NULL;
}

static void *load(uint32_t library)
{
	void *handle;

	if (!library || library >= LIBRARIES)
		return NULL;
	handle = atomic_load(&loaded[library].handle);
	if (handle)
		return handle;
	pthread_mutex_lock(&lock);
	handle = atomic_load(&loaded[library].handle);
	if (!handle)
		handle = open_library(library, loaded[library].path);
	atomic_store(&loaded[library].handle, handle);
	pthread_mutex_unlock(&lock);
	return handle;
}

void *wk_math_find(uint32_t library, const char *name)
{
	void *handle = load(library);

	return handle ? dlsym(handle, name) : NULL;
}

void *wk_math_function(uint32_t library, const char *name)
{
	/* a name is there only behind its function, and is another literal in each library's file */
	static struct {
		_Atomic(const char *) name;
		void *function;
	} found[FOUND];
	void *function = NULL;
	unsigned int i = 0;

	for (; i < FOUND && atomic_load_explicit(&found[i].name, memory_order_acquire); i++)
		if (found[i].name == name)
			return found[i].function;
	function = wk_math_find(library, name);
	pthread_mutex_lock(&lock);
	while (i < FOUND && found[i].name)
		i++;
	if (function && i < FOUND) {
		found[i].function = function;
		atomic_store_explicit(&found[i].name, name, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return function;
}

bool wk_math_loaded(void)
{
	for (int i = 0; i < LIBRARIES; i++)
		if (atomic_load(&loaded[i].handle))
			return true;
	return false;
}

void wk_math_end(struct wk_math *math)
{
	int (*destroy)(void *);

	if (math->lt) {
		*(void **)&destroy = wk_math_find(VG_MATH_LT, known[VG_MATH_LT].destroy);
		if (destroy)
			destroy(math->lt);
	}
	if (math->params)
		math->end_params(math->params);
	if (math->destroy)
		math->destroy(math->handle);
	pthread_mutex_destroy(&math->lock);
	free(math);
}

bool wk_math_load(uint32_t library)
{
	return load(library);
}

const char *wk_math_path(uint32_t library)
{
	return loaded[library].path;
}

/* As CUBLAS_VERSION and CUDNN_VERSION, of the others too: the major number times 10000, the minor one times 100, the patch. */
uint64_t wk_math_version(uint32_t library)
{
	int (*ask)(int property, int *value);
	uint64_t version = 0;

	*(void **)&ask = wk_math_find(library, known[library].property);
	for (int i = 0; ask && i < 3; i++) {
		int value = 0;

		if (ask(i, &value) != MATH_OK)
			return 0;
		version = version * 100 + (uint64_t)value;
	}
	return version;
}

/* The numbers of cuSOLVER and cuSPARSE are others than those that the other libraries share. */
static int status_of(uint32_t library, int shared, int of_solver, int of_sparse)
{
	return library == VG_MATH_SOLVER ? of_solver : library == VG_MATH_SPARSE ? of_sparse : shared;
}

static int make_handle(struct wk_math *math)
{
	int (*create)(void **);

	*(void **)&create = wk_math_find(math->library, known[math->library].create);
	*(void **)&math->destroy = wk_math_find(math->library, known[math->library].destroy);
	return create && math->destroy ? create(&math->handle) :
					 status_of(math->library, MATH_NOT_SUPPORTED, SOLVER_NOT_SUPPORTED, SPARSE_NOT_SUPPORTED);
}

struct wk_math *wk_math_new(uint32_t library, int *status)
{
	struct wk_math *math = calloc(1, sizeof(*math));

	*status = status_of(library, MATH_ALLOC_FAILED, SOLVER_ALLOC_FAILED, SPARSE_ALLOC_FAILED);
	if (!math)
		return NULL;
	math->library = library;
	*status = known[library].create ? make_handle(math) : MATH_OK;
	if (*status == MATH_OK) {
		pthread_mutex_init(&math->lock, NULL);
		return math;
	}
	free(math);
	return NULL;
}
