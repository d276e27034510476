/* SPDX-License-Identifier: Apache-2.0 */
/* Approximate instructions with the worst error that is documented. */
#ifndef PTX_WORST_H
#define PTX_WORST_H

#include <stdbool.h>
#include <stdint.h>

/* The first three have an absolute bound. */
enum approx { SIN, COS, LG2, EX2, RCP, SQRT, RSQRT, TANH };

/* Whether the environment asks for them. */
bool worst_wanted(void);

/* On which side of the result, by the bits of the operand. */
bool worst_is_up(uint32_t bits);
float worst_single(enum approx function, float x);
float worst_quotient(float x, float y);

#endif
