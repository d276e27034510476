/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between the host and the device: the driver's, whose memory model is the library's. */
#include "blas.h"

/* CUDA_MEMCPY2D as in cuda.h, addresses of any kind. */
struct shape {
	size_t from_x, from_y;
	unsigned int from_type;
	const void *from_host;
	uint64_t from_device;
	void *from_array;
	size_t from_pitch, to_x, to_y;
	unsigned int to_type;
	void *to_host;
	uint64_t to_device;
	void *to_array;
	size_t to_pitch, width, rows;
};

enum { HOST = 1, DEVICE = 2 };

struct copy {
	const void *from;
	void *to;
	size_t from_pitch, to_pitch, width, rows;
	bool to_device;
};

static int run(const struct copy *c, void *stream, bool async)
{
	struct shape s = { .from_type = c->to_device ? HOST : DEVICE, .to_type = c->to_device ? DEVICE : HOST,
			   .from_pitch = c->from_pitch, .to_pitch = c->to_pitch, .width = c->width, .rows = c->rows };

	if (c->to_device)
		s.from_host = c->from, s.to_device = (uintptr_t)c->to;
	else
		s.from_device = (uintptr_t)c->from, s.to_host = c->to;
	return async ? math_channel()->copy_2d_async(&s, stream) : math_channel()->copy_2d(&s);
}

static int copy(const struct copy *c, void *stream, bool async)
{
	int result;

	if (!math_channel())
		return BLAS_NOT_INITIALIZED;
	if (!c->from || !c->to)
		return BLAS_INVALID_VALUE;
	if (!c->width || !c->rows)
		return BLAS_OK;
	result = run(c, stream, async);
	return result ? BLAS_MAPPING_ERROR : BLAS_OK;
}

struct matrix {
	int64_t rows, columns, size;
	const void *from;
	int64_t from_ld;
	void *to;
	int64_t to_ld;
};

static int copy_matrix(const struct matrix *m, bool to_device, void *stream, bool async)
{
	struct copy c;

	if (m->rows < 0 || m->columns < 0 || m->size <= 0 || m->from_ld < (m->rows ? m->rows : 1) ||
	    m->to_ld < (m->rows ? m->rows : 1))
		return BLAS_INVALID_VALUE;
	c = (struct copy){ m->from, m->to, (size_t)(m->from_ld * m->size), (size_t)(m->to_ld * m->size),
			   (size_t)(m->rows * m->size), (size_t)m->columns, to_device };
	return copy(&c, stream, async);
}

/* A vector is a matrix of one row, its elements apart by the increment. */
static int copy_vector(const struct matrix *m, bool to_device, void *stream, bool async)
{
	struct copy c;

	if (m->columns < 0 || m->size <= 0 || m->from_ld <= 0 || m->to_ld <= 0)
		return BLAS_INVALID_VALUE;
	c = (struct copy){ m->from, m->to, (size_t)(m->from_ld * m->size), (size_t)(m->to_ld * m->size), (size_t)m->size,
			   (size_t)m->columns, to_device };
	if (m->from_ld == 1 && m->to_ld == 1)
		c.width = c.from_pitch = c.to_pitch = (size_t)(m->columns * m->size), c.rows = 1;
	return copy(&c, stream, async);
}

#define MATRIX(name, suffix, type, to_device)                                                                              \
	BLAS_API int cublas##name##Matrix##suffix(type rows, type columns, type size, const void *from, type from_ld, void *to, \
						  type to_ld);                                                                 \
	int cublas##name##Matrix##suffix(type rows, type columns, type size, const void *from, type from_ld, void *to,         \
					 type to_ld)                                                                           \
	{                                                                                                                  \
		struct matrix m = { rows, columns, size, from, from_ld, to, to_ld };                                       \
		return copy_matrix(&m, to_device, NULL, false);                                                            \
	}                                                                                                                  \
	BLAS_API int cublas##name##MatrixAsync##suffix(type rows, type columns, type size, const void *from, type from_ld,     \
						       void *to, type to_ld, void *stream);                                    \
	int cublas##name##MatrixAsync##suffix(type rows, type columns, type size, const void *from, type from_ld, void *to,    \
					      type to_ld, void *stream)                                                        \
	{                                                                                                                  \
		struct matrix m = { rows, columns, size, from, from_ld, to, to_ld };                                       \
		return copy_matrix(&m, to_device, stream, true);                                                           \
	}                                                                                                                  \
	BLAS_API int cublas##name##Vector##suffix(type n, type size, const void *from, type from_step, void *to, type to_step); \
	int cublas##name##Vector##suffix(type n, type size, const void *from, type from_step, void *to, type to_step)          \
	{                                                                                                                  \
		struct matrix m = { 1, n, size, from, from_step, to, to_step };                                            \
		return copy_vector(&m, to_device, NULL, false);                                                            \
	}                                                                                                                  \
	BLAS_API int cublas##name##VectorAsync##suffix(type n, type size, const void *from, type from_step, void *to,          \
						       type to_step, void *stream);                                            \
	int cublas##name##VectorAsync##suffix(type n, type size, const void *from, type from_step, void *to, type to_step,     \
					      void *stream)                                                                    \
	{                                                                                                                  \
		struct matrix m = { 1, n, size, from, from_step, to, to_step };                                            \
		return copy_vector(&m, to_device, stream, true);                                                           \
	}

MATRIX(Set, , int, true)
MATRIX(Get, , int, false)
MATRIX(Set, _64, int64_t, true)
MATRIX(Get, _64, int64_t, false)
