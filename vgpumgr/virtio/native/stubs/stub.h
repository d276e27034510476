/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of a library that is not forwarded, for the generated names.c. What they are called with is not read; a status is
 * returned as wide as the widest of them, cuFile's, a structure of two numbers whose first one is the error.
 */
#ifndef VG_STUB_H
#define VG_STUB_H

#include <stdatomic.h>

/* The library's code for what it does not do: names.c has it. */
extern const int stub_answer;
/* Names the function on standard error and to the host, once in a process. */
void stub_refuse(const char *name, atomic_flag *said);
/* For the library's own texts of its codes. */
const char *stub_text(int status);

#define STUB(type, name, text, value)                        \
	__attribute__((visibility("default"))) type name(); \
	type name(void)                                      \
	{                                                    \
		static atomic_flag said = ATOMIC_FLAG_INIT;  \
                                                             \
		stub_refuse(text, &said);                    \
		return value;                                \
	}
#define STUB_STATUS(name) STUB(long long, name, #name, stub_answer)
#define STUB_ZERO(name) STUB(long long, name, #name, 0)
#define STUB_NEGATIVE(name) STUB(long long, name, #name, -stub_answer)
#define STUB_NULL(name) STUB(void *, name, #name, 0)
#define STUB_VOID(name) STUB(void, name, #name, )
#define STUB_TEXT(name)                                            \
	__attribute__((visibility("default"))) const char *name(int status); \
	const char *name(int status)                               \
	{                                                          \
		return stub_text(status);                          \
	}

#endif
