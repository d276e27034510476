/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors by which processes share memory: files without a name that hold what the importer has to know, and that
 * nobody can change any more.
 */
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda_rules.h"

static const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

/* By its number: guests may have a C library that is older than the call. */
static int make_file(const char *name)
{
	return (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

int cuda_descriptor_make(const char *name, const void *what, size_t bytes)
{
	int file = make_file(name);

	if (file < 0)
		return -1;
	if (write(file, what, bytes) == (ssize_t)bytes && !fcntl(file, F_ADD_SEALS, seals))
		return file;
	close(file);
	return -1;
}

bool cuda_descriptor_read(int file, void *what, size_t bytes)
{
	return fcntl(file, F_GET_SEALS) == seals && lseek(file, 0, SEEK_END) == (off_t)bytes &&
	       pread(file, what, bytes, 0) == (ssize_t)bytes;
}

/* The only kind of handle that there is here; the others are of Windows, and of several hosts. */
static CUresult check_type(CUmemAllocationHandleType type)
{
	switch ((int)type) {
	case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
		return CUDA_SUCCESS;
	case CU_MEM_HANDLE_TYPE_WIN32:
	case CU_MEM_HANDLE_TYPE_WIN32_KMT:
	case CU_MEM_HANDLE_TYPE_FABRIC:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuda_check_export(const void *out, CUmemAllocationHandleType type, unsigned long long flags)
{
	return out && !flags ? check_type(type) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_check_import(const void *out, const void *handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = cuda_check_export(out, type, flags);

	return r == CUDA_SUCCESS && (uintptr_t)handle > INT32_MAX ? CUDA_ERROR_INVALID_VALUE : r;
}
