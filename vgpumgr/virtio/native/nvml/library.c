/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisation, and what is asked of the system as a whole. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nvml_guest.h"

static struct {
	pthread_mutex_t lock;
	unsigned int users; /* nvmlInit calls without their nvmlShutdown */
	bool watches_forks; /* no pthread_once: see transport/conn_open.c */
} library = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The connections are the parent's; a child has to initialise anew. */
static void fork_child(void)
{
	pthread_mutex_init(&library.lock, NULL); /* another thread of the parent may have held it */
	if (library.users)
		gpus_close();
	library.users = 0;
}

bool nvml_enter(void)
{
	pthread_mutex_lock(&library.lock);
	if (library.users)
		return true;
	pthread_mutex_unlock(&library.lock);
	return false;
}

void nvml_leave(void)
{
	pthread_mutex_unlock(&library.lock);
}

nvmlReturn_t nvml_not_offered(void)
{
	NVML_ENTER();
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvml_put_text(char *to, unsigned int length, const char *from)
{
	size_t need = strlen(from) + 1;

	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length < need)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(to, from, need);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	nvmlReturn_t status = NVML_SUCCESS;

	if (flags & ~(unsigned int)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH))
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&library.lock);
	if (!library.users)
		status = gpus_open();
	if (status == NVML_SUCCESS)
		library.users++;
	/* after the transport's own handler, which the first connection has registered */
	if (!library.watches_forks)
		library.watches_forks = !pthread_atfork(NULL, NULL, fork_child);
	pthread_mutex_unlock(&library.lock);
	return status;
}

nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	NVML_ENTER();
	if (!--library.users)
		gpus_close();
	return NVML_SUCCESS;
}

/* There is no driver of NVIDIA's in the guest: the version is vgpumgr's. */
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	NVML_ENTER();
	return nvml_put_text(version, length, VGPUMGR_VERSION);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	NVML_ENTER();
	return nvml_put_text(version, length, VGPUMGR_VERSION);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	NVML_ENTER();
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = gpus_cuda_version();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	return nvmlSystemGetCudaDriverVersion(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[32], text[4096] = "";
	size_t n;
	FILE *file;

	NVML_ENTER();
	if (!name || !length)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	file = fopen(path, "re");
	if (!file)
		return NVML_ERROR_NOT_FOUND;
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = '\0'; /* the first argument: the program */
	snprintf(name, length, "%s", text);
	return NVML_SUCCESS;
}
