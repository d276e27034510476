/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong: codes, their texts, and the last sentence. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[2 * SG_TEXT];

static bool is_verbose(void)
{
	const char *debug = getenv("NCCL_DEBUG");

	return debug && (!strcasecmp(debug, "WARN") || !strcasecmp(debug, "INFO") || !strcasecmp(debug, "TRACE"));
}

static void free_in_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	sg_forget();
}

__attribute__((constructor)) static void prepare_for_fork(void)
{
	pthread_atfork(NULL, NULL, free_in_child);
}

ncclResult_t nccl_error(ncclResult_t result, const char *format, ...)
{
	char text[sizeof(last)];
	va_list words;

	va_start(words, format);
	vsnprintf(text, sizeof(text), format, words);
	va_end(words);
	pthread_mutex_lock(&lock);
	memcpy(last, text, sizeof(last));
	pthread_mutex_unlock(&lock);
	if (is_verbose())
		fprintf(stderr, "vgpumgr: NCCL: %s\n", text);
	return result;
}

ncclResult_t nccl_cuda_error(CUresult result, const char *what)
{
	const char *name = "an error";

	if (cuda_load())
		cu.cuGetErrorName(result, &name);
	return nccl_error(ncclUnhandledCudaError, "%s: %s", what, name);
}

int nccl_unsupported(const char *name, atomic_flag *said)
{
	math_refuse(name, said);
	return nccl_error(ncclInvalidUsage, "%s is not supported over a forwarded GPU", name);
}

NCCL_API const char *ncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[ncclNumResults] = {
		"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument",
		"invalid usage", "remote process exited or there was a network error", "NCCL operation in progress",
		"timeout",
	};

	return (unsigned int)result < ncclNumResults ? texts[result] : "unknown result code";
}

NCCL_API const char *ncclGetLastError(ncclComm_t comm)
{
	static __thread char text[sizeof(last)];

	(void)comm; /* documented: of any communicator */
	pthread_mutex_lock(&lock);
	memcpy(text, last, sizeof(text));
	pthread_mutex_unlock(&lock);
	return text;
}

NCCL_PROFILED(ncclGetErrorString);
NCCL_PROFILED(ncclGetLastError);
