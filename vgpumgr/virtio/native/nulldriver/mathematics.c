/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLAS and cuBLASLt without arithmetic: handles and descriptors are made, and all else succeeds at once. Scalars that a
 * descriptor says to be on the host are read, so that a sanitizer notices where they are not.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, INVALID_VALUE = 7, ALGO_BYTES = 64, RESULT_BYTES = 96 };

static int make(void **object)
{
	*object = malloc(1);
	return *object ? OK : INVALID_VALUE;
}

#define MAKES(name, ...)          \
	API int name(void **object, ##__VA_ARGS__); \
	int name(void **object, ##__VA_ARGS__)  \
	{                         \
		return make(object); \
	}
#define ENDS(name)                \
	API int name(void *object); \
	int name(void *object)    \
	{                         \
		free(object);     \
		return OK;        \
	}

MAKES(cublasLtCreate)
MAKES(cublasLtMatrixLayoutCreate)
MAKES(cublasLtMatmulPreferenceCreate)
/* Of a handle its pointer mode is kept, of a product or a transformation the attribute that is its. */
static int make_descriptor(void **object)
{
	*object = calloc(1, sizeof(int));
	return *object ? OK : INVALID_VALUE;
}

API int cublasCreate_v2(void **object);
int cublasCreate_v2(void **object)
{
	return make_descriptor(object);
}

API int cublasSetPointerMode_v2(void *handle, int mode);
int cublasSetPointerMode_v2(void *handle, int mode)
{
	memcpy(handle, &mode, sizeof(mode));
	return OK;
}

/* A cuDoubleComplex on the host is aligned to 16 bytes, and NVIDIA's code may load it as that. */
static int load_scalar(const void *handle, const void *value)
{
	int mode;

	memcpy(&mode, handle, sizeof(mode));
	if (!mode && (uintptr_t)value % 16)
		abort();
	return OK;
}

/* The scalar is the second argument, and the sixth. */
API int cublasZscal_v2(void *handle, int n, const void *alpha, void *x, int increment);
int cublasZscal_v2(void *handle, int n, const void *alpha, void *x, int increment)
{
	(void)n, (void)x, (void)increment;
	return load_scalar(handle, alpha);
}

API int cublasZgemm_v2(void *handle, int a_operation, int b_operation, int m, int n, int k, const void *alpha, const void *a);
int cublasZgemm_v2(void *handle, int a_operation, int b_operation, int m, int n, int k, const void *alpha, const void *a)
{
	(void)a_operation, (void)b_operation, (void)m, (void)n, (void)k, (void)a;
	return load_scalar(handle, alpha);
}

API int cublasLtMatmulDescCreate(void **object, int compute, int scale);
int cublasLtMatmulDescCreate(void **object, int compute, int scale)
{
	(void)compute, (void)scale;
	return make_descriptor(object);
}

API int cublasLtMatrixTransformDescCreate(void **object, int scale);
int cublasLtMatrixTransformDescCreate(void **object, int scale)
{
	(void)scale;
	return make_descriptor(object);
}

API int cublasLtMatmulDescSetAttribute(void *object, int number, const void *value, size_t bytes);
int cublasLtMatmulDescSetAttribute(void *object, int number, const void *value, size_t bytes)
{
	if (number == 2 && bytes == sizeof(int))
		memcpy(object, value, sizeof(int));
	return OK;
}

API int cublasLtMatrixTransformDescSetAttribute(void *object, int number, const void *value, size_t bytes);
int cublasLtMatrixTransformDescSetAttribute(void *object, int number, const void *value, size_t bytes)
{
	if (number == 1 && bytes == sizeof(int))
		memcpy(object, value, sizeof(int));
	return OK;
}

/* As cublasLtPointerMode_t: 0 both are on the host, 4 the second one is. */
static int read_scalars(const void *descriptor, const void *alpha, const void *beta)
{
	int mode;

	memcpy(&mode, descriptor, sizeof(mode));
	if (mode == 0 && !*(const volatile char *)alpha)
		return OK;
	if ((mode == 0 || mode == 4) && !*(const volatile char *)beta)
		return OK;
	return mode < 0 || mode > 4 ? INVALID_VALUE : OK;
}

API int cublasLtMatmul(void *handle, void *descriptor, const void *alpha, const void *a, void *a_layout, const void *b,
		       void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const void *algo,
		       void *workspace, size_t bytes, void *stream);
int cublasLtMatmul(void *handle, void *descriptor, const void *alpha, const void *a, void *a_layout, const void *b,
		   void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const void *algo,
		   void *workspace, size_t bytes, void *stream)
{
	(void)handle, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)c, (void)c_layout, (void)d, (void)d_layout;
	(void)algo, (void)workspace, (void)bytes, (void)stream;
	return read_scalars(descriptor, alpha, beta);
}

API int cublasLtMatrixTransform(void *handle, void *descriptor, const void *alpha, const void *a, void *a_layout,
				const void *beta, const void *b, void *b_layout, void *c, void *c_layout, void *stream);
int cublasLtMatrixTransform(void *handle, void *descriptor, const void *alpha, const void *a, void *a_layout, const void *beta,
			    const void *b, void *b_layout, void *c, void *c_layout, void *stream)
{
	(void)handle, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)c, (void)c_layout, (void)stream;
	return read_scalars(descriptor, alpha, beta);
}

ENDS(cublasDestroy_v2)
ENDS(cublasLtDestroy)
ENDS(cublasLtMatmulDescDestroy)
ENDS(cublasLtMatrixLayoutDestroy)
ENDS(cublasLtMatmulPreferenceDestroy)
ENDS(cublasLtMatrixTransformDescDestroy)

static int property(int number, int *value)
{
	*value = number == 0 ? 13 : number == 1 ? 10 : 0;
	return OK;
}

API int cublasGetProperty(int number, int *value);
int cublasGetProperty(int number, int *value)
{
	return property(number, value);
}

API int cublasLtGetProperty(int number, int *value);
int cublasLtGetProperty(int number, int *value)
{
	return property(number, value);
}

API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
				       void *results, int *count);
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
				   void *results, int *count)
{
	(void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference;
	memset(results, 0, (size_t)wanted * RESULT_BYTES);
	*count = wanted;
	return OK;
}

API int cublasLtMatmulAlgoGetIds(void *handle, int compute, int scale, int a, int b, int c, int d, int wanted, int *ids, int *count);
int cublasLtMatmulAlgoGetIds(void *handle, int compute, int scale, int a, int b, int c, int d, int wanted, int *ids, int *count)
{
	(void)handle, (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
	for (int i = 0; i < wanted; i++)
		ids[i] = i;
	*count = wanted;
	return OK;
}

static int tell(void *value, size_t bytes, size_t *written)
{
	if (value)
		memset(value, 0, bytes);
	*written = sizeof(int);
	return OK;
}

API int cublasLtMatmulAlgoCapGetAttribute(const void *algo, int number, void *value, size_t bytes, size_t *written);
int cublasLtMatmulAlgoCapGetAttribute(const void *algo, int number, void *value, size_t bytes, size_t *written)
{
	(void)algo, (void)number;
	return tell(value, bytes, written);
}

API int cublasLtMatmulAlgoConfigGetAttribute(const void *algo, int number, void *value, size_t bytes, size_t *written);
int cublasLtMatmulAlgoConfigGetAttribute(const void *algo, int number, void *value, size_t bytes, size_t *written)
{
	(void)algo, (void)number;
	return tell(value, bytes, written);
}
