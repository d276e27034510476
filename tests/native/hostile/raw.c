/* SPDX-License-Identifier: Apache-2.0 */
#include "raw.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "vg_ops.h"

enum { PATIENCE_MS = 60000 };

static int map(struct raw *raw)
{
	int error;

	raw->memory = mmap(NULL, raw->answer.memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, raw->fds[0], 0);
	if (raw->memory == MAP_FAILED) {
		raw->memory = NULL;
		return -errno;
	}
	/* the memory is the window, or a window of its own with one lane */
	error = vg_layout_read((const struct vg_header *)raw->memory, &raw->layout, raw->answer.text, sizeof(raw->answer.text));
	if (error)
		return error;
	raw->control = vg_lane_at(raw->memory, &raw->layout, raw->answer.lane);
	vg_ring_init(&raw->replies, (uint8_t *)raw->control + VG_PAGE + raw->layout.submit_size, raw->layout.reply_size,
		     &raw->control->reply_head, &raw->control->reply_tail);
	return error;
}

int raw_open_as(struct raw *raw, uint32_t version, const char *name)
{
	const char *path = getenv("VGPUMGR_AGENT");
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = version, .api_version = "9" };
	int error;

	*raw = (struct raw){ .fds = { -1, -1, -1 } };
	memcpy(request.name, name, strnlen(name, sizeof(request.name)));
	raw->socket = vg_connect(path ? path : VG_AGENT_SOCKET);
	if (raw->socket < 0)
		return raw->socket;
	error = vg_send_all(raw->socket, &request, sizeof(request));
	if (!error)
		error = vg_recv_fds(raw->socket, &raw->answer, sizeof(raw->answer), raw->fds, VG_AGENT_FDS);
	if (!error)
		error = raw->answer.error;
	raw->ring = !error && raw->answer.transport == VG_TRANSPORT_RING;
	return error || !raw->ring ? error : map(raw);
}

int raw_open(struct raw *raw)
{
	int error = -EUSERS;

	/* lanes of the attempts before are being given back */
	for (unsigned i = 0; i < PATIENCE_MS / 10 && (error == -EUSERS || error == -ENOTCONN); i++) {
		error = raw_open_as(raw, VG_WIRE_VERSION, "attack");
		if (error) {
			raw_close(raw);
			usleep(10000);
		}
	}
	return error;
}

void raw_close(struct raw *raw)
{
	if (raw->memory)
		munmap(raw->memory, raw->answer.memory_size);
	raw->memory = NULL;
	vg_close_fd(&raw->socket);
	for (unsigned i = 0; i < VG_AGENT_FDS; i++)
		vg_close_fd(&raw->fds[i]);
}

void raw_doorbell(const struct raw *raw)
{
	uint64_t one = 1;

	if (raw->answer.doorbell == VG_DOORBELL_EVENTFD) {
		if (write(raw->fds[1], &one, sizeof(one)) < 0)
			return;
	} else if (raw->answer.doorbell == VG_DOORBELL_BAR) {
		uint8_t *bar = mmap(NULL, VG_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, raw->fds[1], 0);

		if (bar == MAP_FAILED)
			return;
		*(volatile uint32_t *)(bar + VG_DOORBELL_OFFSET) = VG_DOORBELL_VALUE;
		munmap(bar, VG_PAGE);
	}
}

static bool is_lost(struct raw *raw)
{
	if (raw->ring && vg_load64(&raw->control->life) != raw->answer.generation)
		raw->lost = true;
	return raw->lost;
}

/* ---- the ring ---- */

static int send_ring(struct raw *raw, const void *bytes, size_t size)
{
	uint8_t *ring = (uint8_t *)raw->control + VG_PAGE;
	size_t at = raw->head & (raw->layout.submit_size - 1), aligned = vg_aligned(size), left = raw->layout.submit_size - at;
	uint64_t end = vg_now_ms() + PATIENCE_MS;

	if (left < aligned) {
		struct vg_frame_header pad = { .length = (uint32_t)left, .flags = VG_PAD };

		memcpy(ring + at, &pad, sizeof(pad));
		raw->head += left;
		at = 0;
	}
	while (raw->head + aligned - vg_load64(&raw->control->submit_tail) > raw->layout.submit_size) {
		vg_store64(&raw->control->submit_head, raw->head);
		raw_doorbell(raw);
		if (is_lost(raw) || vg_now_ms() > end)
			return -ECONNRESET;
		usleep(50);
	}
	memcpy(ring + at, bytes, size);
	raw->head += aligned;
	vg_store64(&raw->control->submit_head, raw->head);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (vg_load32(&raw->control->parked))
		raw_doorbell(raw);
	return is_lost(raw) ? -ECONNRESET : 0;
}

static int next_ring(struct raw *raw, struct raw_reply *reply)
{
	int error = -EAGAIN;

	while (error == -EAGAIN) {
		if (vg_ring_waiting(&raw->replies) <= 0)
			return -EAGAIN;
		error = vg_ring_next(&raw->replies, &reply->header);
	}
	if (error)
		return error;
	memcpy(reply->data, vg_ring_payload(&raw->replies), reply->header.length - VG_ALIGN);
	vg_ring_consume(&raw->replies, reply->header.length);
	vg_ring_release(&raw->replies);
	return 0;
}

/* ---- the serial stream ---- */

/* One message, if there is one: a reply, or -EAGAIN. */
static int next_serial(struct raw *raw, struct raw_reply *reply, int wait_ms)
{
	struct pollfd wait = { raw->socket, POLLIN, 0 };
	struct vg_message message;
	uint8_t body[VG_MESSAGE_MAX];
	uint32_t credit;

	if (poll(&wait, 1, wait_ms) <= 0)
		return -EAGAIN;
	if (vg_recv_all(raw->socket, &message, sizeof(message)) || message.length > sizeof(body) ||
	    vg_recv_all(raw->socket, body, message.length) || message.kind == VG_KIND_LOST) {
		raw->lost = true;
		return -ECONNRESET;
	}
	if (message.kind == VG_KIND_CREDIT) {
		memcpy(&credit, body, sizeof(credit));
		raw->unpaid -= credit < raw->unpaid ? credit : raw->unpaid;
	}
	if (message.kind != VG_KIND_REPLY || !reply)
		return -EAGAIN;
	memcpy(&reply->header, body, sizeof(reply->header));
	memcpy(reply->data, body + sizeof(reply->header), message.length - sizeof(reply->header));
	return 0;
}

static int send_serial(struct raw *raw, const void *bytes, size_t size)
{
	struct vg_message message = { VG_MESSAGE_MAGIC, raw->answer.lane, VG_KIND_FRAME, (uint32_t)size };
	uint64_t end = vg_now_ms() + PATIENCE_MS;

	raw->unpaid += sizeof(message) + size;
	while (raw->unpaid > VG_SERIAL_CREDIT) {
		next_serial(raw, NULL, 100);
		if (raw->lost || vg_now_ms() > end)
			return -ECONNRESET;
	}
	if (vg_send_all(raw->socket, &message, sizeof(message)) || vg_send_all(raw->socket, bytes, size))
		raw->lost = true;
	return raw->lost ? -ECONNRESET : 0;
}

/* ---- both ---- */

int raw_send(struct raw *raw, const struct vg_frame_header *header, const uint64_t *words, unsigned count)
{
	uint8_t bytes[sizeof(*header) + 8 * RAW_WORDS];

	memcpy(bytes, header, sizeof(*header));
	if (count)
		memcpy(bytes + sizeof(*header), words, 8 * count);
	return (raw->ring ? send_ring : send_serial)(raw, bytes, sizeof(*header) + 8 * count);
}

int64_t raw_post(struct raw *raw, uint32_t op, uint32_t flags, const uint64_t *words, unsigned count)
{
	struct vg_frame_header header = {
		.length = VG_ALIGN + 8 * count, .op = op, .sequence = ++raw->sequence, .flags = flags,
	};
	int error = raw_send(raw, &header, words, count);

	return error ? error : (int64_t)header.sequence;
}

int raw_next(struct raw *raw, struct raw_reply *reply, unsigned wait_ms)
{
	uint64_t end = vg_now_ms() + wait_ms;
	int error;

	for (;;) {
		error = raw->ring ? next_ring(raw, reply) : next_serial(raw, reply, 10);
		if (error != -EAGAIN)
			return error;
		if (is_lost(raw))
			return -ECONNRESET;
		if (vg_now_ms() > end)
			return -ETIMEDOUT;
		if (raw->ring)
			usleep(20);
	}
}

int raw_call(struct raw *raw, uint32_t op, const uint64_t *words, unsigned count)
{
	static __thread struct raw_reply reply;
	int64_t sequence = raw_post(raw, op, VG_WANTS_REPLY, words, count);
	int error = sequence < 0 ? (int)sequence : 0;

	while (!error) {
		error = raw_next(raw, &reply, PATIENCE_MS);
		if (!error && reply.header.sequence == (uint32_t)sequence)
			return reply.header.status;
	}
	return error;
}

bool raw_is_ended(struct raw *raw, unsigned wait_ms)
{
	static struct raw_reply reply;
	int error;

	do
		error = raw_next(raw, &reply, wait_ms);
	while (!error);
	return error != -ETIMEDOUT;
}
