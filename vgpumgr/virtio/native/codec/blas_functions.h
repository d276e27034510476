/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuBLAS as both ends of a channel know them: vgpumgr/virtio/spec/cublas.yaml. */
#ifndef VG_BLAS_FUNCTIONS_H
#define VG_BLAS_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "math_channel.h"
#include "vg_blas.h"

enum blas_kind {
	BLAS_OP, BLAS_FILL, BLAS_DIAG, BLAS_SIDE, BLAS_TYPE, BLAS_COMPUTE, BLAS_ALGO, /* enumerations */
	BLAS_INT, BLAS_LONG,
	BLAS_DEVICE,                        /* an address, passed on */
	BLAS_IN, BLAS_INOUT, BLAS_OUT,      /* values, where the pointer mode says */
	BLAS_HOST,                          /* an int on the host, written */
};

enum { BLAS_ARGUMENTS = 24, BLAS_VALUE = 16, BLAS_VALUES = 5, BLAS_BY_ARGUMENT = 0x80, BLAS_BY_SCALE = 0x7f };

struct blas_argument {
	uint8_t kind, size, count;          /* of a value: its bytes, or whose these are to say */
};

struct blas_function {
	uint64_t id;
	const char *name;
	unsigned int count;
	struct blas_argument arguments[BLAS_ARGUMENTS];
};

extern const struct blas_function blas_functions[BLAS_FUNCTIONS];

/* NULL: there is none. */
const struct blas_function *blas_find(uint64_t id);
/* Bytes of the argument's value; 0: it is none, or of a type that has none here. */
size_t blas_value_bytes(const struct blas_function *f, const uint64_t *words, unsigned int argument);
/* Whether the argument is a value that travels with the call, to the worker or back. */
static inline bool blas_is_sent(const struct blas_argument *a, bool on_device)
{
	return !on_device && (a->kind == BLAS_IN || a->kind == BLAS_INOUT);
}
static inline bool blas_is_returned(const struct blas_argument *a, bool on_device)
{
	return a->kind == BLAS_HOST || (!on_device && (a->kind == BLAS_INOUT || a->kind == BLAS_OUT));
}
/* What a value takes on the wire. */
static inline size_t blas_padded(size_t bytes)
{
	return (bytes + 7) / 8 * 8;
}

#endif
