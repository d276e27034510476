/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated cuDNN, inside: constants of its interface, objects that a program holds, and elements of all data types.
 *
 * It stands on the simulated cuBLAS's way to device memory and streams (../blas/blas.h): a call checks its arguments, copies
 * them into a piece of work and posts that. What a program passes as an object is searched for in a table first, so a stray
 * pointer gets an error.
 */
#ifndef VGPUMGR_SIM_DNN_H
#define VGPUMGR_SIM_DNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "blas.h"

#define DN_EXPORT __attribute__((visibility("default")))

/* cudnnStatus_t */
enum {
	DN_SUCCESS = 0,
	DN_NOT_INITIALIZED = 1001,
	DN_BAD_PARAM = 2000,
	DN_NULL_POINTER = 2002,
	DN_NOT_FINALIZED = 2004,
	DN_ATTRIBUTE_TYPE = 2010,
	DN_DESCRIPTOR_TYPE = 2012,
	DN_NOT_SUPPORTED = 3000,
	DN_BAD_SHAPE = 3002,
	DN_BAD_DATA_TYPE = 3003,
	DN_BAD_LAYOUT = 3004,
	DN_INTERNAL = 4000,
	DN_NO_HOST_MEMORY = 4003,
	DN_EXECUTION_FAILED = 5000,
};

/* cudnnDataType_t; DN_TYPES ends what the headers have, DN_IS_SIMULATED those that are computed */
enum {
	DN_FLOAT = 0,
	DN_DOUBLE = 1,
	DN_HALF = 2,
	DN_INT8 = 3,
	DN_INT32 = 4,
	DN_INT8X4 = 5,
	DN_UINT8 = 6,
	DN_UINT8X4 = 7,
	DN_INT8X32 = 8,
	DN_BFLOAT16 = 9,
	DN_INT64 = 10,
	DN_BOOLEAN = 11,
	DN_FAST_FLOAT_FOR_FP8 = 14,
	DN_TYPES = 22,
};

enum { DN_MAX_DIMS = 8 };

/* status.c */
/* Keeps the reason for cudnnGetLastErrorString, and is the status. */
int dn_fail(int status, const char *why);
/* A status of the part that is shared with the simulated cuBLAS. */
int dn_status(int blas_status);
const char *dn_status_name(int status);
const char *dn_last_error(void);

/* objects.c: everything that a program holds begins with a struct dn_object */
enum dn_kind {
	DN_HANDLE = 1,
	DN_BACKEND,
	DN_TENSOR,
	DN_FILTER,
	DN_ACTIVATION,
	DN_CONVOLUTION,
	DN_POOLING,
	DN_DROPOUT,
	DN_OPERATION,
	DN_REDUCTION,
};
struct dn_object {
	struct dn_object *next;
	enum dn_kind kind;
};
/* A new object of so many bytes, zeroed and in the table; NULL: no memory. */
void *dn_object_create(enum dn_kind kind, size_t bytes);
/* The object, if it is one of this kind. */
void *dn_object_find(const void *pointer, enum dn_kind kind);
/* Takes it out of the table and frees it, after the caller has let go of what it holds; false: there is none. */
bool dn_object_destroy(void *pointer, enum dn_kind kind);

/* handle.c */
struct dn_handle {
	struct dn_object object;
	CUstream stream;
};
/* The handle, with its context current. */
int dn_handle_enter(const void *pointer, struct dn_handle **out, struct bl_context **context);

/* element.c */
/* Bytes of an element by the interface, also of types that are not computed; 0: no type. */
size_t dn_type_bytes(int type);
/* Is it one of the types that are computed? */
bool dn_is_simulated(int type);
double dn_get(const void *array, int type, int64_t i);
void dn_put(void *array, int type, int64_t i, double value);

/* tensor.c: a tensor's elements in memory */
struct dn_tensor {
	int64_t uid;
	int type, nd;
	int64_t dims[DN_MAX_DIMS], strides[DN_MAX_DIMS];
	int64_t alignment;
	bool is_virtual, by_value;
};
int64_t dn_elements(const struct dn_tensor *t);
/* From the first element to the end of the last; 0 for none, -1: more than an address space. */
int64_t dn_bytes(const struct dn_tensor *t);
/* All elements in order of their indices, as doubles or as floats. */
void dn_pack(const struct dn_tensor *t, const void *data, bool wide, void *out);
/* data = alpha * in + beta * data */
void dn_unpack(const struct dn_tensor *t, void *data, bool wide, const void *in, double alpha, double beta);
/* Steps through the elements of a shape: the index, and where they are in tensors of the same rank. A dimension of 1 is repeated. */
struct dn_walk {
	int nd, n;
	int64_t dims[DN_MAX_DIMS], index[DN_MAX_DIMS];
	int64_t steps[4][DN_MAX_DIMS], at[4];
};
void dn_walk_begin(struct dn_walk *w, const struct dn_tensor *shape);
/* Its position is at[] in the order of the calls. */
void dn_walk_add(struct dn_walk *w, const struct dn_tensor *t);
bool dn_walk_next(struct dn_walk *w);

#endif
