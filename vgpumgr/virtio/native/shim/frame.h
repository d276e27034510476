/* SPDX-License-Identifier: Apache-2.0 */
/* One frame from the guest's side: what generated senders use. */
#ifndef VGPUMGR_FRAME_H
#define VGPUMGR_FRAME_H

#include "channels.h"

/* Ahead: one of several calls on their way, of which none but the first waits for room. */
enum shim_send_kind { SHIM_QUIET, SHIM_CACHED, SHIM_SYNC, SHIM_FIRST, SHIM_AHEAD };

enum { SHIM_KEY_MAX = 256 };

/* Host memory that travels packed: `rows` rows of `width` bytes, `pitch` apart. Gaps are neither read nor written. */
struct shim_bulk {
	enum vg_bulk direction;
	void *host;
	size_t width, rows, pitch;
	bool present;       /* its pages are here, even if it is managed memory */
};

struct shim_frame {
	struct vg_conn *conn;
	unsigned channel;
	enum shim_send_kind kind;
	uint32_t op;
	const struct shim_bulk *bulk;
	uint8_t *aside;     /* packed bulk that is managed memory: touching that may take a call of its own */
	struct vg_frame frame;
	struct vg_reply reply;
	struct vg_encoder encoder;
	struct vg_decoder decoder;
	size_t size;
	bool replied;       /* reply must be given back */
	bool has_data;
	bool output;        /* of the session, to be fetched */
	uint8_t key[SHIM_KEY_MAX];
};

/*
 * Room for `size` bytes of payload in f->encoder; then either shim_send() and shim_end(), or nothing on an error. With
 * SHIM_FIRST and SHIM_AHEAD, shim_await() comes between them, if shim_send() succeeds; of the latter, CUDA_ERROR_NOT_READY
 * says that there is no room now, and ends the frame.
 */
CUresult shim_begin(struct shim_frame *f, unsigned channel, uint32_t op, enum shim_send_kind kind, size_t size,
		    const struct shim_bulk *bulk);
CUresult shim_send(struct shim_frame *f);
CUresult shim_await(struct shim_frame *f);
static inline bool shim_has_reply(const struct shim_frame *f)
{
	return f->has_data;
}
/* Gives the reply back; the result of the call, which is r unless the reply could not be read. */
CUresult shim_end(struct shim_frame *f, CUresult r, bool decodes);

struct shim_told {
	CUresult result;
	bool has_data;       /* `reply` is filled */
};

/* A whole synchronous call of fixed size: request and reply are words on the wire, sizes in bytes. */
struct shim_told shim_exchange(unsigned channel, uint32_t op, const uint64_t *request, size_t request_size,
			       uint64_t *reply, size_t reply_size);

/* A whole call without an answer: its words, `size` in bytes, of which SHIM_KEY_MAX are few enough for any. */
CUresult shim_post(unsigned channel, uint32_t op, const uint64_t *request, size_t size);

/* Of a call's words, by which its answer is kept. */
uint32_t shim_hash(uint32_t op, const uint8_t *key, size_t length);

/* Forgets the answers of cached calls. */
void shim_cache_clear(void);

#endif
