/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The null driver: a libcuda.so.1 that answers at once. Objects and allocations are real enough that misuse is noticed
 * (a destroyed handle, a free of nothing, a copy outside an allocation aborts the process: the worker must never let
 * that through); device memory is host memory; a launch changes nothing. Host functions run on threads of their own, those
 * of a context one after another, and what synchronises waits for those of its context.
 *
 * Environment: VGPUMGR_NULL_FAIL=N makes the N-th call fail with CUDA_ERROR_UNKNOWN; VGPUMGR_NULL_FAIL_NAME=NAME[:CODE]
 * makes every call of that function fail, VGPUMGR_NULL_SLOW=NAME:MICROSECONDS makes it take that long. In a process that
 * is linked with it, null_fail_after() does the first.
 */
#ifndef VGPUMGR_NULL_BOOKS_H
#define VGPUMGR_NULL_BOOKS_H

#include <cuda.h>
#include <stdbool.h>

#define NULL_API __attribute__((visibility("default")))

enum null_kind { NULL_CONTEXT = 1, NULL_STREAM, NULL_EVENT, NULL_MODULE, NULL_POOL, NULL_GRAPH, NULL_NODE, NULL_GRAPH_EXEC, NULL_LINKER,
		 NULL_PHYSICAL, NULL_SPACE, NULL_ARRAY, NULL_MIPMAP, NULL_TEXTURE, NULL_SURFACE,
		 NULL_KINDS };

/* CUDA_SUCCESS, or what this call is to fail with. */
CUresult null_enter(const char *name);
#define ENTER                                                                                                          \
	do {                                                                                                           \
		CUresult result_ = null_enter(__func__);                                                               \
		if (result_ != CUDA_SUCCESS)                                                                           \
			return result_;                                                                                \
	} while (0)
/* Fails the n-th call from now on; 0: none. */
NULL_API void null_fail_after(unsigned int n);

void *null_object(enum null_kind kind);
void null_end(enum null_kind kind, void *object);
void null_check(enum null_kind kind, const void *object);
/* What ends with its owner, unless it is taken from it before. Of one owner, one thread at a time. */
void *null_owned(enum null_kind kind, void *owner);
void *null_owner(enum null_kind kind, const void *object);
void null_disown(void *object);
/* How many an owner has; the first of them. */
size_t null_list(const void *owner, void **list, size_t most);
/* What an object was marked with before. */
int null_mark(void *object, int mark);
int null_is_marked(const void *object);
/* Two words of the caller's that an object has. */
void **null_kept(void *object);
/* NULL is the default stream. */
void null_check_stream(CUstream stream);

void *null_memory(const void *context, size_t bytes);
const void *null_memory_context(CUdeviceptr address);
void null_memory_end(CUdeviceptr address);
void null_check_memory(CUdeviceptr address, size_t bytes);
/*
 * What is mapped: a copy may use it, too, and neighbours as one. Whether it is open is not asked: another thread may just
 * have closed it.
 */
bool null_span_add(CUdeviceptr address, size_t bytes);
/* Whether it was there: exactly that one. */
bool null_span_end(CUdeviceptr address, size_t bytes);
bool null_span_any(CUdeviceptr address, size_t bytes);
/* The one variable that each module has. */
enum { NULL_VARIABLE_BYTES = 64 };
CUdeviceptr null_variable(void *module);
CUresult null_host_function(void *context, CUhostFn function, void *data);
/* Until the context's host functions have returned. */
void null_wait(const void *context);
/* Objects and allocations that are there, for tests: nothing may be left. */
NULL_API unsigned long null_live(void);
/* Ends the process: the worker let something through that it must stop. */
void null_abort(const char *what) __attribute__((noreturn));

#endif
