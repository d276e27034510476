/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuBLAS, cuSOLVER and cuSPARSE as both ends of a channel know them: vgpumgr/virtio/spec/. */
#ifndef VG_BLAS_FUNCTIONS_H
#define VG_BLAS_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "math_channel.h"
#include "vg_blas.h"
#include "vg_solver.h"
#include "vg_sparse.h"

enum blas_kind {
	BLAS_OP, BLAS_FILL, BLAS_DIAG, BLAS_SIDE, BLAS_EIG, BLAS_TYPE, BLAS_COMPUTE, BLAS_ALGO, /* enumerations */
	BLAS_INT, BLAS_LONG, BLAS_CHAR, BLAS_SIZE,
	BLAS_PARAMS,                        /* of cuSOLVER: what they are set to is the word, see solver_params */
	BLAS_DESCR,                         /* of cuSPARSE: the same, see SPARSE_DESCR */
	BLAS_DEVICE,                        /* an address, passed on */
	BLAS_BUFFER,                        /* that of a work area of cuSPARSE's */
	BLAS_IN, BLAS_INOUT, BLAS_OUT,      /* values, where the pointer mode says */
	BLAS_HOST,                          /* a value on the host, written */
	BLAS_SCRATCH,                       /* a work area on the host: the next argument has its bytes */
	BLAS_SYEVJ, BLAS_GESVDJ,            /* an object, and with it struct solver_settings where it is used */
	BLAS_SPGEMM, BLAS_SPSV, BLAS_SPSM, BLAS_BSRSV2, BLAS_BSRSM2, /* an object of cuSPARSE */
	BLAS_EXCHANGE,                      /* a value on the host, read and written */
	BLAS_SPMAT, BLAS_MADE, BLAS_DNMAT, BLAS_DNVEC, BLAS_SPVEC, /* descriptors (sparse_wire.h); of BLAS_MADE entries are counted */
};

/* math_make of cuSOLVER: an object that is kept. */
enum { SOLVER_SYEVJ = 1, SOLVER_GESVDJ = 2 };

/* What an object is set to: a bit for each that is set, 1 the tolerance, 2 the sweeps, 4 the order. */
struct solver_settings {
	uint64_t set;
	double tolerance;
	int64_t sweeps, sort;
};

/* Of cusolverDnParams_t: that they are given, and 8 bits with the algorithm for each function. */
#define SOLVER_PARAMS (1ull << 63)
enum { SOLVER_TUNED = 7, SOLVER_ALGORITHMS = 3 };

/* What the worker lends a call on the host, at most. */
#define SOLVER_SCRATCH (256ull << 20)

enum { BLAS_ARGUMENTS = 24, BLAS_VALUE = 16, BLAS_VALUES = 5, BLAS_BY_ARGUMENT = 0x80, BLAS_BY_SCALE = 0x7f,
       BLAS_ROOM = 112 /* of one argument's, at most */ };

_Static_assert(BLAS_ROOM % 16 == 0, "a cuDoubleComplex of each argument is aligned as its type is");

struct blas_argument {
	uint8_t kind, size, count;          /* of a value: its bytes, or whose these are to say */
};

/* What a function does beside what its arguments say. BLAS_MEASURES: it tells a work area's size, and uses no stream.
 * BLAS_PREPARES: what its object keeps is another afterwards. */
enum blas_role { BLAS_WORKS, BLAS_MEASURES, BLAS_PREPARES };

struct blas_function {
	uint64_t id;
	const char *name;
	enum blas_role role;
	unsigned int count;
	struct blas_argument arguments[BLAS_ARGUMENTS];
};

extern const struct blas_function blas_functions[BLAS_FUNCTIONS];
extern const struct blas_function solver_functions[SOLVER_FUNCTIONS];
extern const struct blas_function sparse_functions[SPARSE_FUNCTIONS];

/* Of one of the tables. NULL: there is none. */
const struct blas_function *blas_find(const struct blas_function *functions, unsigned int count, uint64_t id);
/* Bytes of the argument's value; 0: it is none, or of a type that has none here. */
size_t blas_value_bytes(const struct blas_function *f, const uint64_t *words, unsigned int argument);
/* Whether the argument is a value that travels with the call, to the worker or back. */
static inline bool blas_is_sent(const struct blas_argument *a, bool on_device)
{
	return (!on_device && (a->kind == BLAS_IN || a->kind == BLAS_INOUT)) || (a->kind >= BLAS_SYEVJ && a->size);
}
static inline bool blas_is_returned(const struct blas_argument *a, bool on_device)
{
	return a->kind == BLAS_HOST || a->kind == BLAS_EXCHANGE || a->kind == BLAS_MADE || (!on_device && (a->kind == BLAS_INOUT || a->kind == BLAS_OUT));
}
/* Whether it is named by its handle, and kept in the session. */
static inline bool blas_is_object(const struct blas_argument *a)
{
	return a->kind >= BLAS_SYEVJ && a->kind <= BLAS_BSRSM2;
}
/* What a value takes on the wire. */
static inline size_t blas_padded(size_t bytes)
{
	return (bytes + 7) / 8 * 8;
}

#endif
