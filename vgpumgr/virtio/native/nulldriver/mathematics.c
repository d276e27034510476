/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS and cuBLASLt without arithmetic: handles and descriptors are made, and all else succeeds at once. */
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

MAKES(cublasCreate_v2)
MAKES(cublasLtCreate)
MAKES(cublasLtMatmulDescCreate)
MAKES(cublasLtMatrixLayoutCreate)
MAKES(cublasLtMatmulPreferenceCreate)
MAKES(cublasLtMatrixTransformDescCreate)
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
