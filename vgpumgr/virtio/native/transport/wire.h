/* SPDX-License-Identifier: Apache-2.0 */
/* docs/wire-format.md in C: constants, layouts, and the geometry that follows from a memory's size. */
#ifndef VG_WIRE_H
#define VG_WIRE_H

#include "../transport.h"
#include "access.h"

enum {
	VG_WIRE_VERSION = 3,
	VG_PAGE = 4096,
	VG_ALIGN = 32,           /* of frames in a ring; also the size of both headers */
	VG_SLOTS = 64,           /* calls outstanding on one lane */
	VG_CONTROL_RING = 8192,
	VG_CONTROL_OFFSET = VG_PAGE,
	VG_LANES_OFFSET = VG_CONTROL_OFFSET + VG_PAGE + 2 * VG_CONTROL_RING,
	VG_RING_LANES_MAX = 16,
	VG_SERIAL_LANE_FIRST = 33,
	VG_SERIAL_LANES = 16,
	VG_LANE_TABLE = VG_SERIAL_LANE_FIRST + VG_SERIAL_LANES,
	VG_BODY_MAX = VG_ALIGN + VG_PAYLOAD_RING_MAX,
};

enum { VG_DEVICE_NAME = 64 };

#define VG_MAGIC 0x0152474d55504756ull /* "VGPUMGR\x01" */

enum vg_state { VG_STATE_DOWN = 0, VG_STATE_READY = 1, VG_STATE_LOST = 2 };

struct vg_header {
	vg_word64 magic;
	vg_word32 version;
	vg_word32 state;
	vg_word32 epoch;
	vg_word32 lane_count;
	vg_word64 size;
	vg_word32 lane_size;
	vg_word32 submit_size;
	vg_word32 reply_size;
	vg_word32 window_size;
	vg_word32 block_size;
	vg_word32 bulk_max;
	vg_word32 control_size;
	vg_word32 number;        /* of the attachment in its VM */
	vg_word64 heartbeat;
};
_Static_assert(offsetof(struct vg_header, epoch) == 16, "wire format");
_Static_assert(offsetof(struct vg_header, control_size) == 56, "wire format");
_Static_assert(offsetof(struct vg_header, number) == 60, "wire format");
_Static_assert(offsetof(struct vg_header, heartbeat) == 64, "wire format");

struct vg_control {
	_Alignas(128) vg_word64 submit_head;
	_Alignas(128) vg_word64 submit_tail;
	_Alignas(128) vg_word32 parked;
	_Alignas(128) vg_word64 reply_head;
	_Alignas(128) vg_word64 reply_tail;
	_Alignas(128) vg_word64 life;
};
_Static_assert(offsetof(struct vg_control, life) == 640 && sizeof(struct vg_control) <= VG_PAGE, "wire format");

enum vg_flags {
	VG_WANTS_REPLY = 1,
	VG_HAS_BULK_IN = 2,
	VG_HAS_BULK_OUT = 4,
	VG_FLAGS_KNOWN = 7,
	VG_HAS_OUTPUT = 8,       /* of replies only */
};
#define VG_PAD 0x80000000u

struct vg_frame_header {
	uint32_t length;
	uint32_t op;
	uint32_t sequence;
	uint32_t flags;
	uint32_t bulk_offset;
	uint32_t bulk_length;
	uint64_t zero;
};

struct vg_reply_header {
	uint32_t length;
	int32_t status;
	uint32_t sequence;
	uint32_t flags;
	uint32_t unused;
	uint32_t bulk_length;
	uint64_t zero;
};
_Static_assert(sizeof(struct vg_frame_header) == VG_ALIGN && sizeof(struct vg_reply_header) == VG_ALIGN, "wire format");
_Static_assert(offsetof(struct vg_frame_header, flags) == offsetof(struct vg_reply_header, flags), "pads look alike");

/* ---- lane 0 ---- */

/* Of every lane: what the guest's side can send. */
enum { VG_OP_INTERFACE = 0, VG_REFUSED_WORDS = (VG_OPERATIONS_MAX + 63) / 64 };
/* wherever the frame begins on lane 0's ring, there is room for it and for the pad before it */
_Static_assert(2 * (VG_ALIGN + VG_OPERATIONS_MAX * 8) <= VG_CONTROL_RING, "wire format");

enum vg_control_op {
	VG_CONTROL_HELLO = 1,
	VG_CONTROL_OPEN = 2,
	VG_CONTROL_CLOSE = 3,
	VG_CONTROL_RESERVE = 4,  /* a lane without a session, for the next process; struct vg_open without pid and name */
	VG_CONTROL_CLAIM = 5,    /* a process has it: struct vg_claim */
};

struct vg_hello {
	uint32_t version;
	uint32_t zero;
	char agent[32];
	char kernel[64];
};

/* The answer to a hello that is welcome. */
struct vg_welcome {
	char device[VG_DEVICE_NAME]; /* what CUDA calls the worker's device on the host */
	uint8_t hash[VG_HASH_SIZE];  /* of the worker's interface */
};
_Static_assert(sizeof(struct vg_welcome) == 80, "wire format");

/* Of `user`: processes of different ones share nothing. What no agent says is 0: then a process shares nothing at all. */
enum { VG_USER_UNKNOWN = 0 };
#define VG_USER_ANY UINT32_MAX /* users are not kept apart */

struct vg_open {
	uint32_t pid;
	uint32_t user;           /* its number and 1 */
	char api_version[32];
	char name[32];
};

struct vg_opened {
	uint32_t lane;
	uint32_t zero;
	uint64_t generation;
};

struct vg_close {
	uint32_t lane;
	uint32_t zero;
	uint64_t generation;
};
_Static_assert(sizeof(struct vg_hello) == 104 && sizeof(struct vg_open) == 72, "wire format");
struct vg_claim {
	struct vg_close lane;
	struct vg_open open;
};
_Static_assert(sizeof(struct vg_opened) == 16 && sizeof(struct vg_close) == 16, "wire format");
_Static_assert(sizeof(struct vg_claim) == 88, "wire format");

/* ---- serial ---- */

enum {
	VG_SYNC_SIZE = 24,
	VG_SYNC_TEXT_SIZE = 16,
	VG_MESSAGE_MAX = 32768,
	VG_SERIAL_BULK_MAX = 262144,
	VG_SERIAL_CREDIT = 1 << 20,
};
#define VG_SYNC_TEXT "\x9dVGPUMGR-SYNC\r\n\x01" /* VG_SYNC_TEXT_SIZE bytes, then the nonce */
_Static_assert(sizeof(VG_SYNC_TEXT) == VG_SYNC_TEXT_SIZE + 1, "wire format");
#define VG_MESSAGE_MAGIC 0x31534756u

enum vg_kind { VG_KIND_FRAME = 1, VG_KIND_REPLY = 2, VG_KIND_BULK = 3, VG_KIND_CREDIT = 4, VG_KIND_LOST = 5 };

struct vg_message {
	uint32_t magic;
	uint32_t lane;
	uint32_t kind;
	uint32_t length;
};
_Static_assert(sizeof(struct vg_message) == 16 && (int)VG_BODY_MAX <= (int)VG_MESSAGE_MAX, "wire format");

/* ---- the agent's socket ---- */

#define VG_AGENT_MAGIC 0x41475631u
#define VG_AGENT_SOCKET "/run/vgpumgr/guest.sock"
enum { VG_TRANSPORT_RING = 1, VG_TRANSPORT_SERIAL = 2 };
enum { VG_DOORBELL_BAR = 1, VG_DOORBELL_EVENTFD = 2 };
enum { VG_DOORBELL_OFFSET = 12, VG_DOORBELL_VALUE = 0x10000 };
enum { VG_AGENT_FDS = 3 };       /* memory, doorbell, guard */

struct vg_agent_request {
	uint32_t magic;
	uint32_t version;
	char api_version[32];
	char name[32];
	uint32_t device;         /* which of the VM's attachments, counted from 0 in the order of their numbers */
	uint32_t zero;
};

struct vg_agent_answer {
	uint32_t magic;
	int32_t error;
	uint32_t transport;
	uint32_t lane;
	uint64_t generation;
	uint64_t memory_size;
	uint32_t doorbell;
	uint32_t devices;        /* how many there are */
	uint8_t hash[VG_HASH_SIZE]; /* of the worker's interface */
	char text[200];          /* why not, or else the device's name */
};
_Static_assert(sizeof(struct vg_agent_request) == 80 && sizeof(struct vg_agent_answer) == 256, "wire format");

/* ---- geometry ---- */

struct vg_layout {
	uint64_t size;
	uint32_t lane_count, lane_size, submit_size, reply_size, window_size, block_size, bulk_max;
};

/* What a memory of this size holds. -EINVAL: not a power of two from 1 MiB to 1 GiB. */
int vg_layout(uint64_t size, struct vg_layout *layout);
/* As the header says; -EPROTO if that is not a layout of this wire version (text then says what differs). */
int vg_layout_read(const struct vg_header *header, struct vg_layout *layout, char *text, size_t text_size);
void vg_layout_publish(const struct vg_layout *layout, struct vg_header *header);
/* The control page of a lane (0: the agent's). Rings and window follow it. */
struct vg_control *vg_lane_at(void *memory, const struct vg_layout *layout, uint32_t lane);

static inline size_t vg_aligned(size_t length)
{
	return (length + VG_ALIGN - 1) & ~(size_t)(VG_ALIGN - 1);
}

#endif
