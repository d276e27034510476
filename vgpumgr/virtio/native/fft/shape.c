/* SPDX-License-Identifier: Apache-2.0 */
/* What functions are called with, as it travels. */
#include <string.h>

#include "fft.h"

/* cufftType */
enum { C2C = 0x29, R2C = 0x2a, C2R = 0x2c, Z2Z = 0x69, D2Z = 0x6a, Z2D = 0x6c };
/* cudaDataType */
enum { REAL = 0, DOUBLE = 1, COMPLEX = 4, DOUBLE_COMPLEX = 5 };

struct fft_shape fft_typed(enum fft_way way, int type, int64_t batch)
{
	return (struct fft_shape){ .way = way, .type = (uint64_t)type, .batch = batch };
}

struct fft_shape fft_flat(enum fft_way way, const int *n, int type, int batch)
{
	struct fft_shape s = fft_typed(way, type, batch);

	s.rank = way == FFT_1D ? 1 : way == FFT_2D ? 2 : 3;
	for (uint64_t i = 0; i < s.rank; i++)
		s.n[i] = n[i];
	return s;
}

bool fft_many(struct fft_shape *s, int rank, const int *n, const int *in, const int *out)
{
	if (rank < 1 || rank > FFT_RANK || !n)
		return false;
	s->rank = (uint64_t)rank;
	s->in.given = in != NULL;
	s->out.given = out != NULL;
	for (int i = 0; i < rank; i++) {
		s->n[i] = n[i];
		s->in.embed[i] = in ? in[i] : 0;
		s->out.embed[i] = out ? out[i] : 0;
	}
	return true;
}

bool fft_many_64(struct fft_shape *s, int rank, const int64_t *n, const int64_t *in, const int64_t *out)
{
	if (rank < 1 || rank > FFT_RANK || !n)
		return false;
	s->rank = (uint64_t)rank;
	s->in.given = in != NULL;
	s->out.given = out != NULL;
	for (int i = 0; i < rank; i++) {
		s->n[i] = n[i];
		s->in.embed[i] = in ? in[i] : 0;
		s->out.embed[i] = out ? out[i] : 0;
	}
	return true;
}

void fft_strides(struct fft_shape *s, int64_t in_stride, int64_t in_distance, int64_t out_stride, int64_t out_distance)
{
	s->in.stride = in_stride;
	s->in.distance = in_distance;
	s->out.stride = out_stride;
	s->out.distance = out_distance;
}

static uint64_t type_of(const struct fft_shape *s)
{
	static const struct {
		unsigned int in, out, type;
	} types[] = { { COMPLEX, COMPLEX, C2C }, { REAL, COMPLEX, R2C }, { COMPLEX, REAL, C2R },
		      { DOUBLE_COMPLEX, DOUBLE_COMPLEX, Z2Z }, { DOUBLE, DOUBLE_COMPLEX, D2Z }, { DOUBLE_COMPLEX, DOUBLE, Z2D } };

	if (s->way != FFT_XT)
		return s->type;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].in == s->in.type && types[i].out == s->out.type)
			return types[i].type;
	return 0;
}

unsigned int fft_suits(const struct fft_shape *s)
{
	const unsigned int any = 1u << FFT_XT_EXEC;

	switch (type_of(s)) {
	case C2C:
		return any | 1u << FFT_C2C;
	case R2C:
		return any | 1u << FFT_R2C;
	case C2R:
		return any | 1u << FFT_C2R;
	case Z2Z:
		return any | 1u << FFT_Z2Z;
	case D2Z:
		return any | 1u << FFT_D2Z;
	case Z2D:
		return any | 1u << FFT_Z2D;
	default:
		return any;
	}
}

uint64_t fft_kind(const struct fft_shape *s)
{
	uint64_t words[sizeof(*s) / sizeof(uint64_t)], kind = FFT_EXECUTE;

	memcpy(words, s, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		kind = math_hash(kind, words[i]);
	return kind;
}
