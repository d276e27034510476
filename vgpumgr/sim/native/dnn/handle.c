/* SPDX-License-Identifier: Apache-2.0 */
/* The library's version, handles, and what is asked of errors. */
#include <stdio.h>

#include "exports.h"

static const int cudart_version = 13030;

size_t cudnnGetVersion(void)
{
	return DN_VERSION;
}

size_t cudnnGetCudartVersion(void)
{
	return (size_t)cudart_version;
}

/* CUDNN_MAX_DEVICE_VERSION: the newest architecture that the library knows. */
size_t cudnnGetMaxDeviceVersion(void)
{
	return 1210;
}

/* All parts of the library are this one, so they always belong together. */
int cudnnGraphVersionCheck(void)
{
	return DN_SUCCESS;
}

int cudnnOpsVersionCheck(void)
{
	return DN_SUCCESS;
}

int cudnnCnnVersionCheck(void)
{
	return DN_SUCCESS;
}

int cudnnAdvVersionCheck(void)
{
	return DN_SUCCESS;
}

/* MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL */
int cudnnGetProperty(int type, int *value)
{
	if (!value || type < 0 || type > 2)
		return dn_fail(DN_BAD_PARAM, "no such property");
	*value = type == 0 ? DN_VERSION / 10000 : type == 1 ? DN_VERSION / 100 % 100 : DN_VERSION % 100;
	return DN_SUCCESS;
}

const char *cudnnGetErrorString(int status)
{
	return dn_status_name(status);
}

void cudnnGetLastErrorString(char *message, size_t bytes)
{
	if (message && bytes)
		snprintf(message, bytes, "%s", dn_last_error());
}

int cudnnCreate(void **handle)
{
	struct bl_context *context;
	int status;

	if (!handle)
		return dn_fail(DN_BAD_PARAM, "no place for the handle");
	*handle = NULL;
	status = dn_status(bl_context_current(&context));
	if (status != DN_SUCCESS)
		return status;
	*handle = dn_object_create(DN_HANDLE, sizeof(struct dn_handle));
	return *handle ? DN_SUCCESS : dn_fail(DN_NO_HOST_MEMORY, "no memory for a handle");
}

int cudnnDestroy(void *handle)
{
	return !handle || dn_object_destroy(handle, DN_HANDLE) ? DN_SUCCESS : dn_fail(DN_BAD_PARAM, "no handle");
}

int cudnnSetStream(void *handle, void *stream)
{
	struct dn_handle *h = dn_object_find(handle, DN_HANDLE);

	if (!h)
		return dn_fail(DN_BAD_PARAM, "no handle");
	h->stream = stream;
	return DN_SUCCESS;
}

int cudnnGetStream(void *handle, void **stream)
{
	struct dn_handle *h = dn_object_find(handle, DN_HANDLE);

	if (!h || !stream)
		return dn_fail(DN_BAD_PARAM, "no handle, or no place for the stream");
	*stream = h->stream;
	return DN_SUCCESS;
}

/* Numerical errors that only show on the device: there are none here. */
int cudnnQueryRuntimeError(void *handle, int *status, int mode, void *tag)
{
	(void)tag;
	if (!dn_object_find(handle, DN_HANDLE) || !status || mode < 0 || mode > 2)
		return dn_fail(DN_BAD_PARAM, "no handle, no place for the status, or no such mode");
	*status = DN_SUCCESS;
	return DN_SUCCESS;
}

int dn_handle_enter(const void *pointer, struct dn_handle **out, struct bl_context **context)
{
	*out = dn_object_find(pointer, DN_HANDLE);
	if (!*out)
		return dn_fail(DN_BAD_PARAM, "no handle");
	return dn_status(bl_context_current(context));
}
