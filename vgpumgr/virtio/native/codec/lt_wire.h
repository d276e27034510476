/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of cuBLASLt travels: descriptors as lists of the attributes that were set, each a word with the attribute and its
 * bytes and a word with its value, behind a word with their number. All else is words in the order given here.
 */
#ifndef VG_LT_WIRE_H
#define VG_LT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/* descriptor, layouts A B C D; alpha and beta, two words each: values on the host, or an address; A B C D; workspace and
	 * its bytes; 1 and the algorithm's words, or 0 */
	LT_MATMUL = 1,
	/* descriptor, layouts A B C D, preference; how many are wanted. Gives back their number and the results */
	LT_HEURISTIC,
	/* types: compute, scale, A, B, C, D; the algorithm's id. Gives back the algorithm */
	LT_ALGO_INIT,
	/* descriptor, layouts A B C D; the algorithm. Gives back a result */
	LT_ALGO_CHECK,
	/* types as above; how many are wanted. Gives back their number and the ids, a word each */
	LT_ALGO_IDS,
	/* the algorithm, an attribute, bytes of room. Gives back bytes written and the value */
	LT_ALGO_CAP,
	/* the same of its configuration */
	LT_ALGO_CONFIG,
	/* the algorithm, an attribute, bytes and the value's word. Gives back the algorithm */
	LT_ALGO_SET,
	/* descriptor, layouts A B C; alpha and beta as above; A B C */
	LT_TRANSFORM,
	LT_FUNCTIONS,
};

enum { LT_ALGO_WORDS = 8, LT_RESULT_WORDS = 12, LT_ATTRIBUTES = 24, LT_RESULTS = 40, LT_IDS = 400, LT_CAP_BYTES = 2048 };

/* Attributes of descriptors by number, as in cublasLt.h. */
enum { LT_DESC_COMPUTE = 0, LT_DESC_SCALE = 1, LT_DESC_POINTER_MODE = 2 };
enum { LT_LAYOUT_TYPE = 0, LT_LAYOUT_ROWS = 2, LT_LAYOUT_COLS = 3, LT_LAYOUT_LD = 4 };
enum { LT_TRANSFORM_SCALE = 0, LT_TRANSFORM_POINTER_MODE = 1 };
/* cublasLtPointerMode_t */
enum { LT_MODE_HOST, LT_MODE_DEVICE, LT_MODE_DEVICE_VECTOR, LT_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO,
       LT_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST };

enum lt_object_kind { LT_DESCRIPTOR = 1, LT_LAYOUT, LT_PREFERENCE, LT_TRANSFORMATION };

/* Bytes of an attribute, as cublasLt.h says; 0: not known here, and so not supported. */
size_t lt_attribute_bytes(enum lt_object_kind kind, uint32_t number);
/* Whether it is an address on the device. */
bool lt_is_address(enum lt_object_kind kind, uint32_t number);

#endif
