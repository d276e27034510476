/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: made on the host; their streams are kept here. */
#include <stdlib.h>
#include <string.h>

#include "dnn.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dnn_handle *handles;
/* Of handles that have ended: never freed, as another thread may ask with one that it has found (dnn_any_handle). */
static struct dnn_handle *ended;
static _Thread_local const char *last_name; /* a literal, or NULL */

int dnn_status(int result)
{
	switch (result) {
	case 0:   /* CUDA_SUCCESS */
		return DNN_OK;
	case 2:   /* CUDA_ERROR_OUT_OF_MEMORY */
		return DNN_ALLOC_FAILED;
	case 801: /* CUDA_ERROR_NOT_SUPPORTED */
		return DNN_NOT_SUPPORTED;
	case 400: /* CUDA_ERROR_INVALID_HANDLE */
		return DNN_BAD_PARAM;
	case 3: case 100: case 201: case 709: /* no driver, no device, no context any more */
		return DNN_NOT_INITIALIZED;
	default:
		return DNN_EXECUTION_FAILED;
	}
}

int dnn_failure(int result)
{
	switch (result) {
	case 400: /* CUDA_ERROR_INVALID_HANDLE: it has ended in another thread */
		return DNN_NOT_INITIALIZED;
	case 801: /* CUDA_ERROR_NOT_SUPPORTED: of something that was posted before */
		return DNN_EXECUTION_FAILED;
	default:
		return dnn_status(result);
	}
}

int dnn_unsupported(const char *name, atomic_flag *told)
{
	last_name = name;
	math_refuse(name, told);
	return DNN_NOT_SUPPORTED;
}

const char *dnn_last_name(void)
{
	return last_name;
}

struct dnn_handle *dnn_handle(void *handle)
{
	struct dnn_handle *h = handle;

	if (!dnn_is_live(h) || h->magic != DNN_HANDLE_MAGIC || !math_channel() || !math_channel()->alive(h->id))
		return NULL;
	return h;
}

static struct dnn_handle *find(const void *context)
{
	for (struct dnn_handle *h = handles; h; h = h->next)
		if ((!context || h->context == context) && math_channel()->alive(h->id))
			return h;
	return NULL;
}

/* As dnn_any_handle, with its number, which is read before another thread can end it. */
static struct dnn_handle *find_any(const void *context, uint64_t *id)
{
	void *current = NULL;
	struct dnn_handle *h;

	*id = 0;
	if (!math_channel())
		return NULL;
	if (!context && math_channel()->current)
		math_channel()->current(&current);
	pthread_mutex_lock(&lock);
	h = find(context ? context : current);
	if (!h && !context)
		h = find(NULL);
	if (h)
		*id = h->id;
	pthread_mutex_unlock(&lock);
	return h;
}

struct dnn_handle *dnn_any_handle(const void *context)
{
	uint64_t id;

	return find_any(context, &id);
}

uint64_t dnn_any_id(const void *context)
{
	uint64_t id;

	find_any(context, &id);
	return id;
}

static int make(struct dnn_handle *h)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	int status = 0, result = math_channel()->create(VG_MATH_DNN, &h->id, &status);

	if (result == 801)
		return dnn_unsupported("cuDNN, which the host does not have,", &told);
	return result ? dnn_status(result) : status;
}

/* One of those that have ended, or a new one. NULL: no memory. */
static struct dnn_handle *take(void)
{
	struct dnn_handle *h;

	pthread_mutex_lock(&lock);
	h = ended;
	if (h)
		ended = h->next;
	pthread_mutex_unlock(&lock);
	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (h)
		pthread_mutex_init(&h->lock, NULL);
	return h;
}

static void give_back(struct dnn_handle *h)
{
	pthread_mutex_lock(&h->lock);
	h->magic = 0;
	h->stream = NULL;
	memset(&h->known, 0, sizeof(h->known));
	pthread_mutex_unlock(&h->lock);
	pthread_mutex_lock(&lock);
	h->next = ended;
	ended = h;
	pthread_mutex_unlock(&lock);
}

DNN_API int cudnnCreate(void **handle);
int cudnnCreate(void **handle)
{
	struct dnn_handle *h;
	int status;

	if (!handle)
		return DNN_BAD_PARAM;
	*handle = NULL;
	if (!math_channel())
		return DNN_NOT_INITIALIZED;
	math_ask_runtime();
	h = take();
	if (!h)
		return DNN_ALLOC_FAILED;
	status = dnn_live_add(h) ? make(h) : DNN_ALLOC_FAILED;
	if (status != DNN_OK) {
		dnn_live_remove(h);
		give_back(h);
		return status;
	}
	h->magic = DNN_HANDLE_MAGIC;
	if (math_channel()->current)
		math_channel()->current(&h->context);
	pthread_mutex_lock(&lock);
	h->next = handles;
	handles = h;
	pthread_mutex_unlock(&lock);
	*handle = h;
	return DNN_OK;
}

DNN_API int cudnnDestroy(void *handle);
int cudnnDestroy(void *handle)
{
	struct dnn_handle *h = handle;
	struct dnn_handle **link = &handles;
	int result;

	if (!h)
		return DNN_OK;
	if (!dnn_is_live(h) || h->magic != DNN_HANDLE_MAGIC)
		return DNN_BAD_PARAM;
	dnn_live_remove(h);
	pthread_mutex_lock(&lock);
	while (*link && *link != h)
		link = &(*link)->next;
	if (*link)
		*link = h->next;
	pthread_mutex_unlock(&lock);
	result = math_channel()->alive(h->id) ? math_channel()->destroy(h->id) : 0;
	give_back(h);
	return dnn_status(result);
}

DNN_API int cudnnSetStream(void *handle, void *stream);
int cudnnSetStream(void *handle, void *stream)
{
	struct dnn_handle *h = dnn_handle(handle);

	if (!h)
		return DNN_BAD_PARAM;
	pthread_mutex_lock(&h->lock);
	h->stream = stream;
	pthread_mutex_unlock(&h->lock);
	return DNN_OK;
}

DNN_API int cudnnGetStream(void *handle, void **stream);
int cudnnGetStream(void *handle, void **stream)
{
	struct dnn_handle *h = dnn_handle(handle);

	if (!h || !stream)
		return DNN_BAD_PARAM;
	pthread_mutex_lock(&h->lock);
	*stream = h->stream;
	pthread_mutex_unlock(&h->lock);
	return DNN_OK;
}
