/* SPDX-License-Identifier: Apache-2.0 */
/* What loading a module and linking have in common: images that were received, options and logs of the driver's compiler. */
#ifndef VGPUMGR_WORKER_IMAGE_H
#define VGPUMGR_WORKER_IMAGE_H

#include "session.h"
#include "vg_worker.h"

/* The upload's image with 8 zeros behind it, now the caller's, as its charge is; NULL: not there or not complete. */
void *wk_image_take(struct wk_session *session, uint32_t number, size_t *length);
/* A copy under that number, charged, as if it had been uploaded; false: no room, or the number is in use. */
bool wk_image_give(struct wk_session *session, uint32_t number, const void *image, size_t length);
bool wk_image_is_elf(const void *image, size_t length);

struct wk_jit {
	CUjit_option option[72];
	void *value[72];
	unsigned int count;
};

void wk_jit_add(struct wk_jit *jit, CUjit_option option, void *value);
/* Pairs of words of the guest's: only options whose values are plain numbers. */
CUresult wk_jit_read(struct wk_jit *jit, const struct vg_bytes *options);
void wk_jit_logs(struct wk_jit *jit, uint8_t *info, size_t info_bytes, uint8_t *error, size_t error_bytes);
/* How much of a log goes to the guest, with its NUL. */
size_t wk_log_length(const uint8_t *log, size_t room);
/*
 * Of what may compile only so much goes on at once; the others wait, on threads that nobody else waits for. Charges
 * VG_LIMIT_JIT, to be given back by the caller.
 */
CUresult wk_begin_compiling(const struct wk_call *call);

#endif
