/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: made on the host, and what they are set to, which is kept here. */
#include <stdlib.h>

#include "blas.h"

enum { ALIGNMENT = 256 };

int blas_create(uint32_t library, void **handle)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const struct math_channel *c = math_channel();
	struct blas_handle *h;
	int status, result;

	if (!handle)
		return BLAS_INVALID_VALUE;
	*handle = NULL;
	if (!c)
		return BLAS_NOT_INITIALIZED;
	math_ask_runtime();
	h = calloc(1, sizeof(*h));
	if (!h)
		return BLAS_ALLOC_FAILED;
	result = c->create(library, &h->id, &status);
	if (result || status) {
		free(h);
		if (result == 801)
			return blas_unsupported(library == VG_MATH_BLAS ? "cuBLAS, which the host does not have," :
									  "cuBLASLt, which the host does not have,", &told);
		return result ? blas_status(result) : status;
	}
	h->magic = BLAS_MAGIC;
	h->library = library;
	pthread_mutex_init(&h->lock, NULL);
	*handle = h;
	return BLAS_OK;
}

int blas_destroy(void *handle)
{
	struct blas_handle *h = handle;
	int result;

	if (!h || h->magic != BLAS_MAGIC || !math_channel())
		return BLAS_NOT_INITIALIZED;
	result = math_channel()->alive(h->id) ? math_channel()->destroy(h->id) : 0;
	h->magic = 0;
	pthread_mutex_destroy(&h->lock);
	free(h);
	return blas_status(result);
}

BLAS_API int cublasCreate_v2(void **handle);
int cublasCreate_v2(void **handle)
{
	return blas_create(VG_MATH_BLAS, handle);
}

BLAS_API int cublasDestroy_v2(void *handle);
int cublasDestroy_v2(void *handle)
{
	return blas_destroy(handle);
}

BLAS_API int cublasGetVersion_v2(void *handle, int *version);
int cublasGetVersion_v2(void *handle, int *version)
{
	(void)handle;
	if (!version)
		return BLAS_INVALID_VALUE;
	*version = (int)math_version(VG_MATH_BLAS);
	return *version ? BLAS_OK : BLAS_NOT_INITIALIZED;
}

BLAS_API int cublasSetStream_v2(void *handle, void *stream);
int cublasSetStream_v2(void *handle, void *stream)
{
	struct blas_handle *h = blas_handle(handle);

	if (!h)
		return BLAS_NOT_INITIALIZED;
	pthread_mutex_lock(&h->lock);
	h->wanted.stream = stream;
	h->wanted.workspace = NULL;
	h->wanted.workspace_bytes = 0;
	pthread_mutex_unlock(&h->lock);
	return BLAS_OK;
}

BLAS_API int cublasGetStream_v2(void *handle, void **stream);
int cublasGetStream_v2(void *handle, void **stream)
{
	struct blas_handle *h = blas_handle(handle);

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (!stream)
		return BLAS_INVALID_VALUE;
	pthread_mutex_lock(&h->lock);
	*stream = h->wanted.stream;
	pthread_mutex_unlock(&h->lock);
	return BLAS_OK;
}

BLAS_API int cublasSetWorkspace_v2(void *handle, void *workspace, long long bytes);
int cublasSetWorkspace_v2(void *handle, void *workspace, long long bytes)
{
	struct blas_handle *h = blas_handle(handle);

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if ((uintptr_t)workspace % ALIGNMENT)
		return BLAS_INVALID_VALUE;
	pthread_mutex_lock(&h->lock);
	h->wanted.workspace = bytes ? workspace : NULL;
	h->wanted.workspace_bytes = workspace ? (size_t)bytes : 0;
	pthread_mutex_unlock(&h->lock);
	return BLAS_OK;
}

/* A number that a handle is set to, in a range. What the library refuses is not set. */
static int set_number(void *handle, size_t place, int value, int least, int most)
{
	struct blas_handle *h = blas_handle(handle);
	int *number, before, status;

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (value < least || value > most)
		return BLAS_INVALID_VALUE;
	pthread_mutex_lock(&h->lock);
	number = (int *)((char *)h + place);
	before = *number;
	*number = value;
	status = h->library == VG_MATH_BLAS && value != before ? blas_send_numbers(h) : BLAS_OK;
	if (status == BLAS_INVALID_VALUE || status == BLAS_NOT_SUPPORTED)
		*number = before;
	else /* what could not be sent is sent with the next call */
		status = BLAS_OK;
	pthread_mutex_unlock(&h->lock);
	return status;
}

static int get_number(void *handle, size_t place, int *value)
{
	struct blas_handle *h = blas_handle(handle);

	if (!h)
		return BLAS_NOT_INITIALIZED;
	if (!value)
		return BLAS_INVALID_VALUE;
	pthread_mutex_lock(&h->lock);
	*value = *(int *)((char *)h + place);
	pthread_mutex_unlock(&h->lock);
	return BLAS_OK;
}

/* cublasMath_t has flags above its modes. */
enum { MATH_FLAGS = 0x3f, MODE_MAX = 1, TARGET_MAX = 1 << 20 };

#define NUMBER(name, field, least, most)                                                 \
	BLAS_API int cublasSet##name(void *handle, int value);                           \
	int cublasSet##name(void *handle, int value)                                     \
	{                                                                                \
		return set_number(handle, offsetof(struct blas_handle, field), value, least, most); \
	}                                                                                \
	BLAS_API int cublasGet##name(void *handle, int *value);                          \
	int cublasGet##name(void *handle, int *value)                                    \
	{                                                                                \
		return get_number(handle, offsetof(struct blas_handle, field), value);   \
	}

NUMBER(PointerMode_v2, mode, 0, MODE_MAX)
NUMBER(AtomicsMode, wanted.atomics, 0, MODE_MAX)
NUMBER(MathMode, wanted.math, 0, MATH_FLAGS)
NUMBER(SmCountTarget, wanted.processors, 0, TARGET_MAX)
