/* SPDX-License-Identifier: Apache-2.0 */
#include "blas_functions.h"

/* By cudaDataType, as in library_types.h: bytes of one value; 0: not whole bytes, or unknown. */
static const uint8_t type_bytes[] = {
	[0] = 4, [1] = 8, [2] = 2, [3] = 1, [4] = 8, [5] = 16, [6] = 4, [7] = 2, [8] = 1, [9] = 2, [10] = 4, [11] = 8,
	[12] = 4, [13] = 8, [14] = 2, [15] = 4, [20] = 2, [21] = 4, [22] = 2, [23] = 4, [24] = 8, [25] = 16, [26] = 8,
	[27] = 16, [28] = 1, [29] = 1,
};

static size_t bytes_of_type(uint64_t type)
{
	return type < sizeof(type_bytes) ? type_bytes[type] : 0;
}

static bool is_complex(uint64_t type)
{
	return type == 4 || type == 5 || type == 6 || type == 15;
}

/* By cublasComputeType_t, as in cublas_api.h: of a real value. */
static size_t bytes_of_compute(uint64_t compute)
{
	switch (compute) {
	case 64: case 65:
		return 2;
	case 70: case 71: case 79:
		return 8;
	case 68: case 69: case 72: case 73: case 74: case 75: case 77: case 78:
		return 4;
	default:
		return 0;
	}
}

/* Of alpha and beta: as the product is computed, and complex where it is. */
static size_t bytes_of_scale(const struct blas_function *f, const uint64_t *words)
{
	size_t bytes = 0;
	bool complex = false;

	for (unsigned int i = 0; i < f->count; i++) {
		if (f->arguments[i].kind == BLAS_COMPUTE)
			bytes = bytes_of_compute(words[i]);
		if (f->arguments[i].kind == BLAS_TYPE) /* the last is that of the result */
			complex = is_complex(words[i]);
	}
	return complex ? 2 * bytes : bytes;
}

size_t blas_value_bytes(const struct blas_function *f, const uint64_t *words, unsigned int argument)
{
	const struct blas_argument *a = &f->arguments[argument];
	size_t bytes = a->size;

	if (bytes & BLAS_BY_ARGUMENT)
		bytes = bytes_of_type(words[bytes & ~BLAS_BY_ARGUMENT]);
	else if (bytes == BLAS_BY_SCALE)
		bytes = bytes_of_scale(f, words);
	return bytes * a->count;
}

const struct blas_function *blas_find(const struct blas_function *functions, unsigned int count, uint64_t id)
{
	unsigned int low = 0, high = count;

	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (functions[middle].id == id)
			return &functions[middle];
		if (functions[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}
