/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs that are kept: run again, changed at random, added to by what reaches something new, and made fewer. A fuzzer
 * has LLVMFuzzerTestOneInput(), links kept.c, and calls kept_main() when its first word is "kept".
 */
#ifndef KEPT_H
#define KEPT_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Makes an input that is mostly right, of at most `room` bytes, and says how long it is. */
typedef size_t kept_make(uint64_t seed, uint8_t *bytes, size_t room);

/*
 * replay FILE...; fuzz SEED ROUNDS FILE...; and, built with -fsanitize-coverage=trace-pc: grow SEED SECONDS DIRECTORY,
 * or minimise DIRECTORY. The words begin after "kept".
 */
int kept_main(int argc, char **argv, kept_make *make);

#endif
