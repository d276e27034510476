/* SPDX-License-Identifier: Apache-2.0 */
/* How many instructions a piece of a child's code takes, step by step: a number that no load of the machine changes. */
#ifndef VGPUMGR_BENCH_STEPS_H
#define VGPUMGR_BENCH_STEPS_H

/* In the child: ends of the piece that is counted. */
void steps_mark(void);
/*
 * Runs child(argument) in a process of its own and counts what it does between each odd mark and the next one. Returns the
 * median of so many counts at most; -1: there are none (no such processor, or the child failed).
 */
long steps_count(void (*child)(const char *), const char *argument, int most);

#endif
