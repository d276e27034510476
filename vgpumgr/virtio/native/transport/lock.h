/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock in one word, taken and given back by one atomic operation each where nobody waits, and without a call into
 * the C library: a forwarded call is little more than a hundred instructions, and a mutex would be half of them again.
 * Not for memory that the other side sees. 0: free; 1: taken; 2: taken, and somebody sleeps.
 */
#ifndef VG_LOCK_H
#define VG_LOCK_H

#include <linux/futex.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "access.h"

__attribute__((cold, noinline)) static void vg_lock_wait(vg_word32 *lock)
{
	while (atomic_exchange_explicit(lock, 2, memory_order_acquire))
		syscall(SYS_futex, lock, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

__attribute__((cold, noinline)) static void vg_lock_wake(vg_word32 *lock)
{
	syscall(SYS_futex, lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static inline bool vg_try_lock(vg_word32 *lock)
{
	uint32_t free = 0;

	return atomic_compare_exchange_strong_explicit(lock, &free, 1, memory_order_acquire, memory_order_relaxed);
}

static inline void vg_lock(vg_word32 *lock)
{
	if (!vg_try_lock(lock))
		vg_lock_wait(lock);
}

/* Also a full fence: what was stored before can be seen by whoever is seen by what is loaded after. */
static inline void vg_unlock(vg_word32 *lock)
{
	uint32_t was = atomic_exchange_explicit(lock, 0, memory_order_seq_cst);

#if !defined(__x86_64__) && !defined(__i386__) /* where an exchange fences by itself */
	vg_full_fence();
#endif
	if (was == 2)
		vg_lock_wake(lock);
}

#endif
