/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels print, on this process's own standard output and error. */
#ifndef VGPUMGR_SHIM_OUTPUT_H
#define VGPUMGR_SHIM_OUTPUT_H

/* A reply has said that there is output. */
void shim_output_fetch(unsigned channel);
/* Kernels may run from now on: there may be output when the process ends. */
void shim_output_expect(void);

#endif
