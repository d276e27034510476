/* SPDX-License-Identifier: Apache-2.0 */
/* Words of arguments, with the values that are on the host behind them. */
#include <string.h>

#include "family.h"
#include "guest_math.h"

/* BUFFER_ALIGNMENT: documented for cusparse<t>bsrsv2_analysis and its kin. */
enum { ALIGNMENT = 16, BUFFER_ALIGNMENT = 128 };

static uint64_t kind_of_value(const void *value, size_t bytes, uint64_t kind)
{
	uint64_t word;

	for (size_t i = 0; value && i + sizeof(word) <= bytes; i += sizeof(word)) {
		memcpy(&word, (const uint8_t *)value + i, sizeof(word));
		kind = math_hash(kind, word);
	}
	return kind;
}

/* What decides whether the library does something with the argument. */
static uint64_t kind_of_word(enum blas_kind what, uint64_t word)
{
	if (what < BLAS_DEVICE || (what >= BLAS_SPGEMM && what <= BLAS_BSRSM2))
		return word;
	if (word && (what == BLAS_DEVICE || what == BLAS_BUFFER))
		return 1 + word % (what == BLAS_BUFFER ? BUFFER_ALIGNMENT : ALIGNMENT);
	return word != 0;
}

uint64_t family_kind(uint64_t kind, const struct blas_function *f, const uint64_t *words)
{
	for (unsigned int i = 0; i < f->count; i++) {
		enum blas_kind what = f->arguments[i].kind;

		kind = math_hash(kind, kind_of_word(what, words[i]));
		if (what >= BLAS_SYEVJ)
			kind = kind_of_value((const void *)words[i], f->arguments[i].size, kind);
	}
	return kind;
}

bool family_pack(const struct blas_function *f, const uint64_t *words, bool on_device, struct family_frame *frame)
{
	memcpy(frame->bytes, words, f->count * sizeof(*words));
	frame->length = f->count * sizeof(*words);
	frame->answers = false;
	for (unsigned int i = 0; i < f->count; i++) {
		const struct blas_argument *a = &f->arguments[i];
		size_t bytes;

		if (!blas_is_sent(a, on_device) && !blas_is_returned(a, on_device))
			continue;
		bytes = blas_value_bytes(f, words, i);
		frame->answers |= blas_is_returned(a, on_device);
		if (!bytes)
			return false;
		if (!blas_is_sent(a, on_device))
			continue;
		memset(frame->bytes + frame->length, 0, blas_padded(bytes));
		if (words[i])
			memcpy(frame->bytes + frame->length, (const void *)words[i], bytes);
		frame->length += blas_padded(bytes);
	}
	return true;
}

bool family_unpack(const struct blas_function *f, const uint64_t *words, bool on_device, const uint8_t *values, size_t length)
{
	for (unsigned int i = 0; i < f->count; i++) {
		size_t bytes = blas_value_bytes(f, words, i), padded = blas_padded(bytes);

		if (!blas_is_returned(&f->arguments[i], on_device))
			continue;
		if (padded > length)
			return false;
		if (words[i])
			memcpy((void *)words[i], values, bytes);
		values += padded;
		length -= padded;
	}
	return true;
}
