/* SPDX-License-Identifier: Apache-2.0 */
/* Lane 0 over shared memory, and the watch over the device: it may come, go, or get another worker at any time. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent.h"

enum {
	LOOK_MS = 250,
	REFUSED_MS = 60000,      /* a refusal may have been another process's doing, or the host has another package by now */
};

static int send_frame(struct link *link, const struct vg_frame_header *header, const void *payload)
{
	struct agent_ring *ring = (struct agent_ring *)link;
	uint64_t one = 1;
	uint8_t *place;
	int error = ring->memory ? vg_ring_room(&ring->submit, header->length) : -ENOTCONN;

	ring->damaged |= error == -EBADMSG;
	if (error)
		return error;
	place = vg_ring_place(&ring->submit, header->length);
	vg_copy_out(place + VG_ALIGN, payload, header->length - VG_ALIGN);
	vg_copy_out(place, header, sizeof(*header));
	vg_ring_publish(&ring->submit, header->length);
	vg_full_fence();
	if (!vg_load32(&ring->control->parked))
		return 0;
	if (ring->bar)
		*ring->bar = VG_DOORBELL_VALUE;
	else if (write(ring->doorbell_fd, &one, sizeof(one)) < 0)
		return -errno;
	return 0;
}

void agent_ring_init(struct agent *agent, unsigned index)
{
	struct agent_ring *ring = &agent->ring[index];

	ring->link.agent = agent;
	ring->link.send = send_frame;
	ring->link.ring = true;
	ring->link.reserve_ms = UINT64_MAX;
	ring->ivshmem_socket = agent->ivshmem_socket[index];
	ring->server = ring->memory_fd = ring->doorbell_fd = ring->guard_fd = -1;
}

/* ---- the device ---- */

/* A page that says "gone" to every process, in memory that does not go away with the device. */
static int make_guard(struct agent_ring *ring)
{
	VG_FD int fd = memfd_create("vgpumgr-guard", MFD_CLOEXEC);
	char path[64];
	void *page;

	if (fd < 0 || ftruncate(fd, VG_PAGE))
		return -errno;
	page = mmap(NULL, VG_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	ring->guard = page;
	/* processes get it for reading only, and cannot open it anew: one must not end the others' sessions */
	if (fchmod(fd, 0400))
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ring->guard_fd = open(path, O_RDONLY | O_CLOEXEC);
	return ring->guard_fd < 0 ? -errno : 0;
}

static void lose_device(struct agent_ring *ring)
{
	if (ring->guard)
		vg_store32(ring->guard, 1);
	agent_link_down(&ring->link);
	if (ring->memory)
		munmap(ring->memory, ring->size);
	if (ring->guard)
		munmap(ring->guard, VG_PAGE);
	if (ring->bar)
		munmap((void *)((uintptr_t)ring->bar & ~(uintptr_t)(VG_PAGE - 1)), VG_PAGE);
	ring->link.present = false;
	ring->memory = NULL;
	ring->guard = NULL;
	ring->bar = NULL;
	ring->life = 0;
	ring->device[0] = '\0';
	vg_close_fd(&ring->memory_fd);
	vg_close_fd(&ring->doorbell_fd);
	vg_close_fd(&ring->guard_fd);
	vg_close_fd(&ring->server);
}

static int map_device(struct agent_ring *ring)
{
	void *memory = mmap(NULL, ring->size, PROT_READ | PROT_WRITE, MAP_SHARED, ring->memory_fd, 0);
	void *bar;

	if (memory == MAP_FAILED)
		return -errno;
	ring->memory = memory;
	if (ring->doorbell_kind == VG_DOORBELL_BAR) {
		bar = mmap(NULL, VG_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring->doorbell_fd, 0);
		if (bar == MAP_FAILED)
			return -errno;
		ring->bar = (volatile uint32_t *)((uint8_t *)bar + VG_DOORBELL_OFFSET);
	}
	return make_guard(ring);
}

static void find_device(struct agent_ring *ring)
{
	int error = ring->ivshmem_socket ? agent_join_server(ring) : agent_find_ivshmem(ring);

	if (error)
		return;
	if (map_device(ring)) {
		agent_log("cannot map the device's memory");
		lose_device(ring);
	}
}

static bool device_is_there(const struct agent_ring *ring)
{
	char byte;

	if (ring->server < 0)
		return !access(ring->device, F_OK);
	return recv(ring->server, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

/* ---- lane 0 ---- */

/* Nothing is kept of a layout that cannot be used. */
static int read_layout(struct agent_ring *ring)
{
	struct vg_header *header = (struct vg_header *)ring->memory;
	struct link *link = &ring->link;
	char text[sizeof(link->refusal)] = "the channel's header says more than its memory holds";
	struct vg_layout layout;

	if (!vg_layout_read(header, &layout, text, sizeof(text)) && layout.size <= ring->size) {
		ring->layout = layout;
		link->refusal[0] = '\0';
		return 0;
	}
	if (!link->refusal[0])
		agent_log("%s", text);
	memcpy(link->refusal, text, sizeof(text));
	return -EPROTO;
}

static void start_session(struct agent_ring *ring)
{
	struct vg_header *header = (struct vg_header *)ring->memory;
	struct link *link = &ring->link;
	uint8_t *base;

	if (read_layout(ring))
		return;
	link->number = vg_load32(&header->number);
	link->present = true;
	ring->control = vg_lane_at(ring->memory, &ring->layout, 0);
	ring->life = vg_load64(&ring->control->life);
	base = (uint8_t *)ring->control + VG_PAGE;
	vg_ring_init(&ring->submit, base, VG_CONTROL_RING, &ring->control->submit_head, &ring->control->submit_tail);
	vg_ring_init(&ring->reply, base + VG_CONTROL_RING, VG_CONTROL_RING, &ring->control->reply_head,
		     &ring->control->reply_tail);
	/*
	 * A predecessor of ours may have left off anywhere: go on from where the words stand. Where none can stand the worker
	 * notices, and begins anew.
	 */
	ring->submit.mine = ring->submit.theirs = vg_load64(&ring->control->submit_tail) & ~(uint64_t)(VG_ALIGN - 1);
	ring->reply.mine = vg_load64(&ring->control->reply_head) & ~(uint64_t)(VG_ALIGN - 1);
	ring->damaged = false;
	vg_store64(&ring->control->submit_head, ring->submit.mine);
	vg_ring_release(&ring->reply);
	ring->hello_ms = vg_now_ms();
	if (ring->life && agent_say_hello(&ring->link))
		ring->life = 0;
}

static void begin_again(struct agent_ring *ring, const char *why)
{
	agent_log("%s: saying hello again", why);
	agent_link_down(&ring->link);
	ring->life = 0;
}

static void take_replies(struct agent_ring *channel)
{
	/* not more than a ring's worth in one go: one who keeps writing must not keep the agent from all else */
	enum { AT_ONCE = VG_CONTROL_RING / VG_ALIGN };
	struct vg_ring *ring = &channel->reply;
	uint8_t data[VG_CONTROL_RING];
	struct vg_reply_header header;
	int64_t waiting;

	for (unsigned i = 0; i < AT_ONCE && channel->life && (waiting = vg_ring_waiting(ring)); i++) {
		int error = waiting < 0 ? (int)waiting : vg_ring_next(ring, &header);

		if (error == -EAGAIN)
			continue;
		if (error || header.length > sizeof(data)) {
			begin_again(channel, "lane 0 is damaged");
			return;
		}
		vg_copy_in(data, vg_ring_payload(ring), header.length - VG_ALIGN);
		vg_ring_consume(ring, header.length);
		vg_ring_release(ring);
		agent_take_reply(&channel->link, &header, data);
	}
}

/* The worker that we greeted is not the one that is there now. */
static bool session_ended(struct agent_ring *ring)
{
	return ring->life && vg_load64(&ring->control->life) != ring->life;
}

/* A process of this VM that writes over lane 0 may have done so, or destroyed an answer. */
static void look_at_answers(struct agent_ring *ring)
{
	if (!ring->life)
		return;
	if (ring->damaged)
		begin_again(ring, "lane 0 is damaged");
	else if (agent_answer_is_lost(&ring->link))
		begin_again(ring, "no answer on lane 0");
	else if (!ring->link.greeted && ring->link.refusal[0] && vg_now_ms() - ring->hello_ms > REFUSED_MS)
		ring->life = 0;
	else
		agent_probe(&ring->link);
}

static void look_at_device(struct agent_ring *ring)
{
	if (vg_now_ms() < ring->look_ms)
		return;
	ring->look_ms = vg_now_ms() + LOOK_MS;
	if (ring->memory && !device_is_there(ring)) {
		agent_log("the channel's device has gone");
		lose_device(ring);
	}
	if (!ring->memory)
		find_device(ring);
}

void agent_ring_tick(struct agent_ring *ring)
{
	look_at_device(ring);
	if (!ring->memory)
		return;
	if (session_ended(ring)) {
		agent_link_down(&ring->link);
		ring->life = 0;
	}
	if (!ring->life && vg_load32(&((struct vg_header *)ring->memory)->state) == VG_STATE_READY)
		start_session(ring);
	take_replies(ring);
	agent_reserve(&ring->link);
	look_at_answers(ring);
}
