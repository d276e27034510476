/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of made-up guests that call mathematics libraries. */
#ifndef FUZZ_MATHS_H
#define FUZZ_MATHS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* POSTED_BYTES: what a call may have that is not a question. */
enum { BYTES = 8192, POSTED_BYTES = 2048 };

struct thread {
	pthread_t thread;
	uint64_t random;
	_Alignas(8) uint8_t arguments[BYTES];
	size_t length;
	uint64_t mark;            /* of the call that is about to be made, for who learns its answer; 0: none */
};

uint64_t roll(struct thread *t);
bool once_in(struct thread *t, uint64_t n);
void put(struct thread *t, uint64_t word);

/* ---- networks.c: arguments of cuDNN's functions, right ones and wrong ones */

/* A question, or a function of the classic interface: its number. */
uint64_t make_network(struct thread *t);
/* The tree of a plan, and an execution of one. */
void make_plan(struct thread *t);
void make_execution(struct thread *t, uint64_t plan);
/* How many functions were called, of the classic interface and of the others. */
unsigned int count_networks(void);

/* ---- transforms.c: arguments of cuFFT's, right ones and wrong ones */

/* What a plan is made of or a question asks for, and an execution. */
void make_shape(struct thread *t, uint64_t function);
void make_transform(struct thread *t);
/* How many ways there were of both. */
unsigned int count_transforms(void);

/* ---- solvers.c: a function of cuSOLVER's, with that object where it takes one: its number, and how many there were */
uint64_t make_solver(struct thread *t, uint64_t object);
unsigned int count_solvers(void);

/* ---- sparses.c: the same of cuSPARSE, with objects by their kind; counted is what the library has done */
uint64_t make_sparse(struct thread *t, bool on_device, const _Atomic uint64_t *objects);
void learn_sparse(uint64_t mark, int32_t status);
unsigned int count_sparses(void);

/* ---- randoms.c: of cuRAND a generator's type, and numbers of one; how many of its functions and settings there were */
void make_generator(struct thread *t);
void make_numbers(struct thread *t);
unsigned int count_randoms(void);

#endif
