/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory whose pages come when they are touched: the kernel tells of the touch by userfaultfd (its manual page, and
 * admin-guide/mm/userfaultfd.rst), so neither signals nor the program's handlers are involved. Addresses and sizes are
 * whole pages.
 */
#ifndef VGPUMGR_SHIM_FAULTS_H
#define VGPUMGR_SHIM_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

enum { FAULTS_PAGE = 4096 };

/* Whether the kernel does it for this process. */
bool faults_possible(void);
/* Maps memory at that address, if nothing is there. A child of this process has none of it. */
bool faults_map(uint64_t start, uint64_t bytes);
/* Who waits for one of its pages finds that nothing is mapped there. */
void faults_unmap(uint64_t start, uint64_t bytes);
/* Whoever touches it from now on ends with SIGSEGV. */
void faults_forbid(uint64_t start, uint64_t bytes);
/* Forgets the bytes; the next touch is told again. */
bool faults_drop(uint64_t start, uint64_t bytes);
/* Whether the next write is told. */
bool faults_protect(uint64_t start, uint64_t bytes, bool on);
/* Gives pages their bytes, and wakes who waits for them; those that are there keep theirs. */
bool faults_fill(uint64_t start, const void *from, uint64_t bytes, bool protected);
/* Whoever waits looks again. */
void faults_wake(uint64_t start, uint64_t bytes);

struct fault {
	uint64_t page;
	bool protected;       /* the page is there, the write is what is told */
	bool writes;
};
/* Waits for the next one; false: there will be none. */
bool faults_next(struct fault *fault);

#endif
