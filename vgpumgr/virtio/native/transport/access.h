/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only code that reads or writes memory which the other side may be changing. Every access is one load or store of
 * a fixed width: compilers may split or repeat plain ones (XSA-155), and a value fetched twice is two values.
 */
#ifndef VG_ACCESS_H
#define VG_ACCESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Words of the shared memory. */
typedef _Atomic(uint32_t) vg_word32;
typedef _Atomic(uint64_t) vg_word64;
_Static_assert(sizeof(vg_word32) == 4 && sizeof(vg_word64) == 8, "words have no lock inside");

static inline uint32_t vg_load32(const vg_word32 *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

static inline uint64_t vg_load64(const vg_word64 *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

static inline void vg_store32(vg_word32 *word, uint32_t value)
{
	atomic_store_explicit(word, value, memory_order_release);
}

static inline void vg_store64(vg_word64 *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_release);
}

/* Orders a store before a later load: publish, then look whether the other side sleeps (and the reverse). */
static inline void vg_full_fence(void)
{
#ifdef __SANITIZE_THREAD__ /* which knows no fences */
	static vg_word32 anything;

	atomic_fetch_add(&anything, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Eight bytes at a time, each fetched once; size is a multiple of 8, both sides aligned. For headers. */
static inline void vg_fetch(void *to, const void *shared, size_t size)
{
	const vg_word64 *from = shared;
	uint64_t *words = to;

	for (size_t i = 0; i < size / 8; i++)
		words[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
}

/* Copies payload out; the barrier keeps the compiler from going back to the source. Only the copy may be looked at. */
static inline void vg_copy_in(void *to, const void *shared, size_t size)
{
	if (size)
		memcpy(to, shared, size);
	__asm__ volatile("" ::: "memory");
}

static inline void vg_copy_out(void *shared, const void *from, size_t size)
{
	if (size) /* memcpy from nowhere is undefined, of nothing, too */
		memcpy(shared, from, size);
	__asm__ volatile("" ::: "memory");
}

static inline void vg_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
