/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of libraries whose functions stand in a table (codec/blas_functions.h): their arguments as they travel, and back. */
#ifndef VGPUMGR_FAMILY_H
#define VGPUMGR_FAMILY_H

#include "blas_functions.h"

enum { FAMILY_BYTES = 2048, FAMILY_VALUES = 4096 };

struct family_frame {
	_Alignas(8) uint8_t bytes[FAMILY_BYTES];
	size_t length;
	bool answers;
};

/* Goes on with a hash: sizes and types decide what a library does, of addresses of matrices their alignment, and of an object of
 * cuSPARSE what it keeps, which is its word here. */
uint64_t family_kind(uint64_t kind, const struct blas_function *f, const uint64_t *words);
/* False: a value is of a type that there is not. */
bool family_pack(const struct blas_function *f, const uint64_t *words, bool on_device, struct family_frame *frame);
/* False: fewer values came than there are. */
bool family_unpack(const struct blas_function *f, const uint64_t *words, bool on_device, const uint8_t *values, size_t length);

#endif
