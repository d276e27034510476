/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of device memory, kept free of all else in this process. With unified addressing an address alone says whether it is
 * the program's memory or a device's; but a session on the host chooses addresses without knowing what this process has there.
 */
#ifndef VGPUMGR_SPACE_H
#define VGPUMGR_SPACE_H

#include <stdbool.h>
#include <stdint.h>

/* False: the program has something there already. Else nothing will be, also when the memory is freed: it may come again. */
bool shim_space_take(uint64_t start, uint64_t bytes);
/* The addresses are free again, for a mapping of ours. */
void shim_space_give(uint64_t start, uint64_t bytes);

#endif
