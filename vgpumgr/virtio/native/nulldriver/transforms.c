/* SPDX-License-Identifier: Apache-2.0 */
/* cuFFT without arithmetic: plans are made and end, and all else succeeds at once. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, INVALID_SIZE = 8, AREA_BYTES = 4096 };

/* Plans that were made and have not ended. */
static atomic_ulong live;

API unsigned long null_transforms_live(void);
unsigned long null_transforms_live(void)
{
	return atomic_load(&live);
}

API int cufftCreate(int *plan);
int cufftCreate(int *plan)
{
	*plan = 1;
	atomic_fetch_add(&live, 1);
	return OK;
}

API int cufftDestroy(int plan);
int cufftDestroy(int plan)
{
	(void)plan;
	atomic_fetch_sub(&live, 1);
	return OK;
}

API int cufftGetProperty(int number, int *value);
int cufftGetProperty(int number, int *value)
{
	*value = number == 0 ? 12 : number == 1 ? 5 : 0;
	return OK;
}

/* Sizes are read, so that a sanitizer notices where they are not. */
static int read_sizes(int rank, const int64_t *n, const int64_t *in, const int64_t *out, size_t *bytes)
{
	int64_t sum = 0;

	for (int i = 0; i < rank; i++)
		sum += (n[i] ^ (in ? in[i] : 0) ^ (out ? out[i] : 0)) & 1;
	*bytes = AREA_BYTES;
	return sum < 0 || n[0] <= 0 ? INVALID_SIZE : OK;
}

static int read_short(int rank, const int *n, const int *in, const int *out, size_t *bytes)
{
	int64_t longer[3][3] = { { 0 } };

	for (int i = 0; i < rank; i++) {
		longer[0][i] = n[i];
		longer[1][i] = in ? in[i] : 0;
		longer[2][i] = out ? out[i] : 0;
	}
	return read_sizes(rank, longer[0], longer[1], longer[2], bytes);
}

#define DESCRIBED(verb)                                                                                                            \
	API int cufft##verb##1d(int plan, int nx, int type, int batch, size_t *bytes);                                             \
	int cufft##verb##1d(int plan, int nx, int type, int batch, size_t *bytes)                                                  \
	{                                                                                                                          \
		(void)plan, (void)type, (void)batch;                                                                               \
		return read_short(1, &nx, NULL, NULL, bytes);                                                                      \
	}                                                                                                                          \
	API int cufft##verb##Many(int plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride,   \
				  int out_distance, int type, int batch, size_t *bytes);                                           \
	int cufft##verb##Many(int plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride,       \
			      int out_distance, int type, int batch, size_t *bytes)                                                \
	{                                                                                                                          \
		(void)plan, (void)in_stride, (void)in_distance, (void)out_stride, (void)out_distance, (void)type, (void)batch;     \
		return read_short(rank, n, in, out, bytes);                                                                        \
	}                                                                                                                          \
	API int cufft##verb##Many64(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance,           \
				    int64_t *out, int64_t out_stride, int64_t out_distance, int type, int64_t batch,               \
				    size_t *bytes);                                                                                \
	int cufft##verb##Many64(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance, int64_t *out, \
				int64_t out_stride, int64_t out_distance, int type, int64_t batch, size_t *bytes)                  \
	{                                                                                                                          \
		(void)plan, (void)in_stride, (void)in_distance, (void)out_stride, (void)out_distance, (void)type, (void)batch;     \
		return read_sizes(rank, n, in, out, bytes);                                                                        \
	}
DESCRIBED(MakePlan)
DESCRIBED(GetSize)
